"""Statements on their way are all counted, by their files' names."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from app.base.db.pool import open_pools
from app.kernel.topics import store
from app.kernel.topics.policy import DEFAULTS
from tools.bench.wire import counted


async def test_it_counts_what_is_sent(new_database: Callable[[], Awaitable[str]]) -> None:
    async with counted(await new_database()) as (url, wire):
        pools = await open_pools(url, hot=2, rest=1, prepared_statements=True)
        try:
            await pools.rest.fetchval("SELECT 1")
            wire.sent.clear()
            for _ in range(3):
                await store.get(pools.rest, "none", DEFAULTS)
            async with pools.rest.acquire() as db, db.transaction():
                await db.execute("SELECT 2")
                await db.fetchval("SELECT $1::text", "x" * 100_000)
        finally:
            await pools.close(5)
    expected = {"topics/get": 3, "BEGIN;": 1, "SELECT 2": 1, "SELECT $1::text": 1, "COMMIT;": 1}
    assert {name: wire.sent[name] for name in expected} == expected
