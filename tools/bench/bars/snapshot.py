"""What somebody else's old snapshot does to claims: nothing that is deleted can be cleaned up while it is held."""

from __future__ import annotations

from contextlib import nullcontext

from tools.bench.bench import Bench, Effort, say
from tools.bench.figures import Figure, Ratio, in_turns
from tools.bench.fill import clean, fill, old_snapshot
from tools.bench.load import Consume

CLIENTS = 8
MOST = 100


async def snapshot(bench: Bench, effort: Effort) -> list[Figure]:
    """Claim and ack of 500,000 jobs while an old snapshot is held, against the same without."""
    jobs = effort.of(500_000, 20_000)
    step = effort.of(20_000, 4_000)
    topic = (await bench.queue("snapshot")).topic
    courses: dict[str, list[list[tuple[int, float]]]] = {"held": [], "free": []}

    async def consume(kind: str) -> float:
        await fill(bench, topic, jobs)
        await clean(bench)
        async with old_snapshot(bench) if kind == "held" else nullcontext():
            load = Consume([bench.service.port], topic.name, CLIENTS, jobs, MOST, ack=True, step=step)
            outcome = await bench.drive(load)
        courses[kind].append(outcome.course)
        say(f"{jobs:,} claimed and acked, snapshot {kind}: {outcome.rate:,.0f} jobs/s")
        return outcome.rate

    rounds = 1 if effort.quick else 2
    rates, bases = await in_turns(rounds, lambda: consume("held"), lambda: consume("free"))
    notes = {kind: [_by_step(course) for course in taken] for kind, taken in courses.items()}
    name = f"claim + ack of {jobs:,}, old snapshot held / free"
    return [Ratio(name, "jobs", rates, bases, 0.90, {"jobs_per_s_over_jobs_done": notes})]


def _by_step(course: list[tuple[int, float]]) -> list[tuple[int, float]]:
    """(jobs done, jobs a second since the point before)."""
    points = [(0, 0.0), *course]
    return [
        (done, round((done - before) / (at - since), 1))
        for (before, since), (done, at) in zip(points, course, strict=False)
    ]
