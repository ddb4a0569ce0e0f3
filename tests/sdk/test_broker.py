"""Queues of jqueue's shape: group commit, outcomes of each call's own, ids that any process can settle."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import timedelta
from typing import Any

import pytest
from pydantic import SecretStr

from holdfast import (
    AsyncClient,
    AsyncTopic,
    BrokerQueue,
    DirectQueue,
    HeartbeatManager,
    Job,
    JobNotFoundError,
    JobStatus,
    JQueueError,
    LeaseLost,
    StorageError,
    TopicConfig,
    errors,
)
from tests.conftest import Running
from tests.sdk.proxy import Proxy


@pytest.fixture
async def broker(proxy: Proxy, topic: str) -> AsyncIterator[BrokerQueue]:
    """A queue whose requests the proxy counts, and whose topic is there."""
    async with BrokerQueue(proxy.url, topic) as queue:
        await queue.read_state()
        yield queue


async def test_calls_that_come_together_are_one_batch(broker: BrokerQueue, proxy: Proxy) -> None:
    jobs = await asyncio.gather(*(broker.enqueue("task", b"%d" % i) for i in range(50)))
    assert len({job.id for job in jobs}) == 50
    taken = await asyncio.gather(*(broker.dequeue("task") for _ in range(50)))
    assert sorted(job.payload for [job] in taken) == sorted(b"%d" % i for i in range(50))
    await asyncio.gather(*(broker.ack(job.id) for [job] in taken))
    assert (await broker.read_state()).jobs == ()
    assert [proxy.count(f"POST /{path}") for path in (broker.topic, "claim", "ack")] == [1, 1, 1]

    come = proxy.hold(f"POST /{broker.topic}")
    first = asyncio.create_task(broker.enqueue("task", b"first"))
    await proxy.asked(f"POST /{broker.topic}", 2)
    others = [asyncio.create_task(broker.enqueue("task", b"other")) for _ in range(20)]
    await asyncio.sleep(0)
    come.set()
    await asyncio.gather(first, *others)
    assert proxy.count(f"POST /{broker.topic}") == 3, "calls that come while one is under way are the next batch"

    for size in (1, 3, 4):  # what a claim finds goes round
        await asyncio.gather(*(broker.enqueue("few", b"") for _ in range(size)))
    shares = await asyncio.gather(*(broker.dequeue("few", batch_size=size) for size in (2, 5, 6)))
    assert [len(share) for share in shares] == [2, 3, 3]
    assert proxy.count("POST /claim") == 2


async def test_a_bad_call_fails_alone(broker: BrokerQueue, proxy: Proxy) -> None:
    payloads = [b"good", b"x" * (1 << 20), b"good", b"good", b"good"]
    outcomes = await asyncio.gather(*(broker.enqueue("task", p) for p in payloads), return_exceptions=True)
    assert [isinstance(outcome, StorageError) for outcome in outcomes] == [False, True, False, False, False]
    refused = outcomes[1]
    assert isinstance(refused, StorageError)
    assert isinstance(refused.cause, errors.TooLarge)
    assert str(refused) == f"enqueue on {broker.topic}: {refused.cause}"
    assert [job.payload for job in (await broker.read_state()).jobs] == [b"good"] * 4

    [job] = await broker.dequeue("task")
    acks = await asyncio.gather(*(broker.ack(i) for i in ("4711", job.id, "no id", job.id)), return_exceptions=True)
    assert [type(outcome) for outcome in acks] == [JobNotFoundError, type(None), JobNotFoundError, JobNotFoundError]
    assert isinstance(acks[0], JobNotFoundError)
    assert acks[0].job_id == "4711"
    assert proxy.count("POST /ack") == 1


async def test_an_entrypoint_is_dequeued_by_its_name_and_lower_priorities_first(broker: BrokerQueue) -> None:
    given = (99, 10, 12, 3, 0, -5, 32_767, -32_768)
    for priority in given:
        for entrypoint in ("mail", "sms"):
            await broker.enqueue(entrypoint, b"", priority=priority)
    assert [job.priority for job in (await broker.read_state()).queued_jobs("sms")] == sorted(given)
    assert [job.priority for _ in given for job in await broker.dequeue("sms")] == sorted(given)
    assert await broker.dequeue("sms") == []
    some = await broker.dequeue(batch_size=10)
    assert [(job.entrypoint, job.priority) for job in some] == [("mail", priority) for priority in sorted(given)]


async def test_priorities_beyond_the_levels_need_a_topic_of_low_ones_first(
    client: AsyncClient, queue: AsyncTopic
) -> None:
    async with BrokerQueue(client, queue.name) as broker:
        calls = (broker.enqueue("task", b"", priority) for priority in (0, 12, 9))
        outcomes = await asyncio.gather(*calls, return_exceptions=True)
    assert [isinstance(outcome, StorageError) for outcome in outcomes] == [False, True, False]
    assert "priority must be 0 to 9, and is 12" in str(outcomes[1])
    assert "lowest_first takes -32768 to 32767" in str(outcomes[1])


async def test_a_job_is_the_same_everywhere(broker: BrokerQueue, service: Running) -> None:
    put = await broker.enqueue("task", b"\0\xff", priority=2)
    [taken] = await broker.dequeue("task")
    assert (taken.id, taken.entrypoint, taken.payload, taken.priority) == (put.id, "task", b"\0\xff", 2)
    assert (put.status, taken.status, taken.deliveries) == (JobStatus.QUEUED, JobStatus.IN_PROGRESS, 1)
    assert taken.heartbeat_at is not None
    async with BrokerQueue(service.url, broker.topic) as other:
        state = await other.read_state()
        found = state.find(put.id)
        assert found is not None
        assert (found.status, found.payload, found.priority) == (JobStatus.IN_PROGRESS, b"\0\xff", 2)
        assert state.in_progress_jobs() == (found,)
        assert state.queued_jobs() == ()
        await other.ack(put.id)
    assert (await broker.read_state()).jobs == ()
    for verb in (broker.heartbeat, broker.nack, broker.ack):
        with pytest.raises(LeaseLost):
            await verb(put.id)


async def test_lost_answers_change_no_outcome(broker: BrokerQueue, proxy: Proxy) -> None:
    proxy.lose(f"POST /{broker.topic}")
    await asyncio.gather(broker.enqueue("task", b"1"), broker.enqueue("task", b"2"))
    assert len((await broker.read_state()).jobs) == 2
    one, two = await broker.dequeue("task", batch_size=2)
    proxy.lose("POST /nack")
    await broker.nack(one.id)
    proxy.lose("POST /ack")
    await broker.ack(two.id)
    assert [job.id for job in (await broker.read_state()).jobs] == [one.id]


async def test_a_job_whose_taker_has_left_goes_back(broker: BrokerQueue, proxy: Proxy) -> None:
    await broker.enqueue("task", b"")
    come = proxy.hold("POST /claim")
    taking = asyncio.create_task(broker.dequeue("task"))
    await proxy.asked("POST /claim")
    taking.cancel()
    await asyncio.sleep(0)
    come.set()
    jobs: list[Job] = []
    while not jobs:
        jobs = await broker.dequeue("task")
    assert jobs[0].deliveries == 1, "it was nobody's, and does not count"


async def test_the_end_waits_for_what_was_called(service: Running, client: AsyncClient, topic: str) -> None:
    """Of a block, or by stop()."""
    async with BrokerQueue(service.url, topic) as queue:
        calls = [asyncio.create_task(queue.enqueue("task", b"")) for _ in range(1_500)]
        await asyncio.sleep(0)
    assert all(call.done() for call in calls)
    for closed in (queue.enqueue("task", b""), queue.ack("1"), queue.start()):
        with pytest.raises(JQueueError, match="is closed"):
            await closed

    queue = BrokerQueue(client, topic)
    with pytest.raises(JQueueError, match=r"start\(\) and stop\(\)"):
        await queue.enqueue("task", b"")
    await queue.start()
    with pytest.raises(RuntimeError, match="already started"):
        await queue.start()
    call = asyncio.create_task(queue.enqueue("task", b""))
    await asyncio.sleep(0)
    await queue.stop()
    state = await queue.read_state()
    assert state.find((await call).id) is not None, "the client is still open"
    assert len(state.queued_jobs("task")) == 1_501
    with pytest.raises(JQueueError, match="is closed"):
        await queue.enqueue("task", b"")
    await queue.start()
    assert len(await queue.dequeue("task")) == 1
    await queue.stop()


async def test_a_direct_queue_has_the_same_verbs(service: Running, topic: str) -> None:
    queue = DirectQueue(service.url, topic)
    job = await queue.enqueue("task", b"data")
    [claimed] = await queue.dequeue("task")
    await queue.heartbeat(claimed.id)
    await queue.nack(claimed.id)
    [claimed] = await queue.dequeue()
    assert (claimed.id, claimed.deliveries) == (job.id, 2)
    await queue.ack(claimed.id)
    with pytest.raises(JobNotFoundError):
        await queue.ack(claimed.id)
    await queue.aclose()
    for call in (queue.enqueue("task", b""), queue.read_state(), queue.requeue_stale(timedelta(0))):
        with pytest.raises(JQueueError, match="is closed"):
            await call
    with pytest.raises(JQueueError, match="is closed"):
        async with HeartbeatManager(queue, job.id):
            pass


async def test_stale_jobs_are_requeued(client: AsyncClient, topic: str) -> None:
    queue = DirectQueue(client, topic)
    for _ in range(3):
        await queue.enqueue("task", b"")
    [first, second] = await queue.dequeue("task", batch_size=2)
    others = client.topic(topic)
    [held] = (await others.claim(lease_ms=60_000)).jobs
    assert await queue.requeue_stale(timedelta(minutes=1)) == 0
    longer = DirectQueue(client, topic, timedelta(hours=1))
    assert await longer.requeue_stale(timedelta(minutes=50)) == 0, "a shorter lease is not stale at its claim"
    assert len((await queue.read_state()).in_progress_jobs()) == 3
    assert await queue.requeue_stale(timedelta(0)) == 2, "a worker's own job is not touched"
    assert [job.id for job in (await queue.read_state()).queued_jobs()] == [first.id, second.id]
    with pytest.raises(LeaseLost):
        await queue.ack(first.id)
    await others.ack(held)


async def test_jobs_that_move_on_while_stale_ones_are_looked_for_are_left(
    client: AsyncClient, proxy: Proxy, topic: str
) -> None:
    """One that another worker has by now, one that got a heartbeat; and one that fails is not available."""
    await client.topic(topic).put(TopicConfig(max_deliveries=2, on_exhausted="fail"))
    worker = DirectQueue(client, topic)
    [moved, beating, stale] = [await worker.enqueue(name, b"") for name in ("moved", "beating", "stale")]
    await client.topic(topic).enqueue(b"", tenant="spent", tag="spent", max_deliveries=1)
    for name in ("moved", "beating", "stale", "spent"):
        await worker.dequeue(name)
    async with DirectQueue(proxy.url, topic) as sweeper:
        come = proxy.hold("GET /jobs")
        sweeping = asyncio.create_task(sweeper.requeue_stale(timedelta(0)))
        await proxy.asked("GET /jobs")
        await worker.nack(moved.id)
        other = DirectQueue(client, topic)
        assert [job.id for job in await other.dequeue("moved")] == [moved.id]
        await worker.heartbeat(beating.id)
        come.set()
        assert await sweeping == 1
    await other.ack(moved.id)
    await worker.ack(beating.id)
    state = await worker.read_state()
    assert [job.id for job in state.queued_jobs()] == [stale.id]
    assert [job.status for job in state.jobs if job.entrypoint == "spent"] == [JobStatus.DEAD]


async def test_the_topic_is_made_once_and_left_as_it_is(client: AsyncClient, topic: str) -> None:
    async with BrokerQueue(client, topic, timedelta(seconds=7)) as queue:
        await asyncio.gather(queue.dequeue(), queue.enqueue("a", b""))
    config = (await client.topic(topic).get()).config
    assert (config.type, config.durable, config.lease_ms) == ("queue", True, 7_000)
    assert config.priority_order == "lowest_first"
    await client.topic(topic).put(TopicConfig(max_deliveries=9))
    async with DirectQueue(client, topic) as direct:
        await direct.enqueue("a", b"")
    assert (await client.topic(topic).get()).config.max_deliveries == 9
    assert (await client.health()).status == "ok", "the client is its owner's to close"


async def test_nonsense_is_refused_at_once(client: AsyncClient, topic: str) -> None:
    queue: Any = DirectQueue(client, topic)
    refused: list[tuple[Callable[[], Any], type[Exception], str]] = [
        (lambda: queue.enqueue("task", "text"), TypeError, "bytes"),
        (lambda: queue.enqueue("task", b"", 40_000), ValueError, "priority"),
        (lambda: queue.enqueue("", b""), ValueError, "entrypoint"),
        (lambda: queue.enqueue("\ud800", b""), ValueError, "surrogates"),
        (lambda: queue.enqueue("ö" * 129, b""), ValueError, "entrypoint"),
        (lambda: queue.enqueue(5, b""), TypeError, "^entrypoint must be a str, not int$"),
        (lambda: queue.enqueue("task", b"", "5"), TypeError, "^priority must be an int, not '5'$"),
        (lambda: queue.dequeue(batch_size="5"), TypeError, "^batch_size must be an int, not '5'$"),
        (lambda: queue.requeue_stale(5), TypeError, "^timeout must be a timedelta, not 5$"),
        (lambda: DirectQueue(client, topic, 5), TypeError, "^stale_timeout must be a timedelta, not 5$"),  # type: ignore[arg-type]
        (lambda: HeartbeatManager(queue, "1", 5), TypeError, "^interval must be a timedelta, not 5$"),  # type: ignore[arg-type]
    ]
    for call, error, said in refused:
        with pytest.raises(error, match=said):
            await call()


async def test_a_producer_needs_no_right_but_to_write(
    serve: Callable[..., Awaitable[Running]], new_database: Callable[[], Awaitable[str]], topic: str
) -> None:
    service = await serve(database_url=SecretStr(await new_database()), api_keys="all, producer:w")
    async with BrokerQueue(service.url, topic, api_key="all") as owner:
        await owner.read_state()
        async with BrokerQueue(service.url, topic, api_key="producer") as producer:
            job = await producer.enqueue("task", b"")
        assert (await owner.read_state()).find(job.id) is not None


async def test_a_log_is_no_queue(client: AsyncClient, topic: str) -> None:
    await client.topic(topic).put(TopicConfig(type="log"))
    async with BrokerQueue(client, topic) as queue:
        with pytest.raises(JQueueError) as caught:
            await queue.dequeue()
    assert isinstance(caught.value, StorageError)
    assert isinstance(caught.value.cause, errors.NotAQueue)
