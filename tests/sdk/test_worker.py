"""A worker with the real service: claims, leases, acks, interruptions, stopping."""

from __future__ import annotations

import asyncio
import logging
import time
from typing import Any

import pytest

from holdfast import AsyncClient, AsyncContext, AsyncTopic, Queue, Record, Retry, SyncContext, Worker, models
from tests.conftest import Running
from tests.sdk.proxy import Proxy
from tests.sdk.workers import fact, outcome, working

LEASE = 1.5


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


async def test_jobs_begin_in_claim_order_and_none_is_claimed_without_room(queue: AsyncTopic, handlers: Queue) -> None:
    low, high = range(5), range(5, 10)
    await queue.enqueue_many([Record(data=n, priority=1) for n in low] + [Record(data=n, priority=8) for n in high])
    begun: list[int] = []
    go = asyncio.Event()

    @handlers.handler(queue.name, concurrency=7)
    async def handler(number: int) -> None:
        begun.append(number)
        await go.wait()

    async with working(handlers):
        await fact(lambda: len(begun) == 7)
        state = (await queue.get()).queue
        assert state
        assert (state.ready, state.in_flight) == (3, 7)
        go.set()
        await fact(lambda: len(begun) == 10)
    assert begun == [*high, *low]


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


@pytest.mark.parametrize("threaded", [False, True])
async def test_a_job_that_takes_too_long_is_cancelled_and_returned(
    queue: AsyncTopic, handlers: Queue, threaded: bool
) -> None:
    reasons: list[object] = []

    async def wait(_: Any, context: AsyncContext) -> None:
        try:
            await asyncio.Event().wait()
        finally:
            reasons.append(context.signal.reason)

    def wait_in_a_thread(_: Any, context: SyncContext) -> None:
        assert context.signal.wait(20)
        reasons.append(context.signal.reason)

    handlers.handler(queue.name, timeout=0.2, retry=())(wait_in_a_thread if threaded else wait)
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
        await asyncio.sleep(2 * LEASE)

    seq = (await queue.enqueue(1)).seq
    async with working(handlers, lease=LEASE):
        assert (await outcome(queue, seq)).state == "completed"
    assert counts == [1]


async def test_a_blocked_loop_costs_no_lease_and_is_reported(
    service: Running, queue: AsyncTopic, caplog: pytest.LogCaptureFixture
) -> None:
    """The service is in this process, so the worker has a loop of its own."""
    caplog.set_level(logging.WARNING, "holdfast")
    counts: list[int] = []
    seq = (await queue.enqueue(1)).seq

    async def work() -> None:
        async with Queue(service.url) as handlers:

            @handlers.handler(queue.name)
            async def handler(_: Any, context: AsyncContext) -> None:
                counts.append(context.received_count)
                time.sleep(3)
                worker.stop()

            worker = Worker(handlers, lease=LEASE)
            await worker.run(signals=False)

    await asyncio.to_thread(asyncio.run, work())
    assert counts == [1]
    events = [event.event for event in (await queue.history(seq)).events]
    assert [event for event in events if event != "extended"] == ["enqueued", "claimed", "acked"]
    [report] = [record.getMessage() for record in caplog.records if "blocked" in record.getMessage()]
    first, where, line, *_ = report.splitlines()
    assert first.endswith(f"s by job {seq} of {queue.name}:")
    assert __file__ in where
    assert line.strip() == "time.sleep(3)"


@pytest.mark.parametrize("reason", ["lost", "cancelled"])
async def test_a_job_that_is_its_workers_no_more_is_told_to_its_handler(
    queue: AsyncTopic, handlers: Queue, reason: str
) -> None:
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
    async with working(handlers, lease=LEASE):
        await begun.wait()
        if reason == "lost":
            await queue.ack(models.Lease(seq, handlers.account.node))  # by somebody who knows how
        else:
            assert (await queue.cancel(seq)).marked == 1
            assert (await outcome(queue, seq)).state == "cancelled"
        await fact(lambda: ended)
    assert ended == [reason]


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


@pytest.mark.parametrize("stops", [1, 2])
@pytest.mark.parametrize("threaded", [False, True])
async def test_a_job_that_a_stop_interrupts_has_had_its_delivery(
    queue: AsyncTopic, handlers: Queue, stops: int, threaded: bool
) -> None:
    """After the grace or a second stop it goes back at once, and the next worker sees that it had begun before."""
    begun = asyncio.Event()
    loop = asyncio.get_running_loop()

    async def wait_for_ever(_: Any) -> None:
        begun.set()
        await asyncio.Event().wait()

    def wait_in_a_thread(_: Any, context: SyncContext) -> None:
        loop.call_soon_threadsafe(begun.set)
        context.signal.wait(20)

    handlers.handler(queue.name)(wait_in_a_thread if threaded else wait_for_ever)
    seq = (await queue.enqueue(1)).seq
    worker = Worker(handlers, grace=0.1 if stops == 1 else 30)
    running = asyncio.create_task(worker.run(signals=False))
    await begun.wait()
    for _ in range(stops):
        worker.stop()
    await asyncio.wait_for(running, 20)
    job = await queue.job(seq)
    assert (job.state, job.deliveries) == ("ready", 1)
    assert job.last_error == "its worker stopped before the job was done"
    [again] = (await queue.claim()).jobs
    assert again.deliveries == 2


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


