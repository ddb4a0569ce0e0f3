"""Reads don't hold up the queue: no statement of theirs holds what a claim waits for. Between pages nothing is held at
all (test_pages.py), and a page looks at few rows."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import psycopg
import pytest

from app.kernel.claim import consumer
from app.kernel.topics.policy import Policy
from spark.source.tables import TABLES
from tests.queue.calls import Session, batch, held, put, take
from tests.spark.queries import Query
from tests.spark.test_pages import everything, reader

HELD = """
    SELECT l.locktype, l.mode, pg_current_xact_id_if_assigned() IS NOT NULL
    FROM pg_locks l WHERE l.pid = pg_backend_pid() AND l.locktype <> 'virtualxid'"""
BLOCKED = """
    SELECT w.query FROM pg_stat_activity w CROSS JOIN LATERAL unnest(pg_blocking_pids(w.pid)) AS b(pid)
    JOIN pg_stat_activity s ON s.pid = b.pid WHERE s.application_name LIKE 'holdfast spark %'"""


async def test_no_statement_of_a_read_or_a_stream_holds_what_a_claim_waits_for(
    monkeypatch: pytest.MonkeyPatch,
    database_url: str,
    connect: Callable[[], Awaitable[Session]],
    topic: str,
    make_queue: Callable[..., Awaitable[Policy]],
) -> None:
    """Each statement's transaction is kept open, with all that it holds, while a worker claims and acks."""
    queue, db, loop = await make_queue(topic), await connect(), asyncio.get_running_loop()
    await db.execute("SET lock_timeout = '5s'")
    await put(db, queue, batch(1_000))
    execute, holds, worked = psycopg.Connection.execute, set[tuple[Any, ...]](), 0

    async def work() -> None:
        nonlocal worked
        await put(db, queue, batch(1))
        [job] = await take(db, queue)
        assert await consumer.ack(db, queue.topic, [held(job)]) == {0}
        assert await db.fetch(BLOCKED) == []
        worked += 1

    def kept_open(connection: Any, *asked: Any, **more: Any) -> Any:
        with connection.transaction():
            cursor = execute(connection, *asked, **more)
            holds.update(execute(connection, HELD).fetchall())
            asyncio.run_coroutine_threadsafe(work(), loop).result(30)
        return cursor

    monkeypatch.setattr(psycopg.Connection, "execute", kept_open)
    for table in TABLES:
        await asyncio.to_thread(everything, reader(database_url, table, page="300", partitions="2"))
    stream = Query(database_url, topic=topic, starting="earliest", rows_per_batch="500")
    await asyncio.to_thread(stream.batch)
    assert holds == {("relation", "AccessShareLock", False)}
    assert worked > 30
    assert stream.rows
