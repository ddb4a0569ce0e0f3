"""What may stand in the jobs table without a claim noticing it."""

from __future__ import annotations

from functools import partial
from typing import Literal

from app.queue.model import Topic
from tests.benchmarks.bench import Bench, Effort, say
from tests.benchmarks.figures import Figure, Ratio, in_turns
from tests.benchmarks.fill import empty, fill, fill_groups, settle, top_up
from tests.benchmarks.load import Consume

# How claims come: (jobs a request, clients, jobs a round for each second of effort).
MANNERS = {"batches of 100": (100, 8, 8_000), "single": (1, 64, 1_200)}
ROUNDS = 3  # for each of the effort's: they are short
PLAIN = 10_000
GROUPS = 1_000  # of the blocked ones
DAY_MS = 86_400_000


async def deep(bench: Bench, effort: Effort) -> list[Figure]:
    """Claims of a topic with 5,000,000 ready jobs, against one with 10,000, which is topped up for each round."""
    many = effort.of(5_000_000, 200_000)
    full, plain = (await bench.queue("deep")).topic, (await bench.queue("shallow")).topic
    # What will be claimed comes first and has data of the size that is asked for.
    await fill(bench, full, sum(size * effort.rounds * ROUNDS for size in _sizes(effort).values()))
    await fill(bench, full, many, bulk=True)
    figures = await _compare(bench, effort, full, plain, f"{many:,} ready / {PLAIN:,}", refill=False)
    await empty(bench, full)
    return figures


async def scheduled(bench: Bench, effort: Effort) -> list[Figure]:
    """Claims beside 1,000,000 jobs of the same lane that are scheduled for the day that begins in an hour, against
    claims without them."""
    return await _beside(bench, effort, "scheduled", effort.of(1_000_000, 50_000), "scheduled for later")


async def blocked(bench: Bench, effort: Effort) -> list[Figure]:
    """Claims beside 200,000 blocked followers of a thousand groups in the same lane, against claims without them.

    The heads of the groups have a delay, so that nobody claims them meanwhile.
    """
    return await _beside(bench, effort, "blocked", effort.of(200_000, 20_000), "blocked")


async def groups(bench: Bench, effort: Effort) -> list[Figure]:
    """Claims and acks of jobs in 200,000 groups, each with another job behind it, against jobs in 5,000 groups."""
    many, few = effort.of(200_000, 20_000), 5_000
    crowded, plain = (await bench.queue("many-groups")).topic, (await bench.queue("few-groups")).topic
    most, clients, pace = MANNERS["batches of 100"]
    size, rounds = int(pace * effort.seconds) // 3, effort.rounds * ROUNDS
    await fill_groups(bench, crowded, many, max(2, -(-size * rounds // many) + 1))
    await fill_groups(bench, plain, few, -(-size * rounds // few) + 1)
    ports = [bench.service.port]
    loads = [Consume(ports, topic.name, clients, size, most, ack=True) for topic in (crowded, plain)]
    with_it, against = (partial(_rate, bench, load, False) for load in loads)
    say(f"claims and acks of {many:,} groups / {few:,}: {rounds} rounds of {size:,} jobs")
    rates, bases = await in_turns(rounds, with_it, against)
    for topic in (crowded, plain):
        await empty(bench, topic)
    return [Ratio(f"claim and ack, {many:,} groups / {few:,}", "jobs", rates, bases, 0.80)]


async def _beside(bench: Bench, effort: Effort, state: str, many: int, what: str) -> list[Figure]:
    crowded, plain = (await bench.queue(state)).topic, (await bench.queue(f"no-{state}")).topic
    if state == "blocked":
        await fill_groups(bench, crowded, GROUPS, many // GROUPS + 1, delay_ms=DAY_MS)
    else:
        await fill(bench, crowded, many, state, bulk=True)
    figures = await _compare(bench, effort, crowded, plain, f"beside {many:,} {what} / none", refill=True)
    await empty(bench, crowded)
    return figures


async def _compare(
    bench: Bench, effort: Effort, loaded: Topic, plain: Topic, what: str, *, refill: bool
) -> list[Figure]:
    figures: list[Figure] = []
    rounds = effort.rounds * ROUNDS
    for name, size in _sizes(effort).items():
        most, clients, _ = MANNERS[name]
        ports = [bench.service.port]
        against = partial(_rate, bench, Consume(ports, plain.name, clients, size, most, ack=False), plain)
        with_it = partial(_rate, bench, Consume(ports, loaded.name, clients, size, most, ack=False), refill and loaded)
        say(f"claims {what}, {name}: {rounds} rounds of {size:,} jobs")
        rates, bases = await in_turns(rounds, with_it, against)
        figures.append(Ratio(f"claim, {name}, {what}", "jobs", rates, bases, 0.90))
    return figures


async def _rate(bench: Bench, load: Consume, refilled: Topic | Literal[False]) -> float:
    """Of claims; the topic is topped up to PLAIN jobs before, if it is named."""
    if refilled:
        await top_up(bench, refilled, PLAIN)
    await settle(bench)
    return (await bench.drive(load)).rate


def _sizes(effort: Effort) -> dict[str, int]:
    return {name: int(pace * effort.seconds) // 3 for name, (_, _, pace) in MANNERS.items()}
