"""A worker and its handlers, with the real service."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
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
from tests.sdk.proxy import Proxy


@pytest.fixture
async def handlers(service: Running) -> AsyncIterator[Queue]:
    async with Queue(service.url) as handlers:
        yield handlers


@asynccontextmanager
async def working(queue: Queue, **options: Any) -> AsyncIterator[Worker]:
    """A worker beside the block, which drains when that ends."""
    worker = Worker(queue, **options)
    running = asyncio.create_task(worker.run(signals=False))
    try:
        yield worker
    finally:
        worker.stop()
        await asyncio.wait_for(running, 30)


async def fact(true: Callable[[], object]) -> None:
    """Wait until something is so."""
    async with asyncio.timeout(30):
        while not true():
            await asyncio.sleep(0.005)


async def outcome(queue: AsyncTopic, seq: int) -> models.Outcome:
    return await queue.result(seq, wait_ms=20_000)


async def test_jobs_of_a_backlog_are_all_run_once_and_acked(queue: AsyncTopic, handlers: Queue) -> None:
    ran: list[int] = []

    @handlers.handler(queue.name)
    async def handler(number: int) -> None:
        ran.append(number)

    await queue.enqueue_many(range(3_000))
    async with working(handlers):
        await fact(lambda: len(ran) >= 3_000)
    assert sorted(ran) == list(range(3_000))
    state = (await queue.get()).queue
    assert state
    assert (state.ready, state.in_flight) == (0, 0)


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


async def test_threads_run_at_once_and_no_more_than_they_may(queue: AsyncTopic, handlers: Queue) -> None:
    now, most, done = 0, 0, 0

    @handlers.handler(queue.name, concurrency=4)
    def handler(_: int) -> None:
        nonlocal now, most, done
        now += 1
        most = max(most, now)
        time.sleep(0.05)
        now -= 1
        done += 1

    await queue.enqueue_many(range(12))
    async with working(handlers):
        await fact(lambda: done == 12)
    assert most == 4


async def test_a_job_that_takes_too_long_is_cancelled_and_returned(queue: AsyncTopic, handlers: Queue) -> None:
    reasons: list[object] = []

    @handlers.handler(queue.name, timeout=0.2, retry=())
    async def handler(_: Any, context: AsyncContext) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(context.signal.reason)

    seq = (await queue.enqueue(1)).seq
    async with working(handlers):
        end = await outcome(queue, seq)
    assert (end.state, end.error) == ("failed", "took longer than 0.2 s")
    assert reasons == ["timeout"]


async def test_a_thread_that_takes_too_long_is_told_and_its_job_returned(queue: AsyncTopic, handlers: Queue) -> None:
    reasons: list[object] = []

    @handlers.handler(queue.name, timeout=0.2, retry=())
    def handler(_: Any, context: SyncContext) -> None:
        assert context.signal.wait(20)
        reasons.append(context.signal.reason)

    seq = (await queue.enqueue(1)).seq
    async with working(handlers):
        end = await outcome(queue, seq)
        await fact(lambda: reasons)
    assert (end.state, end.error) == ("failed", "took longer than 0.2 s")
    assert reasons == ["timeout"]


async def test_leases_are_kept_while_work_goes_on(queue: AsyncTopic, handlers: Queue) -> None:
    counts: list[int] = []

    @handlers.handler(queue.name, concurrency=1)
    async def handler(_: Any, context: AsyncContext) -> None:
        counts.append(context.received_count)
        await asyncio.sleep(2.5)

    await queue.enqueue(1)
    async with working(handlers, lease=0.8):
        await fact(lambda: counts)
        await asyncio.sleep(2)
        assert (await queue.claim()).jobs == ()
    assert counts == [1]


async def test_a_lost_lease_cancels_the_handler(queue: AsyncTopic, handlers: Queue) -> None:
    ended: list[object] = []
    begun = asyncio.Event()

    @handlers.handler(queue.name)
    async def handler(_: Any, context: AsyncContext) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(context.signal.reason)

    seq = (await queue.enqueue(1)).seq
    async with working(handlers, lease=1.5):
        await begun.wait()
        await queue.ack(models.Lease(seq, handlers.account.node))  # by somebody who knows how
        await fact(lambda: ended)
    assert ended == ["lost"]


async def test_a_cancelled_job_is_told_to_its_handler(queue: AsyncTopic, handlers: Queue) -> None:
    ended: list[object] = []
    begun = asyncio.Event()

    @handlers.handler(queue.name)
    async def handler(_: Any, context: AsyncContext) -> None:
        begun.set()
        try:
            await asyncio.Event().wait()
        finally:
            ended.append(context.signal.reason)

    seq = (await queue.enqueue(1)).seq
    async with working(handlers, lease=1.5):
        await begun.wait()
        assert (await queue.cancel([seq])).marked == 1
        assert (await outcome(queue, seq)).state == "cancelled"
    assert ended == ["cancelled"]


async def test_a_drain_gives_back_what_has_not_begun_and_ends_the_rest(queue: AsyncTopic, handlers: Queue) -> None:
    begun, done = 0, 0
    go = asyncio.Event()

    @handlers.handler(queue.name, concurrency=2)
    async def handler(number: int) -> None:
        nonlocal begun, done
        if number >= 100:  # what is quick lets the worker claim ahead
            begun += 1
            await go.wait()
            done += 1

    await queue.enqueue_many(range(200))
    worker = Worker(handlers)
    running = asyncio.create_task(worker.run(signals=False))
    await fact(lambda: begun == 2)
    worker.stop()
    await fact(lambda: not worker._lanes[0]._queued)
    assert not running.done()
    go.set()
    await asyncio.wait_for(running, 20)
    assert done == 2
    jobs = [job async for job in queue.jobs()]
    assert len(jobs) == 98
    assert {(job.state, job.deliveries) for job in jobs} == {("ready", 0)}


async def test_a_second_stop_gives_back_what_runs(queue: AsyncTopic, handlers: Queue) -> None:
    begun = asyncio.Event()

    @handlers.handler(queue.name)
    async def handler(_: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    seq = (await queue.enqueue(1)).seq
    worker = Worker(handlers)
    running = asyncio.create_task(worker.run(signals=False))
    await begun.wait()
    worker.stop()
    worker.stop()
    await asyncio.wait_for(running, 10)
    job = await queue.job(seq)
    assert (job.state, job.deliveries) == ("ready", 0)


async def test_nothing_is_claimed_without_room(queue: AsyncTopic, handlers: Queue) -> None:
    go = asyncio.Event()
    begun = 0

    @handlers.handler(queue.name, concurrency=3)
    async def handler(_: Any) -> None:
        nonlocal begun
        begun += 1
        await go.wait()

    await queue.enqueue_many(range(10))
    async with working(handlers):
        await fact(lambda: begun == 3)
        state = (await queue.get()).queue
        assert state
        assert (state.ready, state.in_flight) == (7, 3)
        go.set()
        await fact(lambda: begun == 10)


async def test_handlers_of_one_worker_share_it(client: AsyncClient, topic: str, handlers: Queue) -> None:
    """One of them never waits for anything and has work without end; the other's jobs go through nevertheless."""
    greedy, modest = client.topic(f"{topic}-greedy"), client.topic(f"{topic}-modest")
    await greedy.put()
    await modest.put()
    counts = {"greedy": 0, "modest": 0}
    at_end: list[int] = []

    @handlers.handler(greedy.name, concurrency=50)
    async def take_all(_: Any) -> None:
        counts["greedy"] += 1
        ends = time.perf_counter() + 0.0005
        while time.perf_counter() < ends:
            pass

    @handlers.handler(modest.name, concurrency=1)
    async def take_few(_: Any) -> None:
        counts["modest"] += 1
        if counts["modest"] == 50:
            at_end.append(counts["greedy"])

    await greedy.enqueue_many(range(4_000))
    await modest.enqueue_many(range(50))
    async with working(handlers):
        await fact(lambda: at_end)
        assert at_end[0] < 2_000


async def test_an_ack_goes_out_at_once_when_there_is_nothing_else(queue: AsyncTopic, proxy: Proxy) -> None:
    async with Queue(proxy.url) as handlers:

        @handlers.handler(queue.name)
        async def handler(_: Any) -> None:
            pass

        async with working(handlers):
            for _ in range(3):
                seq = (await queue.enqueue(1)).seq
                assert (await outcome(queue, seq)).state == "completed"
    assert proxy.count("POST /ack") == 3


async def test_a_lost_answer_to_an_ack_acks_once(queue: AsyncTopic, proxy: Proxy) -> None:
    async with Queue(proxy.url) as handlers:
        ran = 0

        @handlers.handler(queue.name)
        async def handler(_: Any) -> None:
            nonlocal ran
            ran += 1

        proxy.lose("POST /ack")
        seq = (await queue.enqueue(1)).seq
        async with working(handlers):
            assert (await outcome(queue, seq)).state == "completed"
            await fact(lambda: proxy.count("POST /ack") == 2)
    assert ran == 1


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
    queue.handler("t")(lambda _: None)
    with pytest.raises(ValueError, match="has a handler"):
        queue.handler("t")
    with pytest.raises(ValueError, match="no handlers for u"):
        Worker(queue, topics=["u"])
