"""What a scrape shows of PostgreSQL, by things that are done to the server."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Awaitable, Callable
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from app.base.db import health
from app.base.db.pool import Pools, open_pools
from app.base.metrics import MergedNumbers
from app.kernel.counts.levels import Levels
from app.kernel.engine import Engine
from app.kernel.topics.cache import Policies
from tests.queue.calls import Session, until


async def sampled(pools: Pools) -> dict[tuple[str, tuple[str, ...]], float]:
    return {(family.name, labels): value for family, labels, value in await health.read_samples(pools.rest)}


async def test_figures_are_the_servers(pools: Pools) -> None:
    before = await sampled(pools)
    most = int(await pools.rest.fetchval("SHOW max_connections"))
    assert 0 < before["database_connections", ()] < before["database_connections_max", ()] <= most
    assert before["database_bytes", ()] > 5_000_000
    assert 0 < before["database_id_age", ("transaction",)] < 2**31
    assert before["database_deadlocks", ()] >= 0
    assert before["database_blocks", ("cache",)] > 0
    archives = await pools.rest.fetchval("SHOW archive_mode") != "off"
    assert (("database_wal_archive_failing", ()) in before) == archives
    assert before["database_live_rows", ("jobs",)] >= 0
    tables = {labels[0] for name, labels in before if name == "database_dead_rows"}
    assert "lease_events" in tables
    assert not [table for table in tables if "_20" in table], "a day by itself"
    await pools.rest.execute("SELECT pg_logical_emit_message(false, 'test', repeat('x', 100000))")

    async def written() -> bool:
        return (await sampled(pools))["database_wal_bytes", ()] >= before["database_wal_bytes", ()] + 100_000

    await until(written, "the log has moved on")


async def test_who_waits_for_a_lock_is_counted(
    pools: Pools, connect: Callable[[], Awaitable[Session]], topic: str
) -> None:
    holder, waiter = await connect(), await connect()
    key = abs(hash(topic)) % 2**31
    await holder.execute(f"BEGIN; SELECT pg_advisory_xact_lock({key})")
    waiting = asyncio.create_task(waiter.execute(f"SELECT pg_advisory_xact_lock({key})"))

    async def counted() -> bool:
        return (await sampled(pools))["database_lock_waits", ()] >= 1

    await until(counted, "it waits")
    await holder.execute("ROLLBACK")
    await waiting


async def test_a_snapshot_ages(pools: Pools, connect: Callable[[], Awaitable[Session]]) -> None:
    session = await connect()
    await session.execute("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1")
    for _ in range(3):
        await pools.rest.execute("SELECT pg_current_xact_id()")

    async def old() -> bool:
        return (await sampled(pools))["database_horizon_age_seconds", ("session",)] > 0.1

    await until(old, "the snapshot ages")
    now = await sampled(pools)
    assert now["database_horizon_transactions", ("session",)] >= 3
    assert ("database_horizon_transactions", ("replication_slot",)) in now, "0 where there is none"


async def test_topics_are_shown_to_a_role_that_may_not_see_the_server(
    new_database: Callable[[], Awaitable[str]],
) -> None:
    url, role = await new_database(), f"reader_{secrets.token_hex(4)}"
    admin = await asyncpg.connect(url)
    await admin.execute(f"CREATE ROLE {role} LOGIN PASSWORD 'r' IN ROLE pg_read_all_data")
    await admin.execute("REVOKE EXECUTE ON FUNCTION pg_database_size(name) FROM PUBLIC")
    parts = urlsplit(url)
    own = urlunsplit(parts._replace(netloc=f"{role}:r@{parts.netloc.rpartition('@')[2]}"))
    pools = await open_pools(own, hot=2, rest=2, prepared_statements=True)
    engine = Engine(pools, Policies(pools.rest), max_waiting=10)

    async def shown() -> MergedNumbers:
        await engine.core(Levels).refresh()
        merged = MergedNumbers()
        engine.core(Levels).add_to(merged, server=True)
        return merged

    try:
        first = await shown()
        assert first.levels["database_up"] == {(): 1}
        assert "topic_gauges_age_seconds" in first.levels
        assert "database_bytes" not in first.levels
        await admin.execute("GRANT EXECUTE ON FUNCTION pg_database_size(name) TO PUBLIC")
        engine.core(Levels).forget()  # as after five seconds
        assert (await shown()).levels["database_bytes"][()] > 5_000_000
    finally:
        engine.stop()
        await engine.drain()
        await pools.close(5)
        await admin.execute(f"DROP ROLE {role}")
        await admin.close()
