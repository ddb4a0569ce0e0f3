"""What handlers are given, and what becomes of what they say."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass
from datetime import date
from typing import Any

from holdfast import (
    AsyncClient,
    AsyncContext,
    AsyncTopic,
    Dead,
    Queue,
    Result,
    Retry,
    Schedule,
    SyncContext,
    TopicConfig,
    models,
    sql,
)
from tests.conftest import Running
from tests.sdk.workers import fact, outcome, working


async def test_a_handler_says_what_becomes_of_its_job(client: AsyncClient, topic: str, handlers: Queue) -> None:
    queue = client.topic(topic)
    await queue.put(TopicConfig(max_deliveries=2, on_exhausted="fail", backoff=models.Backoff(kind="none")))
    tries: list[str] = []

    @handlers.handler(topic)
    async def handler(what: str, context: AsyncContext) -> Any:
        tries.append(what)
        first = context.received_count == 1
        match what:
            case "result":
                return Result({"n": 1})
            case "dead":
                return Dead("no such address")
            case "raised dead":
                raise Dead("no such user")
            case "retry":
                return Retry(0.01, "busy") if first else Result("second")
            case "error":
                raise KeyError("broken")
            case "no json":
                return Result(object()) if first else Result("json")

    names = ["result", "dead", "raised dead", "retry", "error", "no json"]
    seqs = (await queue.enqueue_many(names)).seqs
    async with working(handlers):
        ends = dict(zip(names, await asyncio.gather(*(outcome(queue, seq) for seq in seqs)), strict=True))
    assert {name: (end.state, end.result, end.error) for name, end in ends.items()} == {
        "result": ("completed", {"n": 1}, None),
        "dead": ("failed", None, "no such address"),
        "raised dead": ("failed", None, "no such user"),
        "retry": ("completed", "second", None),
        "error": ("failed", None, "KeyError: 'broken'"),
        "no json": ("completed", "json", None),
    }
    assert tries.count("error") == 2


async def test_what_was_not_run_is_not_done(client: AsyncClient, topic: str, handlers: Queue) -> None:
    """A job whose handler gave something that is still to be run, or a class for one of its objects."""

    async def work(_: Any) -> None:
        raise AssertionError("nobody awaits it")

    def wrapped(what: str) -> Any:
        return work(what)

    async def stream() -> AsyncIterator[int]:
        yield 1

    kinds: dict[str, Callable[[], object]] = {
        "a coroutine": lambda: work(1),
        "a Future": asyncio.get_running_loop().create_future,
        "a generator": lambda: (n for n in range(3)),
        "a async_generator": stream,
        "the class Retry": lambda: Retry,
        "the class Dead": lambda: Dead,
    }

    async def given(what: str) -> Any:
        return kinds[what]()

    threads, loop = client.topic(f"{topic}-a"), client.topic(f"{topic}-b")
    handlers.handler(threads.name, retry=())(wrapped)
    handlers.handler(loop.name, retry=())(given)
    for queue in (threads, loop):
        await queue.put(TopicConfig(on_exhausted="fail"))
    jobs = [(threads, "a coroutine", (await threads.enqueue("wrapped")).seq)]
    jobs += [(loop, what, (await loop.enqueue(what)).seq) for what in kinds]
    async with working(handlers):
        for queue, what, seq in jobs:
            end = await outcome(queue, seq)
            assert end.state == "failed"
            assert (end.error or "").startswith(f"TypeError: the handler returned {what}")


async def test_retry_says_how_long_to_wait_and_how_often(queue: AsyncTopic, handlers: Queue) -> None:
    at: list[float] = []

    @handlers.handler(queue.name, retry=(0, 0.4))
    async def handler(_: Any) -> None:
        at.append(time.monotonic())
        raise ValueError("not today")

    seq = (await queue.enqueue(1)).seq
    async with working(handlers):
        end = await outcome(queue, seq)
    assert (end.state, end.error) == ("failed", "ValueError: not today")
    assert len(at) == 3
    assert at[2] - at[1] >= 0.4


@dataclass
class Line:
    sku: str
    count: int = 1


@dataclass
class Order:
    id: int
    on: date
    lines: list[Line]
    note: str | None = None


async def test_a_payload_is_what_the_hint_says(queue: AsyncTopic, handlers: Queue) -> None:
    seen: list[Any] = []

    @handlers.handler(queue.name, retry=())
    def handler(order: Order, context: SyncContext) -> None:
        seen.append(order)

    order = Order(7, date(2026, 11, 22), [Line("a"), Line("b", 2)])
    await handlers.get(queue.name).push(order)
    bad = await handlers.get(queue.name).push({"id": "7", "on": "2026-11-22", "lines": []})
    async with working(handlers):
        end = await outcome(queue, int(bad))
        await fact(lambda: seen)
    assert seen == [order]
    assert (end.state, end.error) == ("failed", "PayloadError: payload.id is not a valid int: '7'")


async def test_the_context(
    client: AsyncClient, handlers: Queue, topic: str, connect: Callable[[], Awaitable[Any]]
) -> None:
    db = await connect()
    fifo, plain = client.topic(f"{topic}.fifo"), client.topic(topic)
    await fifo.put()
    await plain.put()
    seen: list[AsyncContext] = []

    @handlers.handler(fifo.name)
    async def handler(what: str, context: AsyncContext) -> None:
        seen.append(context)
        if what == "first":
            await context.self().group("g").push("second")
            await handlers.self().group("g").push("third")
            await context.push(topic, b"\0")
            await handlers.get(topic).push(2)
            await db.fetchval(*sql.enqueue(topic, 3).asyncpg)
            await context.send("progress", {"percent": 50})

    enqueued = await fifo.enqueue("first", group="g", user_id="ada", meta={"params": {"from": "home"}})
    async with working(handlers):
        await fact(lambda: len(seen) == 3)
    first, second, third = seen
    assert (first.job_id, first.group_id, first.queue_name) == (str(enqueued.seq), "g", fifo.name)
    assert (first.params, first.received_count) == ({"from": "home"}, 1)
    assert first.sequence_number < second.sequence_number < third.sequence_number
    assert second.queued_at >= first.queued_at
    assert [context.user_id for context in seen] == ["ada"] * 3, "passed on"
    jobs = (await plain.claim(max=3)).jobs
    assert [(job.data, (job.meta or {})["$user_id"]) for job in jobs] == [(b"\0", "ada"), (2, "ada"), (3, "ada")]
    assert sql.enqueue(topic, 4).asyncpg[1:] == (topic, b"4", "application/json"), "here is no job, and no user"


async def test_a_schedule_is_put_and_left_alone_when_it_is_there(
    client: AsyncClient, topic: str, service: Running
) -> None:
    await client.topic(topic).put()
    updated = []
    schedule = Schedule("*/5 * * * *", {"report": "sales"}, time_zone="Europe/Berlin")
    for _ in range(2):
        async with Queue(service.url) as handlers:
            handlers.handler(topic, schedule=schedule)(lambda _: None)
            async with working(handlers), asyncio.timeout(30):
                while topic not in [one.name async for one in client.schedules.list()]:
                    await asyncio.sleep(0.01)
        there = await client.schedules.get(topic)
        updated.append(there.updated_at)
    assert (there.cron, there.time_zone) == ("*/5 * * * *", "Europe/Berlin")
    assert there.record["data"] == {"report": "sales"}
    assert updated[0] == updated[1]
    await client.schedules.delete(topic)
