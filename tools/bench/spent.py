"""Where the processor's time goes in a job's cycle, in µs a job: over HTTP by process, and of PostgreSQL by verb.

Times are the scheduler's own, of all threads of a process, so that what else a machine does is not in them, but for
what it takes away of caches. Linux only. `python -m tools.bench.spent`; docs/benchmarks.md has what it said.
"""

from __future__ import annotations

import argparse
import os
import statistics
import time
from collections import defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import uvloop

from app.kernel.claim import consumer
from app.kernel.claim.consumer import Slots
from app.kernel.enqueue import producer
from app.kernel.model import Batch, Lane, Reach
from app.kernel.settle.results import AckCounts
from tests.queue import calls
from tools.bench.bench import Bench, running
from tools.bench.peers.drivers.holdfast import Holdfast
from tools.bench.peers.drivers.protocol import Meter

CONNECTIONS: Final = 4
LEASE_MS: Final = 3_600_000
SERVER_PROCESSES: Final = "SELECT pid, backend_type FROM pg_stat_activity WHERE pid <> pg_backend_pid()"


def ran(pid: int) -> float:
    """For how many seconds a process has run; 0 for one that is gone."""
    try:
        threads = list(Path(f"/proc/{pid}/task").iterdir())
        return sum(int((thread / "schedstat").read_text().split()[0]) for thread in threads) / 1e9
    except FileNotFoundError:
        return 0.0


async def over_http(bench: Bench, jobs: int, batch: int) -> dict[str, float]:
    """Of a whole cycle over HTTP, by process; autovacuum's workers as far as they still run at the end."""
    policy = await bench.queue("spent")
    driver = Holdfast(batch, CONNECTIONS)
    await driver.prepare(f"http://127.0.0.1:{bench.service.port}/v0/topics/{policy.topic.name}")
    payloads = [{"x": os.urandom(bench.payload // 2).hex()} for _ in range(jobs)]
    before, began = await _by_process(bench), time.perf_counter()
    await driver.cycle(payloads, Meter(jobs, 1, 600), None)
    took, after = time.perf_counter() - began, await _by_process(bench)
    spent = {kind: 1e6 * (after[kind] - before.get(kind, 0.0)) / jobs for kind in after}
    return {"by the clock": 1e6 * took / jobs, **{kind: us for kind, us in spent.items() if us >= 0.1}}


async def by_verb(bench: Bench, jobs: int, batch: int) -> dict[str, float]:
    """Of each verb alone, on one connection without HTTP: PostgreSQL's, and this process', which is the service's core
    and the driver."""
    policy = await bench.queue("spent")
    data = b'{"x":"%b"}' % os.urandom(bench.payload // 2).hex().encode()
    spent: dict[str, float] = {}
    async with bench.pools.hot.acquire() as db:
        backend = await db.fetchval("SELECT pg_backend_pid()")

        def note(verb: str, begun: tuple[float, float]) -> tuple[float, float]:
            now = ran(backend), time.process_time()
            spent[f"{verb}, PostgreSQL"], spent[f"{verb}, core"] = (
                1e6 * (b - a) / jobs for a, b in zip(begun, now, strict=True)
            )
            return ran(backend), time.process_time()

        await producer.add_lanes(db, policy.topic, [Lane("", 0)])  # once, as the service does
        at = ran(backend), time.process_time()
        for _ in range(jobs // batch):
            await producer.enqueue(db, policy.topic, Batch(payloads=[data] * batch), ttl_ms=0)
        at, after, taken = note("enqueue", at), 0, []
        for _ in range(jobs // batch):
            reach, slots = Reach(Lane("", 0), after, None), Slots([0] * batch, ["bench"], [LEASE_MS])
            claimed = await consumer.claim(db, policy.topic, policy.budget, [reach], slots)
            after = claimed.seen[0].ready or after  # as a cursor has it
            taken.append(claimed.jobs[0])
        note("claim", at)
        held = [[calls.held(job, "bench") for job in sorted(some, key=lambda job: job.seq)] for some in taken]
        at = ran(backend), time.process_time()
        for some in held:
            await consumer.ack(db, policy.topic, some, AckCounts())
        note("ack", at)
    return spent


async def _by_process(bench: Bench) -> dict[str, float]:
    times = defaultdict(float, {"service": ran(bench.service.pid), "load": time.process_time()})
    for row in await bench.db.fetch(SERVER_PROCESSES):
        kind = row["backend_type"]
        times["PostgreSQL's sessions" if kind == "client backend" else f"PostgreSQL's {kind}"] += ran(row["pid"])
    return times


def table(rounds: list[Mapping[str, float]]) -> str:
    """The medians, the dearest first."""
    names = {name for one in rounds for name in one}
    medians = {name: statistics.median(one.get(name, 0.0) for one in rounds) for name in names}
    return "\n".join(f"{name:32} {us:6.1f}" for name, us in sorted(medians.items(), key=lambda pair: -pair[1]))


async def main(jobs: int, batch: int, rounds: int, payload: int) -> None:
    """Measure, and say what came out."""
    async with running(payload, None) as bench:
        await over_http(bench, jobs // 10, batch)  # warm
        print(f"µs a job over HTTP, batches of {batch}")
        print(table([await over_http(bench, jobs, batch) for _ in range(rounds)]), flush=True)
        print(f"\nµs a job of each verb alone, batches of {batch}")
        print(table([await by_verb(bench, jobs, batch) for _ in range(rounds)]))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tools.bench.spent", description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=100_000, help="in each round (100000)")
    parser.add_argument("--batch", type=int, default=500, help="jobs a request (500)")
    parser.add_argument("--rounds", type=int, default=3, help="of which the medians count (3)")
    parser.add_argument("--payload", type=int, default=256, help="bytes of a job's data (256)")
    asked = parser.parse_args()
    uvloop.run(main(asked.jobs, asked.batch, asked.rounds, asked.payload))
