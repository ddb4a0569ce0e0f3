"""Leases that are kept while work goes on, and what its worker is told when one is lost."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from datetime import timedelta

import pytest

from holdfast import BrokerQueue, HeartbeatManager, Job, LeaseLost, errors
from tests.conftest import Running
from tests.sdk.proxy import Proxy

LEASE = timedelta(seconds=1.5)  # a third of it is what a slow machine may be late by


@pytest.fixture
async def queue(proxy: Proxy, topic: str) -> AsyncIterator[BrokerQueue]:
    async with BrokerQueue(proxy.url, topic, LEASE) as queue:
        yield queue


async def taken(queue: BrokerQueue) -> Job:
    await queue.enqueue("task", b"")
    [job] = await queue.dequeue("task")
    return job


async def test_a_block_of_the_loop_costs_no_lease_and_is_reported(
    service: Running, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The service is in this process: what blocks the loop of the tests would block it. So the worker has one of its
    own."""
    caplog.set_level(logging.WARNING, "holdfast")

    async def work() -> int:
        async with BrokerQueue(service.url, topic, LEASE) as queue:
            job = await taken(queue)
            async with HeartbeatManager(queue, job.id):
                time.sleep(4)
            assert await queue.dequeue("task") == []
            await queue.ack(job.id)
            return job.deliveries

    assert await asyncio.to_thread(asyncio.run, work()) == 1
    [report] = [record.getMessage() for record in caplog.records if "blocked" in record.getMessage()]
    first, where, line, *_ = report.splitlines()
    assert first.endswith(f"by job 1 of {topic}:")
    assert __file__ in where, "its stack begins where the loop was blocked"
    assert line.strip() == "time.sleep(4)"


async def test_heartbeats_of_jobs_go_out_together(queue: BrokerQueue, proxy: Proxy) -> None:
    jobs = [await taken(queue) for _ in range(3)]
    managers = [HeartbeatManager(queue, job.id) for job in jobs]
    for manager in managers:
        await manager.__aenter__()
    while proxy.count("POST /extend") < 3:
        await asyncio.sleep(0.01)
    for manager in managers:
        await manager.__aexit__(None, None, None)
    assert proxy.count("POST /extend") < 6, "three rounds of three jobs"
    await asyncio.gather(*(queue.ack(job.id) for job in jobs))


async def test_a_lost_lease_cancels_the_work(queue: BrokerQueue, service: Running) -> None:
    job = await taken(queue)
    async with BrokerQueue(service.url, queue.topic) as other:

        async def work() -> None:
            async with HeartbeatManager(queue, job.id):
                await other.ack(job.id)
                await asyncio.Event().wait()

        with pytest.raises(LeaseLost) as caught:
            await work()
    assert caught.value.job_id == job.id
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
    await asyncio.sleep(0)


async def test_work_that_ends_before_it_hears_of_it_is_told_nevertheless(queue: BrokerQueue, service: Running) -> None:
    job = await taken(queue)
    async with BrokerQueue(service.url, queue.topic) as other:
        await other.read_state()

        async def work() -> None:
            async with HeartbeatManager(queue, job.id) as manager:
                await other.ack(job.id)
                while manager._lost is None:
                    try:
                        await asyncio.sleep(0.01)
                    except asyncio.CancelledError:
                        break

        with pytest.raises(LeaseLost):
            await asyncio.create_task(work())


async def test_an_ack_inside_the_block_is_no_loss(queue: BrokerQueue, proxy: Proxy) -> None:
    """The answer to the ack comes after some heartbeats, which all find nothing to extend."""
    job = await taken(queue)
    async with HeartbeatManager(queue, job.id, timedelta(milliseconds=20)):
        proxy.delay("POST /ack", 0.2)
        await queue.ack(job.id)
        await asyncio.sleep(0.05)
    assert (await queue.read_state()).jobs == ()


