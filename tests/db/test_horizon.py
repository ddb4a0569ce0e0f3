"""Who holds back the horizon, by real holders in the service's own database, and what the facts are taken to mean."""

from __future__ import annotations

import asyncio
import secrets
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import msgspec
import pytest

from app.base.db import health
from app.base.db.health import (
    DEAD_ROWS,
    OLD_SECONDS,
    OLD_TRANSACTIONS,
    HolderKind,
    Horizon,
    HorizonFacts,
    HorizonHolder,
    HorizonLevel,
    Table,
)
from app.base.db.pool import Pools
from app.kernel.claim import consumer
from app.kernel.topics.policy import Policy
from tests.queue.calls import Session, batch, held, put, take, until

SNAPSHOT = "BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1"


@pytest.fixture
async def visitor(database_url: str) -> AsyncIterator[Session]:
    """A connection of somebody else's."""
    connection = await asyncpg.connect(database_url, server_settings={"application_name": "monthly report"})
    yield connection
    connection.terminate()


def holder_of(found: Horizon, pid: int) -> HorizonHolder | None:
    return next((holder for holder in found.holders if holder.pid == pid), None)


async def until_gone(pools: Pools, pid: int) -> None:
    async def gone() -> bool:
        return holder_of(await health.read_horizon(pools.rest), pid) is None

    await until(gone, "the holder is gone")


async def test_what_is_held_is_told_and_goes_away(pools: Pools, visitor: Session) -> None:
    pid = visitor.get_server_pid()
    assert holder_of(await health.read_horizon(pools.rest), pid) is None
    await visitor.execute("BEGIN; SELECT pg_current_xact_id()")
    assert await pools.rest.fetchval("SELECT backend_xmin IS NULL FROM pg_stat_activity WHERE pid = $1", pid)
    assert holder_of(await health.read_horizon(pools.rest), pid) is not None, "a writer without a snapshot"
    await visitor.execute("ROLLBACK")
    await until_gone(pools, pid)

    before = time.time()
    await visitor.execute(SNAPSHOT)
    for _ in range(3):
        await pools.rest.execute("SELECT pg_current_xact_id()")

    found = await health.read_horizon(pools.rest)
    holder = holder_of(found, pid)
    assert holder is not None
    assert (holder.kind, holder.application, holder.own) == (HolderKind.SESSION, "monthly report", False)
    assert (holder.state, holder.query) == ("idle in transaction", SNAPSHOT)
    assert holder.database == await visitor.fetchval("SELECT current_database()")
    assert holder.user == await visitor.fetchval("SELECT current_user::text")
    assert holder.xmin_age >= 3
    assert abs((holder.since or 0) - before * 1000) < 30_000
    assert 0 <= (-1 if holder.age_s is None else holder.age_s) < 60
    assert holder.command == f"SELECT pg_terminate_backend({pid});"
    assert found.position is not None
    assert found.position.xmin_age >= holder.xmin_age
    assert (found.healthy, found.limited, found.hint) == (True, False, None)

    await pools.rest.execute(holder.command)
    await until_gone(pools, pid)


async def test_a_long_statement_is_cut_and_its_wait_is_told(pools: Pools, visitor: Session) -> None:
    statement = f"/* {'x' * 500} */ SELECT pg_sleep(60)"
    asleep = asyncio.create_task(visitor.execute(statement))

    async def waits() -> bool:
        found = holder_of(await health.read_horizon(pools.rest), visitor.get_server_pid())
        return found is not None and (found.query, found.wait) == (statement[:200], "Timeout: PgSleep")

    await until(waits, "the statement sleeps")
    await pools.rest.execute("SELECT pg_terminate_backend($1)", visitor.get_server_pid())
    with pytest.raises(asyncpg.PostgresError):
        await asleep


async def test_a_session_of_the_service_is_told_apart_and_another_database_holds_nothing_back_here(
    pools: Pools, new_database: Callable[[], Awaitable[str]]
) -> None:
    elsewhere = await asyncpg.connect(await new_database())
    await elsewhere.execute(SNAPSHOT)
    async with pools.hot.acquire() as connection, connection.transaction():
        await connection.execute("SELECT pg_current_xact_id()")
        found = await health.read_horizon(pools.rest)
        holder = holder_of(found, connection.get_server_pid())
        assert holder is not None
        assert (holder.own, holder.command) == (True, None)
        assert holder_of(found, elsewhere.get_server_pid()) is None
    elsewhere.terminate()


async def test_a_running_vacuum_is_no_holder(pools: Pools, visitor: Session) -> None:
    """PostgreSQL leaves its snapshot out, though pg_stat_activity shows one."""
    table = f"public.v{secrets.token_hex(4)}"
    await visitor.execute(f"CREATE TABLE {table} AS SELECT repeat('x', 500) FROM generate_series(1, 5000)")
    await visitor.execute("SET vacuum_cost_delay = 100; SET vacuum_cost_limit = 1")
    vacuum = asyncio.create_task(visitor.execute(f"VACUUM {table}"))
    running = """
        SELECT EXISTS (SELECT FROM pg_stat_progress_vacuum JOIN pg_stat_activity USING (pid)
                       WHERE pid = $1 AND backend_xmin IS NOT NULL)
    """

    async def runs() -> bool:
        return bool(await pools.rest.fetchval(running, visitor.get_server_pid()))

    await until(runs, "the vacuum runs")
    assert holder_of(await health.read_horizon(pools.rest), visitor.get_server_pid()) is None
    assert await runs()
    await pools.rest.execute("SELECT pg_cancel_backend($1)", visitor.get_server_pid())
    with pytest.raises(asyncpg.QueryCanceledError):
        await vacuum
    await visitor.execute(f"DROP TABLE {table}")


