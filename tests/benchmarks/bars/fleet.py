"""What workers that wait cost the database."""

from __future__ import annotations

import asyncio
import time

from tests.benchmarks.bench import Bench, Effort
from tests.benchmarks.figures import Bound, Figure
from tests.benchmarks.waiters import waiting

WORKERS = 200
TOPICS = 10
SETTLED_SECONDS = 3.0  # until all of them wait; a backend tells what it did a second later, when idle ten


async def fleet(bench: Bench, effort: Effort) -> list[Figure]:
    """Statements a second while 200 workers wait, half of them by long poll and half by work stream, on ten topics.

    Counted as transactions of the database by pg_stat_database, less our own: the service runs each statement by
    itself. So autovacuum counts too, and what the service does by itself; the same without the workers is in the JSON.
    """
    topics = [(await bench.queue(f"fleet-{i}")).topic.name for i in range(TOPICS)]
    mine = [topics[i % TOPICS] for i in range(WORKERS // 2)]
    seconds = effort.of(35, 5)  # longer than a long poll
    alone = await _transactions(bench, seconds)
    async with waiting(bench.service.port, polls=mine, streams=mine):
        value = await _transactions(bench, seconds)
    name = f"statements a second of {WORKERS} idle workers"
    return [Bound(name, "a second", value, 5, [value], {"without_workers": alone})]


async def _transactions(bench: Bench, seconds: float) -> float:
    await asyncio.sleep(SETTLED_SECONDS)
    began, before = time.perf_counter(), await _committed(bench)
    await asyncio.sleep(seconds)
    after = await _committed(bench)
    return max(after - before - 1, 0) / (time.perf_counter() - began)


async def _committed(bench: Bench) -> int:
    count: int = await bench.db.fetchval(
        "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
    )
    return count
