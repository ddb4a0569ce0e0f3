"""The ledger as a stream: nothing missed and nothing twice, whoever commits when. Without a Spark session: the reader's
own methods, called as Spark calls them."""

from __future__ import annotations

import asyncio
import json
import random
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import ReadAllAvailable, ReadMaxRows

from spark.errors import Mistake
from spark.source.source import Holdfast
from tests.queue.calls import Session

Connect = Callable[[], Awaitable[Session]]
Row = dict[str, Any]
ENQUEUE = "INSERT INTO holdfast.inbox (topic, payload_text) SELECT $1, '1' FROM generate_series(1, $2)"
LEDGER = "SELECT seq FROM holdfast.lease_events WHERE topic = $1 ORDER BY seq"


class Query:
    """A query with its checkpoint, of which only what was committed outlives a restart."""

    def __init__(self, dsn: str, **options: str) -> None:
        self.options = {"dsn": dsn, "table": "lease_events", "starting": "latest", **options}
        self.checkpoint: dict[str, Any] | None = None
        self.rows: list[Row] = []
        self.batches: list[int] = []
        self.restart()

    def restart(self) -> None:
        source = Holdfast(self.options)
        self.reader: DataSourceStreamReader = source.streamReader(source.schema())

    def batch(self, *, commits: bool = True) -> list[Row]:
        """A micro-batch. Offsets go through JSON, as they do in Spark."""
        if self.checkpoint is None:
            self.checkpoint = self.reader.initialOffset()
        start = json.loads(json.dumps(self.checkpoint))
        end = json.loads(json.dumps(self.reader.latestOffset(start, self.reader.getDefaultReadLimit())))
        rows = [
            row
            for part in self.reader.partitions(start, end)
            for batch in self.reader.read(part)
            for row in batch.to_pylist()
        ]
        if commits:
            self.checkpoint = end
            self.rows += rows
            self.batches.append(len(rows))
        return rows

    def drain(self) -> None:
        """Batches until there is nothing more."""
        before = None
        while before != self.checkpoint or before is None:
            before = self.checkpoint
            self.batch()

    def seqs(self) -> list[int]:
        return sorted(row["seq"] for row in self.rows)


@pytest.fixture
async def queue(topic: str, make_queue: Callable[..., Awaitable[object]]) -> str:
    await make_queue(topic)
    return topic


async def seqs(connection: Session, topic: str) -> list[int]:
    """What the ledger has."""
    return [row["seq"] for row in await connection.fetch(LEDGER, topic)]


async def test_a_transaction_that_commits_late_is_read_late_and_once(
    database_url: str, connect: Connect, queue: str
) -> None:
    """M4: the later transaction commits first; the earlier one has the lower seq, the lower id and the lower time."""
    early, late = await connect(), await connect()
    query = Query(database_url, topic=queue)
    query.drain()
    slow = early.transaction()
    await slow.start()
    await early.execute(ENQUEUE, queue, 1)
    await late.execute(ENQUEUE, queue, 1)
    query.drain()
    assert query.seqs() == [], "what an older transaction may still precede is not read"
    await slow.commit()
    query.drain()
    assert query.seqs() == [1, 2]
    assert {row["topic"] for row in query.rows} == {queue}


async def test_a_transaction_that_begins_first_and_gets_its_id_last(
    database_url: str, connect: Connect, queue: str
) -> None:
    """Its seqs were drawn before those that are read meanwhile."""
    early, late = await connect(), await connect()
    query = Query(database_url, topic=queue)
    query.drain()
    slow = early.transaction()
    await slow.start()
    drawn = await early.fetchval(
        "SELECT nextval(format('holdfast.seq_%s', id)::regclass) FROM holdfast.topics WHERE name = $1", queue
    )
    await late.execute(ENQUEUE, queue, 3)
    query.drain()
    await early.execute(ENQUEUE, queue, 2)
    await slow.commit()
    query.drain()
    assert drawn not in query.seqs()
    assert query.seqs() == await seqs(late, queue)


async def test_twelve_writers_rollbacks_and_restarts(database_url: str, connect: Connect, queue: str) -> None:
    """M3, M5: transactions of all lengths, one in five rolled back, savepoints too; restarts in the midst of a batch."""
    query = Query(database_url, topic=queue, rows_per_batch="300")
    query.drain()
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
                await asyncio.sleep(0.02 if chance.random() < 0.1 else 0)
            await (transaction.rollback if chance.random() < 0.2 else transaction.commit)()

    writers = [asyncio.create_task(write(await connect())) for _ in range(12)]
    for n in range(60):
        is_lost = n % 7 == 3  # the batch was read, and the driver died before it noted that
        await asyncio.to_thread(query.batch, commits=not is_lost)
        if is_lost:
            query.restart()
    done.set()
    await asyncio.gather(*writers)
    query.restart()
    await asyncio.to_thread(query.drain)
    written = await seqs(await connect(), queue)
    assert query.seqs() == written
    assert len(written) > 2000
    assert len([rows for rows in query.batches if rows]) > 10
    assert max(query.batches) <= 300
