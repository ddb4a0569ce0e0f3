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

SHORT = timedelta(milliseconds=100)


@pytest.fixture
async def broker(proxy: Proxy, topic: str) -> AsyncIterator[BrokerQueue]:
    """A queue whose requests the proxy counts, and whose topic is there."""
    async with BrokerQueue(proxy.url, topic) as queue:
        await queue.read_state()
        yield queue


async def test_calls_that_come_together_are_one_batch(broker: BrokerQueue, proxy: Proxy) -> None:
    jobs = await asyncio.gather(*(broker.enqueue("task", b"%d" % i) for i in range(50)))
    assert len({job.id for job in jobs}) == 50
    assert proxy.count(f"POST /{broker.topic}") == 1
    taken = await asyncio.gather(*(broker.dequeue("task") for _ in range(50)))
    assert sorted(job.payload for [job] in taken) == sorted(b"%d" % i for i in range(50))
    assert proxy.count("POST /claim") == 1
    await asyncio.gather(*(broker.ack(job.id) for [job] in taken))
    assert proxy.count("POST /ack") == 1
    assert (await broker.read_state()).jobs == ()


async def test_calls_that_come_while_one_is_under_way_are_the_next_batch(broker: BrokerQueue, proxy: Proxy) -> None:
    proxy.delay(f"POST /{broker.topic}", 0.3)
    first = asyncio.create_task(broker.enqueue("task", b"first"))
    while not proxy.count(f"POST /{broker.topic}"):
        await asyncio.sleep(0.005)
    others = [asyncio.create_task(broker.enqueue("task", b"other")) for _ in range(20)]
    await asyncio.gather(first, *others)
    assert proxy.count(f"POST /{broker.topic}") == 2


async def test_a_bad_enqueue_fails_alone(broker: BrokerQueue) -> None:
    payloads = [b"good", b"x" * (1 << 20), b"good", b"good", b"good"]
    outcomes = await asyncio.gather(*(broker.enqueue("task", p) for p in payloads), return_exceptions=True)
    assert [isinstance(outcome, StorageError) for outcome in outcomes] == [False, True, False, False, False]
    refused = outcomes[1]
    assert isinstance(refused, StorageError)
    assert isinstance(refused.cause, errors.TooLarge)
    assert str(refused) == f"enqueue on {broker.topic}: {refused.cause}"
    assert [job.payload for job in (await broker.read_state()).jobs] == [b"good"] * 4


async def test_a_bad_settlement_fails_alone(broker: BrokerQueue, proxy: Proxy) -> None:
    await broker.enqueue("task", b"")
    [job] = await broker.dequeue("task")
    outcomes = await asyncio.gather(
        *(broker.ack(job_id) for job_id in ("4711", job.id, "no id", job.id)), return_exceptions=True
    )
    assert [type(outcome) for outcome in outcomes] == [JobNotFoundError, type(None), JobNotFoundError, JobNotFoundError]
    missing = outcomes[0]
    assert isinstance(missing, JobNotFoundError)
    assert missing.job_id == "4711"
    assert proxy.count("POST /ack") == 1


async def test_what_a_claim_finds_goes_round(broker: BrokerQueue, proxy: Proxy) -> None:
    await asyncio.gather(*(broker.enqueue("task", b"") for _ in range(5)))
    shares = await asyncio.gather(*(broker.dequeue("task", batch_size=size) for size in (1, 3, 4)))
    assert [len(share) for share in shares] == [1, 2, 2]
    assert proxy.count("POST /claim") == 1


async def test_an_entrypoint_is_dequeued_by_its_name(broker: BrokerQueue) -> None:
    await asyncio.gather(*(broker.enqueue(name, name.encode()) for name in ("email", "sms", "email")))
    assert [job.payload for job in await broker.dequeue("sms", batch_size=10)] == [b"sms"]
    assert await broker.dequeue("sms") == []
    assert {job.entrypoint for job in await broker.dequeue(batch_size=10)} == {"email"}


async def test_lower_priorities_come_first(broker: BrokerQueue) -> None:
    given = (99, 10, 12, 3, 0, -5, 32_767, -32_768)
    for priority in given:
        await broker.enqueue("report", b"", priority=priority)
    assert [job.priority for job in (await broker.read_state()).queued_jobs()] == sorted(given)
    jobs = [job for _ in given for job in await broker.dequeue("report")]
    assert [job.priority for job in jobs] == sorted(given)


async def test_priorities_beyond_the_levels_need_a_topic_of_low_ones_first(
    client: AsyncClient, queue: AsyncTopic
) -> None:
    async with BrokerQueue(client, queue.name) as broker:
        outcomes = await asyncio.gather(
            *(broker.enqueue("task", b"", priority) for priority in (0, 12, 9)), return_exceptions=True
        )
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
    with pytest.raises(LeaseLost):
        await broker.ack(put.id)


async def test_whoever_has_lost_the_lease_settles_nothing(service: Running, topic: str) -> None:
    async with BrokerQueue(service.url, topic, SHORT) as slow, BrokerQueue(service.url, topic) as quick:
        await slow.enqueue("task", b"")
        [job] = await slow.dequeue("task")
        again: list[Job] = []
        while not again:
            again = await quick.dequeue("task")
        assert (again[0].id, again[0].deliveries) == (job.id, 2)
        for verb in (slow.ack, slow.heartbeat, slow.nack):
            await quick.heartbeat(job.id)
            with pytest.raises(LeaseLost):
                await verb(job.id)
        assert (await quick.read_state()).find(job.id) is not None
        await quick.ack(job.id)