async def test_rows_that_a_vacuum_had_to_leave_are_counted(
    pools: Pools, visitor: Session, topic: str, make_queue: Callable[..., Awaitable[Policy]]
) -> None:
    policy = await make_queue(topic)
    await pools.rest.execute("VACUUM holdfast.jobs")
    await put(pools.rest, policy, batch(300))
    await visitor.execute(SNAPSHOT)
    jobs = await take(pools.rest, policy, 300)
    await consumer.ack(pools.rest, policy.topic, [held(job) for job in sorted(jobs, key=lambda job: job.seq)])

    async def jobs_table() -> Table:
        tables = {table.name: table for table in (await health.read_horizon(pools.rest)).tables}
        assert {"jobs", "lease_events", "lanes", "topics"} <= set(tables)
        assert tables["lease_events"].partitions >= 4
        assert not any(name.startswith("lease_events_") for name in tables)
        return tables["jobs"]

    await pools.rest.execute("VACUUM holdfast.jobs")
    table = await jobs_table()
    assert table.kept_rows == table.dead_rows >= 600  # each was claimed, and then deleted
    assert table.last_vacuum is not None
    await visitor.execute("ROLLBACK")
    await until_gone(pools, visitor.get_server_pid())

    async def vacuumed() -> bool:  # another test's snapshot may hold them for a moment
        await pools.rest.execute("VACUUM holdfast.jobs")
        return (await jobs_table()).dead_rows < 600

    await until(vacuumed, "they are gone")


async def test_a_role_without_the_grant_is_told_what_it_does_not_see(
    pools: Pools, visitor: Session, connect: Callable[[], Awaitable[Session]]
) -> None:
    role = f'viewer "{secrets.token_hex(4)}"'
    quoted = '"{}"'.format(role.replace('"', '""'))
    limited = await connect()
    await pools.rest.execute(f"CREATE ROLE {quoted}")
    try:
        await visitor.execute(SNAPSHOT)
        await limited.execute(f"SET ROLE {quoted}")
        found = await health.read_horizon(limited)
        holder = holder_of(found, visitor.get_server_pid())
        assert found.limited
        assert found.hint is not None
        assert holder is not None
        assert (holder.application, holder.xmin_age >= 0) == ("monthly report", True)
        assert (holder.query, holder.state, holder.client, holder.since, holder.age_s) == (None,) * 5

        await pools.rest.execute(found.hint[found.hint.index("GRANT") : found.hint.index(";")])
        found = await health.read_horizon(limited)
        assert (found.limited, found.hint) == (False, None)
        assert SNAPSHOT in [holder.query for holder in found.holders]
    finally:
        await limited.close()
        await pools.rest.execute(f"DROP ROLE {quoted}")


HOLDER = HorizonHolder(
    kind=HolderKind.SESSION, pid=4711, application="psql", user="analyst", database="d", client="local", state="active",
    wait=None, query="SELECT 1", since=1_000, age_s=720.5, xmin="99", xmin_age=5, name=None, own=False,
)  # fmt: skip
SLOT = msgspec.structs.replace(HOLDER, kind=HolderKind.SLOT, name="it's", pid=None, since=None, age_s=None)
JOBS = Table("jobs", 0, live_rows=10, dead_rows=1_203_000, last_vacuum=500, last_autovacuum=2_000)


OLD = msgspec.structs.replace(SLOT, xmin_age=OLD_TRANSACTIONS)
BAD, WATCH, OK = HorizonLevel.BAD, HorizonLevel.WATCH, HorizonLevel.OK


@pytest.mark.parametrize(
    ("holder", "table", "level", "verdict"),
    [
        (HOLDER, {}, BAD, "PID 4711 (psql, analyst) has held the horizon for 12 min: 1,203,000 dead rows can't"),
        (HOLDER, {"last_autovacuum": 900}, BAD, "12 min: up to 1,203,000 dead rows can't be removed."),
        (HOLDER, {"dead_rows": DEAD_ROWS + 1}, BAD, "50,001 dead rows can't be removed."),
        (HOLDER, {"dead_rows": DEAD_ROWS}, WATCH, "12 min: 50,000 dead rows so far."),
        (msgspec.structs.replace(HOLDER, age_s=OLD_SECONDS - 0.1), {}, OK, "Nothing holds the horizon back."),
        (OLD, {}, BAD, "slot it's has held the horizon for"),
        (msgspec.structs.replace(OLD, xmin_age=OLD_TRANSACTIONS - 1), {}, WATCH, "for an unknown time: 1,203,000"),
        (SLOT, {"dead_rows": DEAD_ROWS}, OK, "to hold the horizon back for long."),
    ],
)
def test_what_the_facts_mean(holder: HorizonHolder, table: dict[str, int], level: HorizonLevel, verdict: str) -> None:
    jobs = msgspec.structs.replace(JOBS, **table)
    found = health.judge(HorizonFacts(at=0, role="r", limited=False, holders=[holder], tables=[jobs]))
    assert (found.level, found.healthy) == (level, level is not HorizonLevel.BAD)
    assert verdict in found.verdict


def test_without_a_holder_nothing_is_kept() -> None:
    found = health.judge(HorizonFacts(at=0, role="r", limited=False, holders=[], tables=[JOBS]))
    assert (found.position, found.healthy, found.tables[0].kept_rows) == (None, True, 0)
