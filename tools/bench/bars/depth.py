"""What may stand in the jobs table without a claim noticing it.

Both sides of a comparison must differ in nothing else. So neither topic is the last one in the indexes (see
`_neighbour`), both are claimed from before anything counts, a measurement lasts for a second or so, and each begins
with no dead rows: whichever side an autovacuum of what others left fell to would lose a third.
"""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial

from app.kernel.model import Topic
from tools.bench.bench import Bench, Effort, say
from tools.bench.figures import Figure, Ratio, in_turns
from tools.bench.fill import clean, empty, fill, fill_groups, top_up
from tools.bench.load import Consume

# How claims come: (jobs a request, clients, jobs a part of a round for each second of effort).
MANNERS = {"batches of 100": (100, 8, 8_000), "single": (1, 64, 1_200)}
ROUNDS = 3  # for each of the effort's: they are short
PARTS = 5  # of a round, with a refill before each: alone they are too short to say much
PLAIN = 10_000
GROUPS = 1_000  # of the blocked ones
DAY_MS = 86_400_000


async def deep(bench: Bench, effort: Effort) -> list[Figure]:
    """Claims of a topic with 5,000,000 ready jobs, against one with 10,000, which is topped up for each round."""
    many = effort.of(5_000_000, 200_000)
    full, plain = (await bench.queue("deep")).topic, (await bench.queue("shallow")).topic
    # What will be claimed comes first and has data of the size that is asked for.
    rounds = effort.rounds * ROUNDS + 1  # with the one that does not count
    await fill(bench, full, sum(size * rounds * effort.of(PARTS, 1) for size in _sizes(effort).values()))
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
    with_it, against = (partial(_rate, bench, load) for load in loads)
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
    rounds, parts = effort.rounds * ROUNDS, effort.of(PARTS, 1)
    async with _neighbour(bench):
        for name, size in _sizes(effort).items():
            most, clients, _ = MANNERS[name]
            with_it, against = (
                partial(
                    _rate,
                    bench,
                    Consume([bench.service.port], topic.name, clients, size, most, ack=False),
                    topic if refill or topic is plain else None,
                    parts,
                )
                for topic in (loaded, plain)
            )
            await in_turns(1, with_it, against)  # nothing is measured by its first claims
            say(f"claims {what}, {name}: {rounds} rounds of {parts} times {size:,} jobs")
            rates, bases = await in_turns(rounds, with_it, against)
            figures.append(Ratio(f"claim, {name}, {what}", "jobs", rates, bases, 0.90))
    return figures


@asynccontextmanager
async def _neighbour(bench: Bench) -> AsyncIterator[None]:
    """A topic behind all others in the indexes, with jobs that wait.

    Of two topics one would be the last otherwise, and that one is a case of its own, whatever else it holds: PostgreSQL
    packs the pages at an index's end full, so that a claim's new versions of its rows split them, and goes straight to
    the last page for what comes behind everything else.
    """
    last = (await bench.queue("zzz")).topic
    for state in ("ready", "scheduled"):
        await fill(bench, last, 1_000, state, bulk=True)
    yield
    await empty(bench, last)


async def _rate(bench: Bench, load: Consume, refilled: Topic | None = None, parts: int = 1) -> float:
    """Of claims, over so many parts; before each of them the topic is topped up to PLAIN jobs, if it is named."""
    jobs, seconds = 0, 0.0
    await clean(bench)
    for _ in range(parts):
        if refilled is not None:
            await top_up(bench, refilled, PLAIN)
        outcome = await bench.drive(load)
        jobs, seconds = jobs + outcome.count, seconds + outcome.seconds
    return jobs / seconds


def _sizes(effort: Effort) -> dict[str, int]:
    return {name: int(pace * effort.seconds) // 3 for name, (_, _, pace) in MANNERS.items()}
