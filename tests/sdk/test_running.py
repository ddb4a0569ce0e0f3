"""What a handler knows of its own job outside the context parameter; and jobs that its transactions complete."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import psycopg
import pytest

from holdfast import AsyncTopic, Queue, async_context, sql, sync_context
from tests.sdk.workers import fact, outcome, working

Connect = Callable[[], Awaitable["asyncpg.Connection[asyncpg.Record]"]]


async def test_the_job_at_hand_is_known_to_what_a_handler_awaits_and_starts(queue: AsyncTopic, handlers: Queue) -> None:
    """Also to a task that outlives its job."""
    seen: list[Any] = []
    later, tasks = asyncio.Event(), set()

    async def deep() -> None:
        await asyncio.sleep(0)
        seen.append((async_context().job_id, async_context().queue_name))

    async def outlives() -> None:
        await later.wait()
        await deep()

    @handlers.handler(queue.name, concurrency=3)
    async def handler(_: int) -> None:
        tasks.add(asyncio.create_task(outlives()))
        await asyncio.gather(deep(), asyncio.create_task(deep()))

    seqs = (await queue.enqueue_many(range(20))).seqs
    async with working(handlers):
        await fact(lambda: len(seen) == 40)
        later.set()
        await fact(lambda: len(seen) == 60)
    assert sorted(seen) == sorted((str(seq), queue.name) for seq in seqs for _ in range(3))


async def test_threads_know_their_jobs_and_push_without_awaiting(queue: AsyncTopic, handlers: Queue) -> None:
    seen: list[Any] = []

    @handlers.handler(queue.name, concurrency=4)
    def handler(n: int) -> None:
        seen.append((n, sync_context().job_id))
        if n == 0:
            pushed = sync_context().self().push(4)
            assert int(pushed) > int(sync_context().job_id)

    seqs = (await queue.enqueue_many(range(4))).seqs
    async with working(handlers):
        await fact(lambda: len(seen) == 5)
    assert sorted(seen)[:4] == [(n, str(seq)) for n, seq in enumerate(seqs)]


async def test_outside_a_handler_it_is_said_so(queue: AsyncTopic, handlers: Queue) -> None:
    for ask in (async_context, sync_context, handlers.self):
        with pytest.raises(RuntimeError, match="no handler is running"):
            ask()

    @handlers.handler(queue.name, retry=())
    async def handler(_: Any) -> None:
        sync_context()

    seq = (await queue.enqueue(0)).seq
    async with working(handlers):
        assert "use async_context()" in ((await outcome(queue, seq)).error or "")


async def test_a_handlers_transaction_completes_the_job_and_nothing_acks_it_again(
    queue: AsyncTopic, handlers: Queue, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    db = await connect()

    @handlers.handler(queue.name, retry=(0,), concurrency=1)
    async def handler(n: int) -> None:
        done = sql.complete(async_context().token, result=n)
        async with db.transaction():
            await db.fetchval(*done.asyncpg)
        if n == 1:
            raise RuntimeError("after the commit")  # which no longer counts

    seqs = (await queue.enqueue_many([0, 1])).seqs
    with caplog.at_level(logging.WARNING, "holdfast"):
        async with working(handlers):
            ends = [await outcome(queue, seq) for seq in seqs]
    assert [(end.state, end.result) for end in ends] == [("completed", 0), ("completed", 1)]
    assert "lost" not in caplog.text
    for seq in seqs:
        assert [event.event for event in (await queue.history(seq)).events] == ["enqueued", "claimed", "acked"]


async def test_a_transaction_that_was_rolled_back_gives_the_job_back(
    queue: AsyncTopic, handlers: Queue, connect: Connect
) -> None:
    db = await connect()
    tries: list[int] = []

    @handlers.handler(queue.name, retry=(0, 0))
    async def handler(_: Any) -> None:
        tries.append(async_context().received_count)
        transaction = db.transaction()
        await transaction.start()
        await db.fetchval(*sql.complete(async_context().token).asyncpg)
        if len(tries) == 1:
            await transaction.rollback()  # and the handler says nothing
        else:
            await transaction.commit()

    seq = (await queue.enqueue("x")).seq
    async with working(handlers):
        end = await outcome(queue, seq)
    assert (end.state, tries) == ("completed", [1, 2])
    returned = next(event for event in (await queue.history(seq)).events if event.event == "released")
    assert returned.detail
    assert "not committed" in returned.detail


async def test_a_handler_that_goes_on_after_its_commit_is_not_cancelled(
    queue: AsyncTopic, handlers: Queue, connect: Connect, caplog: pytest.LogCaptureFixture
) -> None:
    """Its lease is gone with the job; what finds that out is the heartbeat of another job, and so on."""
    db = await connect()
    went_on = False

    @handlers.handler(queue.name)
    async def handler(_: Any) -> None:
        nonlocal went_on
        await db.fetchval(*sql.complete(async_context().token).asyncpg)
        [lane] = worker._lanes
        await fact(lambda: not lane._held)  # a heartbeat has found out
        went_on = True

    seq = (await queue.enqueue("x")).seq
    with caplog.at_level(logging.WARNING, "holdfast"):
        async with working(handlers, lease=3) as worker:
            await fact(lambda: went_on)
            assert (await outcome(queue, seq)).state == "completed"
    assert caplog.text == ""


async def test_a_thread_completes_its_job(
    queue: AsyncTopic, handlers: Queue, database_url: str, caplog: pytest.LogCaptureFixture
) -> None:
    """As a process of a pool does: test_worker_processes.py."""

    @handlers.handler(queue.name)
    def handler(_: Any) -> None:
        with psycopg.connect(database_url) as connection:
            connection.execute(*sql.complete(sync_context().token, result="by psycopg").psycopg)

    seq = (await queue.enqueue(1)).seq
    with caplog.at_level(logging.WARNING, "holdfast"):
        async with working(handlers):
            assert (await outcome(queue, seq)).result == "by psycopg"
    assert caplog.text == ""
