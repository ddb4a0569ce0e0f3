"""The days of tables by day: made ahead, dropped when they are old, by any number of processes, in nobody's way."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest

from app.base.db.pool import Pools, open_pools
from app.features.upkeep import sweeps
from app.kernel import ledger, purges
from app.kernel.topics import store
from app.kernel.topics.policy import DEFAULTS, AskedSettings, Policy, resolve
from tests.engine.machines import new_machine
from tests.queue.calls import batch, put, until
from tests.reapers.days import days_ago


@pytest.fixture
async def fresh(new_database: Callable[[], Awaitable[str]]) -> AsyncIterator[Pools]:
    """Pools on a database of the test's own: it loses its ledger's days."""
    url = await new_database()
    pools = await open_pools(url, hot=4, rest=6, prepared_statements=True)
    yield pools
    await pools.close(5)


async def days(pools: Pools, table: str = "lease_events") -> list[int]:
    """The days that a table has partitions for, counted from today."""
    rows = await pools.rest.fetch(
        """
        SELECT to_date(right(c.relname, 8), 'YYYYMMDD') - (clock_timestamp() AT TIME ZONE 'UTC')::date AS day
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
        WHERE i.inhparent = to_regclass('holdfast.' || $1) ORDER BY 1
        """,
        table,
    )
    return [row["day"] for row in rows]


async def sweep(pools: Pools) -> int:
    machine = new_machine(pools)
    return await sweeps.partitions(machine.pools, machine.engine)


async def test_they_are_made_ahead_once(fresh: Pools, monkeypatch: pytest.MonkeyPatch) -> None:
    """While verbs are under way, too; and a day is UTC's."""
    assert await days(fresh) == [0, 1, 2, 3]
    assert await sweep(fresh) == 0
    monkeypatch.setattr(sweeps, "PARTITIONS_AHEAD", 9)
    async with fresh.hot.acquire() as db, db.transaction():
        await db.execute(
            "INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries)"
            " VALUES ('t', 1, 1, 'enqueued', 0)"
        )
        # Bounded by the hot pool's five seconds of a transaction that idles.
        assert sum(await asyncio.gather(*(sweep(fresh) for _ in range(4)))) == 18
    for table in ("lease_events", "archive", "results"):
        assert await days(fresh, table) == list(range(10))
    bounds = await fresh.rest.fetch(
        """
        SELECT c.relname, pg_get_expr(c.relpartbound, c.oid) AS bound
        FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = 'holdfast.lease_events'::regclass
        """
    )
    for row in bounds:
        year, month, day = row["relname"][-8:-4], row["relname"][-4:-2], row["relname"][-2:]
        assert f"FROM ('{year}-{month}-{day} 00:00:00+00')" in row["bound"]


async def test_they_are_dropped_once(fresh: Pools) -> None:
    """Days ahead stand for days past: what counts is which come before the first to be kept."""
    for kept in (0, sweeps.EVENTS_KEPT):
        assert await fresh.rest.fetchval(purges._DROP, "lease_events", kept, False) == 0, "none is old"
    async with fresh.rest.acquire() as first:
        dropping = first.transaction()
        await dropping.start()
        assert await first.fetchval(purges._DROP, "lease_events", -3, False) == 3
        second = asyncio.create_task(fresh.rest.fetchval(purges._DROP, "lease_events", -3, False))
        waits = "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)))"
        pid = first.get_server_pid()
        await until(lambda: fresh.rest.fetchval(waits, pid), "the second waits")
        await dropping.commit()
    assert await second == 0
    assert await days(fresh) == [3]


async def test_dropping_gives_way_to_a_long_reader(fresh: Pools) -> None:
    """A lock that is waited for stops every verb behind it: it is given up soon, and tried again another time."""
    async with fresh.rest.acquire() as reader, reader.transaction():
        await reader.fetchval("SELECT count(*) FROM holdfast.lease_events")
        with pytest.raises(asyncpg.LockNotAvailableError):
            await asyncio.wait_for(fresh.rest.fetchval(purges._DROP, "lease_events", -1, False), 10)
        await asyncio.wait_for(reader.fetchval("SELECT count(*) FROM holdfast.lease_events"), 10)
    assert await days(fresh) == [0, 1, 2, 3]
    assert await fresh.rest.fetchval(purges._DROP, "lease_events", -1, False) == 1


async def test_a_new_day_of_the_archive_has_its_index_and_keeps_payloads_as_they_are(fresh: Pools) -> None:
    """And no table but one by day has days."""
    with pytest.raises(asyncpg.PostgresError):
        await fresh.rest.fetchval(sweeps._CREATE_PARTITIONS, "topics", 1)
    for table in ("topics", "none"):
        assert await fresh.rest.fetchval(purges._DROP, table, -9, False) == 0
    assert await fresh.rest.fetchval(sweeps._CREATE_PARTITIONS, "archive", 4) == 1
    made = await fresh.rest.fetch(
        """
        SELECT a.attstorage::text AS storage,
               (SELECT count(*) FROM pg_index i WHERE i.indrelid = c.oid AND i.indisvalid) AS indexes
        FROM pg_inherits h JOIN pg_class c ON c.oid = h.inhrelid JOIN pg_attribute a ON a.attrelid = c.oid
        WHERE h.inhparent = 'holdfast.archive'::regclass AND a.attname = 'payload'
        """
    )
    assert [tuple(row) for row in made] == [("e", 2)] * 5


async def test_a_day_of_the_ledger_goes_with_the_topic_that_wants_it_longest(fresh: Pools) -> None:
    machine = new_machine(fresh)
    day = 86_400_000

    async def make(name: str, event_ttl_ms: int) -> Policy:
        asked = AskedSettings(type="queue", event_ttl_ms=event_ttl_ms)
        await store.put(fresh.rest, name, resolve(name, asked))
        policy = await store.get(fresh.rest, name, DEFAULTS)
        assert policy is not None
        return policy

    week, months, ever = [await make(*one) for one in (("a", 7 * day), ("b", 60 * day), ("c", 0))]
    for policy in (week, months, ever):
        await put(fresh.rest, policy, batch())
    await days_ago(fresh, 9, "lease_events", "at")

    async def told() -> list[int]:
        await sweeps.retention(fresh, machine.engine)
        return [len(await ledger.history(fresh.rest, policy.topic, 1)) for policy in (week, months, ever)]

    assert await told() == [0, 1, 1], "hidden from the first, kept for the others"
    await store.delete(fresh.rest, "c", if_empty=False)
    assert (await told())[:2] == [0, 1], "kept for the second"
    await make("b", 8 * day + 1)
    assert (await told())[:2] == [0, 0], "hidden"
    assert -9 in await days(fresh), "and still within a day of it"
    await make("b", 7 * day)
    await told()
    assert -9 not in await days(fresh)
    await make("b", 60 * day)
    assert (await told())[:2] == [0, 0], "gone for good"
