"""What workers that wait cost the database."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from typing import TYPE_CHECKING

import asyncpg

import app.main  # noqa: F401  (statements have their names once it is loaded)
from app.base.db import schema
from app.kernel.topics import store
from app.kernel.topics.policy import AskedSettings, resolve
from tools.bench.bench import Bench, Effort, embedded, serving
from tools.bench.figures import Bound, Figure
from tools.bench.waiters import waiting
from tools.bench.wire import Wire, counted

if TYPE_CHECKING:
    from app.base.db.pool import Pool

WORKERS = 200
TOPICS = 10
SETTLED_SECONDS = 3.0  # until all of them wait


async def fleet(_bench: Bench, effort: Effort) -> list[Figure]:
    """Statements a second while 200 workers wait, half of them by long poll and half by work stream, on ten topics.

    Counted on their way, those that begin and end transactions too, from a service that is alone with a PostgreSQL of
    its own: so what the service does by itself counts as well, and autovacuum, which nobody sends, does not. The same
    without the workers, which statements they were, and the transactions that PostgreSQL counted are in the JSON.
    """
    seconds = effort.of(60, 5)  # as long as most sweeps rest: each has its turn
    topics = [f"fleet-{i}" for i in range(TOPICS)]
    mine = [topics[i % TOPICS] for i in range(WORKERS // 2)]
    async with embedded() as url, counted(url) as (through, wire):
        await schema.upgrade(url)
        async with serving(through) as service, asyncpg.create_pool(url, min_size=1, max_size=1) as db:
            for topic in topics:
                await store.put(db, topic, resolve(topic, AskedSettings(type="queue", durable=True)))
            alone, _, _ = await _rates(wire, db, seconds)
            async with waiting(service.port, polls=mine, streams=mine):
                value, transactions, which = await _rates(wire, db, seconds)
    notes = {"without_workers": alone, "transactions": transactions, "statements": which}
    return [Bound(f"statements a second of {WORKERS} idle workers", "a second", value, 5, [value], notes)]


async def _rates(wire: Wire, db: Pool, seconds: float) -> tuple[float, float, dict[str, float]]:
    """Statements a second, transactions a second, and which statements."""
    await asyncio.sleep(SETTLED_SECONDS)
    began, sent, before = time.perf_counter(), Counter(wire.sent), await _transactions(db)
    await asyncio.sleep(seconds)
    transactions = await _transactions(db) - before - 1
    new, took = wire.sent - sent, time.perf_counter() - began
    which = {name: round(count / took, 3) for name, count in new.most_common()}
    return new.total() / took, transactions / took, which


async def _transactions(db: Pool) -> int:
    """As pg_stat_database has them, autovacuum's too: a backend tells what it did a second later, when idle ten."""
    count: int = await db.fetchval(
        "SELECT xact_commit + xact_rollback FROM pg_stat_database WHERE datname = current_database()"
    )
    return count
