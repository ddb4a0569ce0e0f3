"""The ledger as a stream: nothing missed and nothing twice, whoever commits when. Without a Spark session: the reader's
own methods, called as Spark calls them."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from spark.errors import Mistake
from spark.source.event_stream import full_id
from tests.queue.calls import Session
from tests.spark.past import connected
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


async def drained(query: Query, after: Session | None = None) -> list[int]:
    """Of which jobs the events are that were read: all that are committed by now, once the horizon has passed them,
    if there is a session to ask; others work on this server, too."""
    if after is not None:
        last = await after.fetchval("SELECT pg_current_xact_id()::text::bigint")
        xmin = "SELECT pg_snapshot_xmin(pg_current_snapshot())::text::bigint"
        async with asyncio.timeout(30):
            while await after.fetchval(xmin) <= last:
                await asyncio.sleep(0.01)
    await asyncio.to_thread(query.drain)
    return query.seqs()


async def test_what_commits_late_is_read_late_and_once(database_url: str, connect: Connect, queue: str) -> None:
    """M4: the later transaction commits first; the earlier one has the lower seq, the lower id and the lower time. And
    one that began before it, which has drawn a seq, gets its id last."""
    early, late, drawer = await connect(), await connect(), await connect()
    query = Query(database_url, topic=queue)
    await drained(query)
    slow, slower = early.transaction(), drawer.transaction()
    await slow.start()
    await slower.start()
    drawn = await drawer.fetchval(
        "SELECT nextval(format('holdfast.seq_%s', id)::regclass) FROM holdfast.topics WHERE name = $1", queue
    )
    await early.execute(ENQUEUE, queue, 1)
    await late.execute(ENQUEUE, queue, 1)
    assert await drained(query) == [], "what an older transaction may still precede is not read"
    await slow.commit()
    await drained(query)
    await drawer.execute(ENQUEUE, queue, 2)
    await slower.commit()
    assert await drained(query, late) == await seqs(late, queue) == [2, 3, 4, 5]
    assert drawn == 1
    assert {row["topic"] for row in query.rows} == {queue}


async def test_twelve_writers_rollbacks_and_restarts(
    monkeypatch: pytest.MonkeyPatch, database_url: str, connect: Connect, queue: str
) -> None:
    """M3, M5: transactions of all lengths, some rolled back, savepoints too; restarts in a batch."""
    monkeypatch.setattr("spark.source.event_stream.SLACK", timedelta(0))  # what is for clocks must not hide a fault
    query = Query(database_url, topic=queue, rows_per_batch="1000")
    await drained(query)
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
    written = await seqs(db, queue)
    assert await drained(query, db) == written
    assert len(written) > 2000
    assert len([rows for rows in query.batches if rows]) > 10
    assert max(query.batches) <= 1000


async def test_batches_are_cut_within_a_transaction_and_what_concerns_others_is_none(
    database_url: str, connect: Connect, queue: str
) -> None:
    db = await connect()
    query = Query(database_url, topic=queue, rows_per_batch="100", partitions="3", page="30")
    others = Query(database_url, topic="another")
    await drained(query)
    await drained(others)
    before = others.checkpoint
    await db.execute(ENQUEUE, queue, 1000)
    await drained(others)
    assert others.checkpoint == before, "no batch for each trigger"
    await asyncio.to_thread(query.batch)
    query.restart()
    assert await drained(query, db) == list(range(1, 1001))
    assert max(query.batches) <= 100
    assert len(query.batches) <= 25


async def test_it_starts_at_a_time_at_the_beginning_or_now(database_url: str, connect: Connect, queue: str) -> None:
    db = await connect()
    await db.execute(ENQUEUE, queue, 1)
    between = await db.fetchval("SELECT clock_timestamp()")
    await db.execute(ENQUEUE, queue, 1)
    starts = "earliest", between.isoformat(), "latest"
    queries = [Query(database_url, topic=queue, starting=starting) for starting in starts]
    for query in queries:
        await drained(query, db)
    await db.execute(ENQUEUE, queue, 1)
    assert [await drained(query, db) for query in queries] == [[1, 2, 3], [2, 3], [3]]


async def test_what_is_under_way_when_it_starts_is_before_it_and_not_in_part(
    database_url: str, connect: Connect, queue: str
) -> None:
    early, late = await connect(), await connect()
    slow = early.transaction()
    await slow.start()
    await early.execute(ENQUEUE, queue, 2)
    query = Query(database_url, topic=queue)
    await drained(query)
    await early.execute(ENQUEUE, queue, 2)
    await late.execute(ENQUEUE, queue, 1)
    await slow.commit()
    query.restart()
    assert await drained(query, late) == [5]


async def test_available_now_ends_although_more_comes(database_url: str, connect: Connect, queue: str) -> None:
    db = await connect()
    await db.execute(ENQUEUE, queue, 50)
    query = Query(database_url, topic=queue, starting="earliest", rows_per_batch="20")
    assert isinstance(query.reader, SupportsTriggerAvailableNow)
    await asyncio.to_thread(query.reader.prepareForTriggerAvailableNow)
    await db.execute(ENQUEUE, queue, 50)
    assert await drained(query, db) == list(range(1, 51))


async def test_another_database_or_an_earlier_state_is_an_error_and_not_silence(
    database_url: str, new_database: Callable[[], Awaitable[str]], queue: str
) -> None:
    """RELIABILITY F8c: ids of transactions begin anew; an old offset lies above all new rows. And a copy of the volume
    from before is of the same cluster and timeline, with fewer transactions."""
    query = Query(database_url, topic=queue)
    query.drain()
    query.options["dsn"] = await new_database()
    query.restart()
    with pytest.raises(Mistake, match="checkpoint is of another database") as caught:
        query.batch()
    query.options["epoch"] = str(caught.value).rpartition("epoch=")[2].partition(" ")[0]
    query.restart()
    query.batch()  # accepted by whom the error told
    assert query.checkpoint is not None
    for name in "tx", "xmin":
        query.checkpoint[name] = query.checkpoint.get(name, 0) + 1_000_000
    with pytest.raises(Mistake, match="set back to an earlier state"):
        query.batch()


async def test_what_retention_took_is_an_error_unless_it_may_lack(new_database: Callable[[], Awaitable[str]]) -> None:
    dsn = await new_database()
    query, careless = Query(dsn, starting="earliest"), Query(dsn, starting="earliest", lost="skip")
    query.batch(commits=False)
    careless.batch(commits=False)
    days = "SELECT min(inhrelid::regclass::text) FROM pg_inherits WHERE inhparent = 'holdfast.lease_events'::regclass"
    with connected(dsn) as db:
        [(first,)] = db.execute(days)
        db.execute(f"DROP TABLE {first}")
    with pytest.raises(Mistake, match="dropped by retention before they were read"):
        query.batch()
    careless.batch()


async def test_a_ledger_of_another_cluster_is_read_as_a_frame_and_not_out_of_order(
    new_database: Callable[[], Awaitable[str]],
) -> None:
    """As pg_dump restores it: with ids of transactions that are yet to come here."""
    dsn = await new_database()
    with connected(dsn) as db:
        db.execute(
            "INSERT INTO holdfast.lease_events (tx, seq, topic_id, deliveries, event, topic)"
            " SELECT '4000000000', n, 1, 0, 'enqueued', 'old' FROM generate_series(1, 3) n"
        )
    assert len(everything(reader(dsn, "lease_events"))) == 3
    with pytest.raises(Mistake, match="restored from another cluster"):
        Query(dsn, starting="earliest").batch()
    Query(dsn).drain()


def test_a_lock_tells_the_lower_half_of_an_id() -> None:
    ceiling = (7 << 32) + 5
    assert full_id(3, ceiling) == (7 << 32) + 3
    assert full_id(9, ceiling) == (7 << 32) + 9
    assert full_id((1 << 32) - 2, ceiling) == (7 << 32) - 2