async def test_a_heartbeat_that_fails_is_tried_again(queue: BrokerQueue, proxy: Proxy) -> None:
    job = await taken(queue)
    async with HeartbeatManager(queue, job.id):
        for _ in range(3):
            proxy.lose("POST /extend")
        while proxy.count("POST /extend") < 6:
            await asyncio.sleep(0.01)
    await queue.ack(job.id)


async def test_a_service_out_of_reach_is_a_lost_lease_when_that_must_have_ended(
    queue: BrokerQueue, proxy: Proxy
) -> None:
    job = await taken(queue)
    began = time.monotonic()

    async def work() -> None:
        async with HeartbeatManager(queue, job.id):
            for _ in range(1_000):
                proxy.lose("POST /extend")
            await asyncio.Event().wait()

    with pytest.raises(LeaseLost) as caught:
        await work()
    assert time.monotonic() - began > LEASE.total_seconds() * 0.9
    assert isinstance(caught.value.__cause__, asyncio.CancelledError)
    assert isinstance(caught.value.reason, errors.APIConnectionError)


async def test_a_cancellation_from_outside_stays_one(queue: BrokerQueue) -> None:
    job = await taken(queue)
    entered = asyncio.Event()

    async def work() -> None:
        async with HeartbeatManager(queue, job.id):
            entered.set()
            await asyncio.Event().wait()

    working = asyncio.create_task(work())
    await entered.wait()
    working.cancel()
    with pytest.raises(asyncio.CancelledError):
        await working
    await queue.ack(job.id)


async def test_few_heartbeats_are_warned_of(queue: BrokerQueue, caplog: pytest.LogCaptureFixture) -> None:
    HeartbeatManager(queue, "1", timedelta(seconds=1))
    assert "a third of it is safe" in caplog.text


class Beating:
    """An object with a heartbeat, which raises an error where it has one."""

    def __init__(self, *raises: Exception) -> None:
        self.raises = list(raises)
        self.beats: list[str] = []

    async def heartbeat(self, job_id: str) -> None:
        self.beats.append(job_id)
        if self.raises:
            raise self.raises.pop(0)


FAST = timedelta(milliseconds=5)


async def test_any_object_with_a_heartbeat_will_do() -> None:
    beating = Beating(errors.StorageError("heartbeat", OSError("away")))
    async with HeartbeatManager(beating, "7", FAST):
        while len(beating.beats) < 4:
            await asyncio.sleep(0.005)
    sent = len(beating.beats)
    await asyncio.sleep(0.05)
    assert beating.beats == ["7"] * sent, "none after the block"
    assert HeartbeatManager(beating, "7").interval == timedelta(seconds=60)


async def test_an_object_that_wraps_a_queue_keeps_its_leases(queue: BrokerQueue) -> None:
    class Wrapper:
        stale_timeout = queue.stale_timeout

        async def heartbeat(self, job_id: str) -> None:
            await queue.heartbeat(job_id)

    job = await taken(queue)
    manager = HeartbeatManager(Wrapper(), job.id)
    assert manager.interval == LEASE / 3
    async with manager:
        await asyncio.sleep(LEASE.total_seconds() * 1.5)
    await queue.ack(job.id)


async def test_a_job_that_has_gone_ends_an_objects_heartbeats(caplog: pytest.LogCaptureFixture) -> None:
    beating = Beating(errors.JobNotFoundError("7"))
    async with HeartbeatManager(beating, "7", FAST):
        await asyncio.sleep(0.1)
    assert beating.beats == ["7"]
    assert "No more heartbeats for job 7" in caplog.text


async def test_another_error_of_an_object_is_raised_when_the_block_ends() -> None:
    with pytest.raises(RuntimeError, match="unexpected"):
        async with HeartbeatManager(Beating(RuntimeError("unexpected")), "7", FAST):
            await asyncio.sleep(0.1)

    async def fail() -> None:
        async with HeartbeatManager(Beating(RuntimeError("unexpected")), "7", FAST):
            await asyncio.sleep(0.1)
            raise ValueError("of the block")

    with pytest.raises(ValueError, match="of the block"):
        await fail()