async def test_a_nack_returns_a_job(broker: BrokerQueue) -> None:
    await broker.enqueue("task", b"")
    [job] = await broker.dequeue("task")
    await broker.nack(job.id)
    [again] = await broker.dequeue("task")
    assert (again.id, again.deliveries) == (job.id, 2)


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
    proxy.delay("POST /claim", 0.3)
    taking = asyncio.create_task(broker.dequeue("task"))
    while not proxy.count("POST /claim"):
        await asyncio.sleep(0.005)
    taking.cancel()
    jobs: list[Job] = []
    while not jobs:
        jobs = await broker.dequeue("task")
    assert jobs[0].deliveries == 1, "it was nobody's, and does not count"


async def test_the_end_of_the_block_waits_for_what_was_called(service: Running, topic: str) -> None:
    async with BrokerQueue(service.url, topic) as queue:
        calls = [asyncio.create_task(queue.enqueue("task", b"")) for _ in range(1_500)]
        await asyncio.sleep(0)
    assert all(call.done() for call in calls)
    async with BrokerQueue(service.url, topic) as queue:
        assert len((await queue.read_state()).queued_jobs("task")) == 1_500
    for call in (queue.enqueue("task", b""), queue.ack("1"), queue.read_state()):
        with pytest.raises(JQueueError, match=f"{topic} is closed"):
            await call
    with pytest.raises(JQueueError, match="is closed"):
        await queue.start()


async def test_a_broker_is_started_and_stopped_without_a_block(client: AsyncClient, topic: str) -> None:
    queue = BrokerQueue(client, topic)
    with pytest.raises(JQueueError, match=r"start\(\) and stop\(\)"):
        await queue.enqueue("task", b"")
    await queue.start()
    with pytest.raises(RuntimeError, match="started already"):
        await queue.start()
    call = asyncio.create_task(queue.enqueue("task", b""))
    await asyncio.sleep(0)
    await queue.stop()
    assert (await queue.read_state()).find((await call).id) is not None, "the client is still open"
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
    await queue.ack(claimed.id)
    assert claimed.id == job.id
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
        while not proxy.count("GET /jobs"):
            await asyncio.sleep(0.005)
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


async def test_a_shorter_lease_than_this_queues_is_not_stale_at_its_claim(client: AsyncClient, topic: str) -> None:
    worker = DirectQueue(client, topic, timedelta(minutes=1))
    await worker.enqueue("task", b"")
    await worker.dequeue()
    assert await DirectQueue(client, topic, timedelta(hours=1)).requeue_stale(timedelta(seconds=50)) == 0


async def test_a_heartbeat_keeps_a_job_from_being_stale(client: AsyncClient, topic: str) -> None:
    queue = DirectQueue(client, topic)
    await queue.enqueue("task", b"")
    await queue.enqueue("task", b"")
    [silent, beating] = await queue.dequeue("task", batch_size=2)
    silence = timedelta(milliseconds=500)
    while True:
        await queue.heartbeat(beating.id)
        if await queue.requeue_stale(silence):
            break
    assert [job.id for job in (await queue.read_state()).queued_jobs()] == [silent.id]
    await queue.ack(beating.id)


async def test_the_topic_is_made_once_and_left_as_it_is(client: AsyncClient, service: Running, topic: str) -> None:
    async with BrokerQueue(client, topic, timedelta(seconds=7)) as queue:
        await asyncio.gather(queue.dequeue(), queue.enqueue("a", b""))
    config = (await client.topic(topic).get()).config
    assert (config.type, config.durable, config.priority_order, config.lease_ms) == (
        "queue",
        True,
        "lowest_first",
        7000,
    )
    await client.topic(topic).put(TopicConfig(max_deliveries=9))
    async with DirectQueue(client, topic) as direct:
        await direct.enqueue("a", b"")
    assert (await client.topic(topic).get()).config.max_deliveries == 9
    assert (await client.health()).status == "ok", "the client is its owner's to close"


@pytest.mark.parametrize(
    ("entrypoint", "payload", "priority", "error"),
    [
        ("task", "text", 0, TypeError),
        ("task", b"", 40_000, ValueError),
        ("", b"", 0, ValueError),
        ("\ud800", b"", 0, ValueError),
        ("ö" * 129, b"", 0, ValueError),
    ],
)
async def test_nonsense_is_refused_at_once(
    broker: BrokerQueue, entrypoint: str, payload: bytes, priority: int, error: type[Exception]
) -> None:
    with pytest.raises(error):
        await broker.enqueue(entrypoint, payload, priority)


async def test_an_argument_of_another_type_is_named(client: AsyncClient, topic: str) -> None:
    number: Any = 5
    queue = DirectQueue(client, topic)
    with pytest.raises(TypeError, match=r"^timeout must be a timedelta, and is 5$"):
        await queue.requeue_stale(number)
    with pytest.raises(TypeError, match=r"^stale_timeout must be a timedelta, and is 5$"):
        DirectQueue(client, topic, number)
    with pytest.raises(TypeError, match=r"^interval must be a timedelta, and is 5$"):
        HeartbeatManager(queue, "1", number)
    with pytest.raises(TypeError, match=r"^priority must be an int, and is '5'$"):
        await queue.enqueue("task", b"", str(number))  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"^an entrypoint is text, and not int$"):
        await queue.enqueue(number, b"")
    with pytest.raises(TypeError, match=r"^batch_size must be an int, and is '5'$"):
        await queue.dequeue(batch_size=str(number))  # type: ignore[arg-type]


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