async def test_a_worker_waits_for_its_topic_and_says_so_once(
    client: AsyncClient, handlers: Queue, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "holdfast")
    handlers.handler(topic)(lambda _: None)
    async with working(handlers) as worker:
        await fact(lambda: worker._lanes and worker._lanes[0]._failures > 3)
        await client.topic(topic).put()
        await outcome(client.topic(topic), (await client.topic(topic).enqueue(1)).seq)
    for said, times in (
        (f"Waiting for topic {topic}: it does not exist yet", 1),
        (f"Topic {topic} exists now", 1),
        ("A claim of", 0),
    ):
        assert sum(said in record.getMessage() for record in caplog.records) == times


async def test_a_claim_that_is_answered_with_something_else_is_tried_again(queue: AsyncTopic, proxy: Proxy) -> None:
    for answer in (b"{}", b"[]", b'{"claimed": [{}], "ready": 0}', b'{"claimed": [], "ready": null}'):
        proxy.say("POST /claim", answer)
    async with Queue(proxy.url) as handlers:
        handlers.handler(queue.name)(lambda _: None)
        seq = (await queue.enqueue(1)).seq
        async with working(handlers):
            assert (await outcome(queue, seq)).state == "completed"
    assert proxy.count("POST /claim") > 4


async def test_claims_go_out_beside_each_other_while_answers_are_full(queue: AsyncTopic, proxy: Proxy) -> None:
    first, second = proxy.hold("POST /claim"), proxy.hold("POST /claim")
    async with Queue(proxy.url) as handlers:

        @handlers.handler(queue.name, concurrency=1_000)
        async def handler(_: int) -> None:
            pass

        await queue.enqueue_many(range(3_000))
        async with working(handlers):
            await proxy.asked("POST /claim")
            first.set()
            await proxy.asked("POST /claim", 3)
            second.set()


async def test_acks_go_out_together_while_one_is_under_way_and_never_wait_for_it(
    queue: AsyncTopic, proxy: Proxy, monkeypatch: pytest.MonkeyPatch
) -> None:
    ran = 0
    async with Queue(proxy.url) as handlers:

        @handlers.handler(queue.name, concurrency=1)
        async def handler(_: Any) -> None:
            nonlocal ran
            ran += 1

        async with working(handlers):
            come = proxy.hold("POST /ack")
            for number in (1, 2, 3):
                assert (await outcome(queue, (await queue.enqueue(1)).seq)).state == "completed"
                assert proxy.count("POST /ack") == number, "the first one has not even been given up"
            come.set()

            monkeypatch.setattr("holdfast._worker.settler.LATE_SECONDS", 3_600)  # nothing goes out because it is late
            come = proxy.hold("POST /ack")
            await queue.enqueue_many(range(300))
            await fact(lambda: ran == 303)
            come.set()
            async with asyncio.timeout(30):
                while (await queue.get()).count:
                    await asyncio.sleep(0.01)
    assert proxy.count("POST /ack") < 150, "what gathered went out together"


async def test_a_lost_answer_to_an_ack_acks_once(queue: AsyncTopic, proxy: Proxy) -> None:
    async with Queue(proxy.url) as handlers:
        ran: list[int] = []

        @handlers.handler(queue.name)
        async def handler(number: int) -> None:
            ran.append(number)

        proxy.lose("POST /ack")
        seq = (await queue.enqueue(1)).seq
        async with working(handlers):
            assert (await outcome(queue, seq)).state == "completed"
            await proxy.asked("POST /ack", 2)
    assert ran == [1]


async def test_an_ack_does_not_wait_for_a_thousand_retries(queue: AsyncTopic, proxy: Proxy) -> None:
    go = asyncio.Event()
    begun = 0
    async with Queue(proxy.url) as handlers:

        @handlers.handler(queue.name, concurrency=1_000)
        async def handler(number: int) -> Any:
            nonlocal begun
            begun += 1
            await go.wait()
            return Retry(100 + number) if number else None

        await queue.enqueue_many([*range(1, 1_000), 0])
        async with working(handlers):
            await fact(lambda: begun == 1_000)
            go.set()
            await proxy.asked("POST /ack")
    paths = [line.partition("?")[0] for line in proxy.lines]
    settled = [path.rpartition("/")[2] for path in paths if path.endswith(("/ack", "/nack"))]
    assert settled.index("ack") < 20
    assert settled.count("nack") < 300, "they share requests"
    assert [job.data for job in [job async for job in queue.jobs()] if job.state != "scheduled"] == []
