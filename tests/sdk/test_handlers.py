"""What handlers are given, and what becomes of what they say."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import AsyncIterator, Callable, Iterator
from dataclasses import dataclass
from datetime import date
from typing import Any

import pytest

from holdfast import (
    AsyncClient,
    AsyncContext,
    AsyncTopic,
    Dead,
    Queue,
    Record,
    Result,
    Retry,
    Schedule,
    SyncContext,
    TopicConfig,
    Worker,
    models,
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


async def test_what_was_not_run_is_not_done(client: AsyncClient, topic: str, service: Running) -> None:
    """A job whose handler gave something that is still to be run, or a class for one of its objects."""

    async def work(_: Any) -> None:
        raise AssertionError("nobody awaits it")

    def wrapped(what: str) -> Any:
        return work(what)

    async def stream() -> AsyncIterator[int]:
        yield 1

    async def given(what: str) -> Any:
        kinds: dict[str, Callable[[], object]] = {
            "coroutine": lambda: work(what),
            "future": asyncio.get_running_loop().create_future,
            "generator": lambda: (n for n in range(3)),
            "async generator": stream,
            "Retry": lambda: Retry,
            "Dead": lambda: Dead,
        }
        return kinds[what]()

    ends: dict[str, models.Outcome] = {}
    async with Queue(service.url) as handlers:
        handlers.handler(f"{topic}-a", retry=())(wrapped)
        handlers.handler(f"{topic}-b", retry=())(given)
        names = ["coroutine", "future", "generator", "async generator", "Retry", "Dead"]
        for name in handlers.handlers:
            await client.topic(name).put(TopicConfig(on_exhausted="fail"))
        thread = (await client.topic(f"{topic}-a").enqueue("wrapped")).seq
        seqs = (await client.topic(f"{topic}-b").enqueue_many(names)).seqs
        async with working(handlers):
            ends["wrapped"] = await outcome(client.topic(f"{topic}-a"), thread)
            for name, seq in zip(names, seqs, strict=True):
                ends[name] = await outcome(client.topic(f"{topic}-b"), seq)
    assert {name: (end.state, (end.error or "").partition(",")[0]) for name, end in ends.items()} == {
        "wrapped": ("failed", "TypeError: it gave a coroutine"),
        "coroutine": ("failed", "TypeError: it gave a coroutine"),
        "future": ("failed", "TypeError: it gave a Future"),
        "generator": ("failed", "TypeError: it gave a generator"),
        "async generator": ("failed", "TypeError: it gave a async_generator"),
        "Retry": ("failed", "TypeError: it gave the class Retry"),
        "Dead": ("failed", "TypeError: it gave the class Dead"),
    }


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
    assert (end.state, end.error) == ("failed", "PayloadError: payload.id is no int: '7'")


async def test_the_context(client: AsyncClient, handlers: Queue, topic: str) -> None:
    fifo, plain = client.topic(f"{topic}.fifo"), client.topic(topic)
    await fifo.put()
    await plain.put()
    seen: list[AsyncContext] = []

    @handlers.handler(fifo.name)
    async def handler(what: str, context: AsyncContext) -> None:
        seen.append(context)
        if what == "first":
            await context.self().group("g").push("second")
            await context.push(topic, b"\0")
            await context.send("progress", {"percent": 50})

    enqueued = await fifo.enqueue("first", group="g", user_id="ada", meta={"params": {"from": "home"}})
    async with working(handlers):
        await fact(lambda: len(seen) == 2)
    first, second = seen
    assert (first.job_id, first.group_id, first.queue_name) == (str(enqueued.seq), "g", fifo.name)
    assert (first.params, first.received_count, first.user_id) == ({"from": "home"}, 1, "ada")
    assert second.sequence_number > first.sequence_number
    assert second.queued_at >= first.queued_at
    assert second.user_id == "ada", "passed on"
    [job] = (await plain.claim()).jobs
    assert (job.data, job.meta) == (b"\0", {"$user_id": "ada"})


async def test_a_thread_pushes_without_awaiting(queue: AsyncTopic, handlers: Queue) -> None:
    seen: list[str] = []

    @handlers.handler(queue.name)
    def handler(what: str, context: SyncContext) -> None:
        seen.append(what)
        if what == "first":
            pushed = context.self().push("second")
            assert int(pushed) > int(context.job_id)

    await handlers.get(queue.name).push("first")
    async with working(handlers):
        await fact(lambda: seen == ["first", "second"])


async def test_a_group_keeps_its_order_whatever_fails(client: AsyncClient, handlers: Queue, topic: str) -> None:
    queue = client.topic(f"{topic}.fifo")
    await queue.put(TopicConfig(backoff=models.Backoff(kind="none")))
    done: dict[str, list[int]] = {}
    out: set[str] = set()

    @handlers.handler(queue.name, concurrency=20)
    async def handler(number: int, context: AsyncContext) -> None:
        group = context.group_id
        assert group
        assert group not in out, "one at a time"
        out.add(group)
        try:
            await asyncio.sleep(0.001)
            if number % 3 == 0 and context.received_count == 1:
                raise ValueError("once more")
            done.setdefault(group, []).append(number)
        finally:
            out.discard(group)

    await queue.enqueue_many([Record(data=n, group=f"g{g}", dedupe_id=f"{g}-{n}") for n in range(10) for g in range(8)])
    async with working(handlers):
        await fact(lambda: sum(map(len, done.values())) == 80)
    assert list(done.values()) == [list(range(10))] * 8


def test_what_makes_no_sense_is_refused_when_it_is_declared() -> None:
    queue = Queue("http://127.0.0.1:1")
    with pytest.raises(ValueError, match="concurrency"):
        queue.handler("t", concurrency=0)
    with pytest.raises(ValueError, match="timeout"):
        queue.handler("t", timeout=0)
    with pytest.raises(ValueError, match="retry"):
        queue.handler("t", retry=(-1,))
    with pytest.raises(TypeError, match="payload"):
        queue.handler("t")(lambda: None)
    with pytest.raises(ValueError, match="retry"):
        queue.handler("t", retry=(math.inf,))

    def generator(_: Any) -> Iterator[int]:
        yield 1

    async def async_generator(_: Any) -> AsyncIterator[int]:
        yield 1

    for function in (generator, async_generator):
        with pytest.raises(TypeError, match="generator"):
            queue.handler("t")(function)
    queue.handler("t")(lambda _: None)
    with pytest.raises(ValueError, match="topic 't' already has a handler, the function "):
        queue.handler("t")
    with pytest.raises(ValueError, match="no handlers for u"):
        Worker(queue, topics=["u"])


async def test_a_schedule_is_put_and_left_alone_when_it_is_there(
    client: AsyncClient, topic: str, service: Running
) -> None:
    await client.topic(topic).put()
    updated = []
    for _ in range(2):
        async with Queue(service.url) as handlers:

            @handlers.handler(topic, schedule=Schedule("*/5 * * * *", {"report": "sales"}, time_zone="Europe/Berlin"))
            async def handler(_: Any) -> None:
                pass

            async with working(handlers):
                while topic not in [one.name async for one in client.schedules.list()]:
                    await asyncio.sleep(0.01)
        updated.append((await client.schedules.get(topic)).updated_at)
    schedule = await client.schedules.get(topic)
    assert (schedule.cron, schedule.time_zone, schedule.record["data"]) == (
        "*/5 * * * *",
        "Europe/Berlin",
        {"report": "sales"},
    )
    assert updated[0] == updated[1]
    await client.schedules.delete(topic)
