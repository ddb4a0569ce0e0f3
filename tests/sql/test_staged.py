"""What many connections stage becomes jobs in one transaction: once, whole, and only what the commit names."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Awaitable, Callable
from pathlib import Path

import asyncpg
import pytest

from app.base.db import schema
from app.base.db.embedded import EmbeddedPostgres
from app.base.db.pool import Pools
from app.features.jobs.sweeps import delete_ended
from app.kernel.engine import Engine
from app.kernel.topics import store
from app.kernel.topics.policy import AskedSettings, Policy, resolve
from tests.queue.calls import Session, take, until
from tests.queue.tallies import tallied
from tests.sql.conftest import Db, blocked

MakeQueue = Callable[..., Awaitable[Policy]]


@pytest.fixture
async def run(topic: str) -> str:
    return f"run of {topic}"


async def stage(sql: Db, run: str, topic: str, *payloads: str, first: int = 0, **columns: object) -> int:
    """Stage rows as one try does: its number."""
    attempt = int(await sql.fetchval("SELECT holdfast.open_stage($1)", run))
    await stage_more(sql, attempt, topic, *payloads, first=first, **columns)
    return attempt


async def stage_more(sql: Db, attempt: int, topic: str, *payloads: str, first: int = 0, **columns: object) -> None:
    await sql.copy_records_to_table(
        "staged",
        schema_name="holdfast",
        columns=["attempt", "place", "topic", "payload_text", *columns],
        records=[(attempt, first + n, topic, text, *columns.values()) for n, text in enumerate(payloads)],
    )


async def commit(sql: Db, run: str, attempts: list[int], rows: int, *, write: str = "", batch: int = 0) -> bool:
    done: bool = await sql.fetchval(
        "SELECT holdfast.commit_stages($1, $2, $3, $4, $5)", run, write or run, batch, attempts, rows
    )
    return done


async def staged(db: Session, run: str) -> list[tuple[int, int]]:
    """What tries of a run are known, and how many rows of each are there."""
    rows = await db.fetch(
        "SELECT attempt, (SELECT count(*) FROM holdfast.staged s WHERE s.attempt = t.attempt) AS rows "
        "FROM holdfast.stages t WHERE run = $1 ORDER BY 1",
        run,
    )
    return [(row["attempt"], row["rows"]) for row in rows]


async def seqs(db: Session, policy: Policy) -> list[tuple[int, bytes]]:
    found = await db.fetch("SELECT seq, payload FROM holdfast.jobs WHERE topic = $1 ORDER BY seq", policy.topic.name)
    return [(row["seq"], row["payload"]) for row in found]


async def test_the_tries_that_are_named_become_jobs_and_no_others(
    sql: Db, db: Session, queue: Policy, run: str
) -> None:
    one = await stage(sql, run, queue.topic.name, "1", "2")
    slower = await stage(sql, run, queue.topic.name, "1", "2")  # the same task, run beside it
    two = await stage(sql, run, queue.topic.name, "3", first=1 << 32)
    assert await take(db, queue, 9) == []
    assert await commit(sql, run, [two, one], 3)
    assert await seqs(db, queue) == [(1, b"1"), (2, b"2"), (3, b"3")]
    assert await tallied(db, queue)
    assert await staged(db, run) == [(slower, 2)]
    assert await sql.fetchval("SELECT holdfast.drop_stages($1, 100)", run) == 2
    assert await staged(db, run) == []
    assert len(await seqs(db, queue)) == 3


async def test_a_commit_that_is_repeated_changes_nothing(sql: Db, db: Session, queue: Policy, run: str) -> None:
    for batch, committed in ((3, True), (3, False), (2, False), (4, True)):
        one = await stage(sql, run, queue.topic.name, str(batch))
        assert await commit(sql, run, [one], 1, write=run, batch=batch) is committed
        await sql.fetchval("SELECT holdfast.drop_stages($1, 100)", run)
    assert await seqs(db, queue) == [(1, b"3"), (2, b"4")]
    assert await staged(db, run) == []
    assert await commit(sql, run, [], 0, write=f"{run} of nothing")
    assert not await commit(sql, run, [], 0, write=f"{run} of nothing")


@pytest.mark.parametrize("rolls_back", [False, True])
async def test_of_two_commits_at_once_one_counts(
    user: Callable[[], Awaitable[Db]], db: Session, queue: Policy, run: str, *, rolls_back: bool
) -> None:
    first, second = await user(), await user()
    one, two = [await stage(first, f"{run} {n}", queue.topic.name, str(n)) for n in range(2)]
    transaction = first.transaction()
    await transaction.start()
    assert await commit(first, f"{run} 0", [one], 1, write=run)
    other = asyncio.create_task(commit(second, f"{run} 1", [two], 1, write=run))
    await until(lambda: blocked(db, second), "the second one waits")
    await (transaction.rollback() if rolls_back else transaction.commit())
    assert await other is rolls_back
    assert [payload for _, payload in await seqs(db, queue)] == [b"1" if rolls_back else b"0"]
    assert await staged(db, f"{run} 0") == ([(one, 1)] if rolls_back else [])


async def test_what_is_not_all_there_is_refused(sql: Db, db: Session, queue: Policy, run: str) -> None:
    one = await stage(sql, run, queue.topic.name, "1", "2")
    other = await stage(sql, f"{run} b", queue.topic.name, "1")
    for attempts, rows in (([one], 3), ([one], 1), ([one, other], 3), ([one, one + 1_000_000], 2)):
        with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError, match="are missing"):
            await commit(sql, run, attempts, rows)
    assert await seqs(db, queue) == []
    assert await commit(sql, run, [one], 2)


async def test_a_try_that_was_given_up_stages_no_more(
    user: Callable[[], Awaitable[Db]], db: Session, queue: Policy, run: str
) -> None:
    sql, other = await user(), await user()
    one = await stage(sql, run, queue.topic.name, "1")
    transaction = sql.transaction()
    await transaction.start()
    await stage_more(sql, one, queue.topic.name, "2", first=1)  # it holds its place up to here, however long that is
    assert await other.fetchval("SELECT holdfast.drop_stages($1, 100)", run) == 0
    await transaction.commit()
    assert await other.fetchval("SELECT holdfast.drop_stages($1, 1)", run) == 1
    assert await other.fetchval("SELECT holdfast.drop_stages($1, 100)", run) == 1
    with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError, match="was given up"):
        await stage_more(sql, one, queue.topic.name, "3", first=2)
    assert await seqs(db, queue) == []


async def test_rows_that_queues_refuse_are_refused_as_they_are_staged(sql: Db, queue: Policy, run: str) -> None:
    one = await stage(sql, run, queue.topic.name)
    with pytest.raises(asyncpg.CheckViolationError, match="priority: 0 to 9"):
        await stage_more(sql, one, queue.topic.name, "1", priority=10)
    with pytest.raises(asyncpg.PostgresError, match=r"row 2 for topic .* not JSON"):
        await stage_more(sql, one, queue.topic.name, "1", "{")
    with pytest.raises(asyncpg.CheckViolationError, match="kept for dead letters"):
        await stage_more(sql, one, "a.dlq", "1")


async def test_who_deletes_or_drops_can_not_make_jobs(sql: Db, db: Session, queue: Policy, run: str) -> None:
    one = await stage(sql, run, queue.topic.name, "1")
    await db.execute("DELETE FROM holdfast.staged WHERE attempt = $1", one)
    assert await seqs(db, queue) == []
    await stage_more(sql, one, queue.topic.name, "1")
    await sql.execute("SET holdfast.commits = 'on'")
    assert await sql.fetchval("SELECT holdfast.drop_stages($1, 100)", run) == 1
    assert await seqs(db, queue) == []


async def test_a_crash_of_postgresql_empties_it_and_the_commit_says_so(tmp_path: Path) -> None:
    postgres = EmbeddedPostgres(tmp_path, connections=20)
    try:
        url = postgres.start()
        await schema.upgrade(url)
        async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
            await store.put(pool, "orders", resolve("orders", AskedSettings(type="queue")))
        sql = await asyncpg.connect(url)
        one = await stage(sql, "run", "orders", "1", "2")
        sql.terminate()
        assert postgres.pid is not None
        os.kill(postgres.pid, signal.SIGKILL)
        while postgres.alive():
            await asyncio.sleep(0.01)
        sql = await asyncpg.connect(postgres.restart())
        with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError, match=r"of the 2 rows .* are missing"):
            await commit(sql, "run", [one], 2)
        again = await stage(sql, "run", "orders", "1", "2")
        assert again > one
        assert await commit(sql, "run", [again], 2)
        sql.terminate()
    finally:
        postgres.stop()


async def test_what_is_singly_placed_stands_in_the_order_of_its_places(
    sql: Db, db: Session, topic: str, make_queue: MakeQueue, run: str
) -> None:
    fifo = await make_queue(topic + ".fifo")
    second = await stage(sql, run, fifo.topic.name, "3", "4", first=1 << 32, group="g")
    first = await stage(sql, run, fifo.topic.name, "1", "2", group="g")
    assert await commit(sql, run, [second, first], 4)
    assert await seqs(db, fifo) == [(1, b"1"), (2, b"2"), (3, b"3"), (4, b"4")]
    states = await db.fetch("SELECT state::text FROM holdfast.jobs WHERE topic = $1 ORDER BY seq", fifo.topic.name)
    assert [row["state"] for row in states] == ["ready", "blocked", "blocked", "blocked"]
    assert await tallied(db, fifo)


async def test_others_who_add_to_a_bounded_queue_wait_for_the_end_alone(
    user: Callable[[], Awaitable[Db]], db: Session, topic: str, make_queue: MakeQueue, run: str
) -> None:
    """Rows go in before the lock that whoever counts a queue takes: who has it does not keep them waiting."""
    queue = await make_queue(topic, max_depth=3)
    sql, adds = await user(), await user()
    one = await stage(sql, run, topic, "1", "2")
    async with adds.transaction():
        await adds.execute("INSERT INTO holdfast.inbox (topic, payload_text) VALUES ($1, '0')", topic)
        going = asyncio.create_task(commit(sql, run, [one], 2))
        await until(lambda: blocked(db, sql), "it waits")
        assert await db.fetchval(f"SELECT last_value FROM holdfast.seq_{queue.topic.id}") == 3
    assert await going
    two = await stage(sql, run, topic, "4")
    with pytest.raises(asyncpg.ConfigurationLimitExceededError, match="has no room"):
        await commit(sql, run, [two], 1, batch=1)
    assert len(await seqs(db, queue)) == 3
    assert await tallied(db, queue)


async def test_a_drained_topic_takes_nothing(sql: Db, db: Session, pools: Pools, queue: Policy, run: str) -> None:
    one = await stage(sql, run, queue.topic.name, "1")
    await db.execute("UPDATE holdfast.topics SET draining = true WHERE name = $1", queue.topic.name)
    with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError, match="is draining"):
        await commit(sql, run, [one], 1)
    assert await staged(db, run) == [(one, 1)]


async def test_a_day_later_leftovers_are_swept(
    sql: Db, db: Session, pools: Pools, *, engine: Engine, queue: Policy, run: str
) -> None:
    old = await stage(sql, run, queue.topic.name, "1", "2")
    await db.execute("UPDATE holdfast.stages SET started_at = started_at - interval '25 hours' WHERE attempt = $1", old)
    new = await stage(sql, run, queue.topic.name, "3")
    assert await commit(sql, run, [new], 1)
    new = await stage(sql, run, queue.topic.name, "4")
    await delete_ended(pools, engine)
    assert await staged(db, run) == [(new, 1)]
    await db.execute("UPDATE holdfast.writes SET committed_at = committed_at - interval '367 days'")
    await delete_ended(pools, engine)
    assert await db.fetch("SELECT FROM holdfast.writes") == []


async def test_nothing_is_scanned(user: Callable[[], Awaitable[Db]], db: Session, queue: Policy, run: str) -> None:
    """Rows that are dead cost nothing, and wrong statistics neither."""
    sql = await user()
    many = await stage(sql, run, queue.topic.name, *["1"] * 5000)
    assert await sql.fetchval("SELECT holdfast.drop_stages($1, 10000)", run) == 5000
    assert many
    async with sql.transaction():
        one = await stage(sql, run, queue.topic.name, "1", "2")
        await commit(sql, run, [one], 2)
        await sql.fetchval("SELECT holdfast.drop_stages($1, 100)", run)
        await sql.fetchval("SELECT holdfast.drop_stages(NULL, 100)")
        scanned = await sql.fetch(
            "SELECT relname FROM pg_stat_xact_user_tables WHERE schemaname = 'holdfast' AND seq_scan > 0 "
            "AND relname <> 'defaults'"  # which has one row
        )
    assert [found["relname"] for found in scanned] == []
