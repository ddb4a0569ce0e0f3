"""The ledger as a stream: nothing missed and nothing twice, whoever commits when. Without a Spark session: the reader's
own methods, called as Spark calls them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta

import asyncpg
import pytest
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from spark.errors import Mistake
from spark.source.event_stream import whole
from tests.queue.calls import Session
from tests.spark.queries import Query
from tests.spark.test_pages import everything, reader

Connect = Callable[[], Awaitable[Session]]
ENQUEUE = "INSERT INTO holdfast.inbox (topic, payload_text) SELECT $1, '1' FROM generate_series(1, $2)"
LEDGER = "SELECT seq FROM holdfast.lease_events WHERE topic = $1 ORDER BY seq"


@pytest.fixture
async def queue(topic: str, make_queue: Callable[..., Awaitable[object]]) -> str:
    await make_queue(topic)
    return topic


async def seqs(connection: Session, topic: str) -> list[int]:
    """What the ledger has."""
    return [row["seq"] for row in await connection.fetch(LEDGER, topic)]


async def passed(db: Session) -> None:
    """Until the horizon has passed all that is committed by now: others work on this server, too."""
    last = await db.fetchval("SELECT pg_current_xact_id()::text::bigint")
    xmin = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
    async with asyncio.timeout(30):
        while await db.fetchval(xmin) <= last:
            await asyncio.sleep(0.01)


async def test_a_transaction_that_commits_late_is_read_late_and_once(
    database_url: str, connect: Connect, queue: str
) -> None:
    """M4: the later transaction commits first; the earlier one has the lower seq, the lower id and the lower time."""
    early, late = await connect(), await connect()
    query = Query(database_url, topic=queue)
    await asyncio.to_thread(query.drain)
    slow = early.transaction()
    await slow.start()
    await early.execute(ENQUEUE, queue, 1)
    await late.execute(ENQUEUE, queue, 1)
    await asyncio.to_thread(query.drain)
    assert query.seqs() == [], "what an older transaction may still precede is not read"
    await slow.commit()
    await passed(late)
    await asyncio.to_thread(query.drain)
    assert query.seqs() == [1, 2]
    assert {row["topic"] for row in query.rows} == {queue}


async def test_a_transaction_that_begins_first_and_gets_its_id_last(
    database_url: str, connect: Connect, queue: str
) -> None:
    """Its seqs were drawn before those that are read meanwhile."""
    early, late = await connect(), await connect()
    query = Query(database_url, topic=queue)
    await asyncio.to_thread(query.drain)
    slow = early.transaction()
    await slow.start()
    drawn = await early.fetchval(
        "SELECT nextval(format('holdfast.seq_%s', id)::regclass) FROM holdfast.topics WHERE name = $1", queue
    )
    await late.execute(ENQUEUE, queue, 3)
    await asyncio.to_thread(query.drain)
    await early.execute(ENQUEUE, queue, 2)
    await slow.commit()
    await passed(late)
    await asyncio.to_thread(query.drain)
    assert drawn not in query.seqs()
    assert query.seqs() == await seqs(late, queue)


async def test_twelve_writers_rollbacks_and_restarts(
    monkeypatch: pytest.MonkeyPatch, database_url: str, connect: Connect, queue: str
) -> None:
    """M3, M5: transactions of all lengths, some rolled back, savepoints too; restarts in a batch."""
    monkeypatch.setattr("spark.source.event_stream.SLACK", timedelta(0))  # what is for clocks must not hide a fault
    query = Query(database_url, topic=queue, rows_per_batch="1000")
    await asyncio.to_thread(query.drain)
    chance = random.Random(5)
    done = asyncio.Event()

    async def write(connection: Session) -> None:
        while not done.is_set():
            transaction = connection.transaction()
            await transaction.start()
            for _ in range(chance.randint(1, 4)):
                savepoint = connection.transaction()
                await savepoint.start()
                await connection.execute(ENQUEUE, queue, chance.randint(1, 20))
                await (savepoint.rollback if chance.random() < 0.2 else savepoint.commit)()
                await asyncio.sleep(chance.random() * 0.02)
            await (transaction.rollback if chance.random() < 0.2 else transaction.commit)()

    writers = [asyncio.create_task(write(await connect())) for _ in range(12)]
    for n in range(28):
        is_lost = n % 7 == 3  # the batch was read, and the driver died before it noted that
        await asyncio.to_thread(query.batch, commits=not is_lost)
        if is_lost:
            query.restart()
    done.set()
    await asyncio.gather(*writers)
    query.restart()
    db = await connect()
    await passed(db)
    await asyncio.to_thread(query.drain)
    written = await seqs(db, queue)
    assert query.seqs() == written
    assert len(written) > 2000
    assert len([rows for rows in query.batches if rows]) > 10
    assert max(query.batches) <= 1000


async def test_batches_are_cut_within_a_transaction(database_url: str, connect: Connect, queue: str) -> None:
    db = await connect()
    query = Query(database_url, topic=queue, rows_per_batch="100", partitions="3", page="30")
    await asyncio.to_thread(query.drain)
    await db.execute(ENQUEUE, queue, 1000)
    await passed(db)
    await asyncio.to_thread(query.batch)
    query.restart()
    await asyncio.to_thread(query.drain)
    assert query.seqs() == list(range(1, 1001))
    assert max(query.batches) <= 100
    assert len(query.batches) <= 25


async def test_it_starts_at_a_time_at_the_beginning_or_now(database_url: str, connect: Connect, queue: str) -> None:
    db = await connect()
    await db.execute(ENQUEUE, queue, 1)
    between = await db.fetchval("SELECT clock_timestamp()")
    await db.execute(ENQUEUE, queue, 1)
    queries = {
        starting: Query(database_url, topic=queue, starting=starting)
        for starting in ("earliest", between.isoformat(), "latest")
    }
    await passed(db)
    for query in queries.values():
        await asyncio.to_thread(query.drain)
    await db.execute(ENQUEUE, queue, 1)
    await passed(db)
    for query in queries.values():
        await asyncio.to_thread(query.drain)
    assert [query.seqs() for query in queries.values()] == [[1, 2, 3], [2, 3], [3]]


async def test_what_is_under_way_when_it_starts_is_before_it_and_not_in_part(
    database_url: str, connect: Connect, queue: str
) -> None:
    early, late = await connect(), await connect()
    slow = early.transaction()
    await slow.start()
    await early.execute(ENQUEUE, queue, 2)
    query = Query(database_url, topic=queue)
    await asyncio.to_thread(query.drain)
    await early.execute(ENQUEUE, queue, 2)
    await late.execute(ENQUEUE, queue, 1)
    await slow.commit()
    await passed(late)
    query.restart()
    await asyncio.to_thread(query.drain)
    assert query.seqs() == [5]


async def test_available_now_ends_although_more_comes(database_url: str, connect: Connect, queue: str) -> None:
    db = await connect()
    await db.execute(ENQUEUE, queue, 50)
    await passed(db)
    query = Query(database_url, topic=queue, starting="earliest", rows_per_batch="20")
    assert isinstance(query.reader, SupportsTriggerAvailableNow)
    query.reader.prepareForTriggerAvailableNow()
    await db.execute(ENQUEUE, queue, 50)
    await asyncio.to_thread(query.drain)
    assert query.seqs() == list(range(1, 51))


async def test_what_does_not_concern_it_costs_no_batch_for_each_trigger(
    database_url: str, connect: Connect, queue: str
) -> None:
    db = await connect()
    query = Query(database_url, topic="another")
    await asyncio.to_thread(query.drain)
    before = query.checkpoint
    await db.execute(ENQUEUE, queue, 10)
    await asyncio.to_thread(query.drain)
    assert query.checkpoint == before


async def test_another_database_is_an_error_and_not_silence(
    database_url: str, new_database: Callable[[], Awaitable[str]], connect: Connect, queue: str
) -> None:
    """RELIABILITY F8c: ids of transactions begin anew; an old offset lies above all new rows."""
    query = Query(database_url, topic=queue)
    await asyncio.to_thread(query.drain)
    query.options["dsn"] = other = await new_database()
    query.restart()
    with pytest.raises(Mistake, match="checkpoint is of another database") as caught:
        query.batch()
    query.options["epoch"] = str(caught.value).rpartition("epoch=")[2].partition(",")[0]
    query.restart()
    query.batch()  # accepted by whom the error told
    db = await asyncpg.connect(other)
    await db.execute("SELECT pg_current_xact_id()")
    await db.close()
    assert query.checkpoint is not None


async def test_a_database_that_was_set_back_is_an_error(database_url: str, queue: str) -> None:
    """As a copy of its volume from before: of the same cluster and timeline, with fewer transactions."""
    query = Query(database_url, topic=queue)
    query.batch()
    assert query.checkpoint is not None
    for name in "tx", "xmin":
        query.checkpoint[name] += 1_000_000
    with pytest.raises(Mistake, match="set back to an earlier state"):
        query.batch()


async def test_what_retention_took_is_an_error_unless_it_may_lack(
    new_database: Callable[[], Awaitable[str]],
) -> None:
    dsn = await new_database()
    query, careless = Query(dsn, starting="earliest"), Query(dsn, starting="earliest", lost="skip")
    query.batch(commits=False)
    careless.batch(commits=False)
    db = await asyncpg.connect(dsn)
    first = await db.fetchval(
        "SELECT min(inhrelid::regclass::text) FROM pg_inherits WHERE inhparent = 'holdfast.lease_events'::regclass"
    )
    await db.execute(f"DROP TABLE {first}")
    await db.close()
    with pytest.raises(Mistake, match="dropped by retention before they were read"):
        query.batch()
    careless.batch()


async def test_a_ledger_of_another_cluster_is_read_as_a_frame_and_not_out_of_order(
    new_database: Callable[[], Awaitable[str]],
) -> None:
    """As pg_dump restores it: with ids of transactions that are yet to come here."""
    dsn = await new_database()
    db = await asyncpg.connect(dsn)
    await db.execute(
        "INSERT INTO holdfast.lease_events (tx, seq, topic_id, deliveries, event, topic)"
        " SELECT '4000000000', n, 1, 0, 'enqueued', 'old' FROM generate_series(1, 3) n"
    )
    await db.close()
    assert len(everything(reader(dsn, "lease_events"))) == 3
    with pytest.raises(Mistake, match="restored from another cluster"):
        Query(dsn, starting="earliest").batch()
    Query(dsn).drain()


def test_a_lock_tells_the_lower_half_of_an_id() -> None:
    ceiling = (7 << 32) + 5
    assert whole(3, ceiling) == (7 << 32) + 3
    assert whole(9, ceiling) == (7 << 32) + 9
    assert whole((1 << 32) - 2, ceiling) == (7 << 32) - 2
