"""What a handler knows of its own job outside the context parameter; and jobs that its transactions complete."""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import psycopg
import pytest

from holdfast import AsyncTopic, Queue, async_context, sql, sync_context
from tests.sdk.workers import fact, outcome, working

Connect = Callable[[], Awaitable["asyncpg.Connection[asyncpg.Record]"]]


async def deep(seen: list[Any]) -> None:
    await asyncio.sleep(0)
    seen.append((async_context().job_id, async_context().queue_name))


async def test_the_job_at_hand_is_known_to_what_a_handler_awaits_and_starts(queue: AsyncTopic, handlers: Queue) -> None:
    seen: list[Any] = []

    @handlers.handler(queue.name, concurrency=3)
    async def handler(_: int) -> None:
        await asyncio.gather(deep(seen), asyncio.create_task(deep(seen)))

    seqs = (await queue.enqueue_many(range(20))).seqs
    async with working(handlers):
        await fact(lambda: len(seen) == 40)
    assert sorted(seen) == sorted((str(seq), queue.name) for seq in (*seqs, *seqs))


async def test_a_task_that_outlives_its_job_still_means_that_one(queue: AsyncTopic, handlers: Queue) -> None:
    later, seen, left = asyncio.Event(), [], set()

    async def outlives() -> None:
        await later.wait()
        seen.append(async_context().job_id)

    @handlers.handler(queue.name, concurrency=1)
    async def handler(n: int) -> None:
        if n == 0:
            left.add(asyncio.create_task(outlives()))
        else:
            later.set()

    seqs = (await queue.enqueue_many([0, 1])).seqs
    async with working(handlers):
        await fact(lambda: seen)
    assert seen == [str(seqs[0])]


async def test_self_is_the_topic_of_the_job_and_pushes_for_its_user(
    queue: AsyncTopic, handlers: Queue, connect: Connect
) -> None:
    db = await connect()
    seen: list[Any] = []
    other = f"{queue.name}.other"
    await handlers.client.topic(other).put()

    @handlers.handler(queue.name)
    async def handler(n: int) -> None:
        seen.append((n, async_context().user_id))
        if n == 0:
            await handlers.self().push(1)
            await handlers.get(other).push(2)
            await db.fetchval(*sql.enqueue(other, 3).asyncpg)

    await queue.enqueue(0, user_id="ada")
    async with working(handlers):
        await fact(lambda: len(seen) == 2)
    assert seen == [(0, "ada"), (1, "ada")]
    assert sql.enqueue(other, 4).asyncpg[1:] == (other, b"4", "application/json")  # and here is no job
    jobs = (await handlers.client.topic(other).jobs().page()).items
    assert {job.data: (job.meta or {})["$user_id"] for job in jobs} == {2: "ada", 3: "ada"}


async def test_threads_know_their_jobs(queue: AsyncTopic, handlers: Queue) -> None:
    seen: list[Any] = []

    @handlers.handler(queue.name, concurrency=4)
    def handler(n: int) -> None:
        seen.append((n, sync_context().job_id))
        if n == 0:
            sync_context().self().push(4)

    seqs = (await queue.enqueue_many(range(4))).seqs
    async with working(handlers):
        await fact(lambda: len(seen) == 5)
    assert sorted(seen)[:4] == [(n, str(seq)) for n, seq in enumerate(seqs)]


def in_a_process(_: int) -> Any:
    from holdfast import Result

    return Result([sync_context().job_id, sync_context().received_count, os.getpid()])


async def test_processes_know_theirs(queue: AsyncTopic, handlers: Queue) -> None:
    handlers.handler(queue.name, pool="process", concurrency=1)(in_a_process)
    seq = (await queue.enqueue(0)).seq
    async with working(handlers):
        end = await outcome(queue, seq)
    assert end.result[:2] == [str(seq), 1]
    assert end.result[2] != os.getpid()


async def test_outside_a_handler_it_is_said_so(queue: AsyncTopic, handlers: Queue) -> None:
    for ask in (async_context, sync_context, handlers.self):
        with pytest.raises(RuntimeError, match="no handler runs here"):
            ask()
    faults: list[str] = []

    @handlers.handler(queue.name)
    async def handler(_: Any) -> None:
        with pytest.raises(RuntimeError, match="has an async_context") as raised:
            sync_context()
        faults.append(str(raised.value))

    await queue.enqueue(0)
    async with working(handlers):
        await fact(lambda: faults)


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
        await fact(lambda: len(tries) == 2)
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
        async with working(handlers, lease=8) as worker:
            await fact(lambda: went_on)
            assert (await outcome(queue, seq)).state == "completed"
    assert caplog.text == ""


def completes_by_psycopg(url: str) -> Any:
    with psycopg.connect(url) as connection:
        connection.execute(*sql.complete(sync_context().token, result="by psycopg").psycopg)


@pytest.mark.parametrize("pool", ["thread", "process"])
async def test_sync_handlers_complete_theirs(
    queue: AsyncTopic, handlers: Queue, database_url: str, pool: Any, caplog: pytest.LogCaptureFixture
) -> None:
    handlers.handler(queue.name, pool=pool, concurrency=1)(completes_by_psycopg)
    seq = (await queue.enqueue(database_url)).seq
    with caplog.at_level(logging.WARNING, "holdfast"):
        async with working(handlers):
            assert (await outcome(queue, seq)).result == "by psycopg"
    assert caplog.text == ""
