"""Leases that are kept while work goes on, and what its worker is told when one is lost."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import AsyncIterator
from datetime import timedelta
from typing import Any

import pytest

from holdfast import AsyncClient, BrokerQueue, HeartbeatManager, Job, LeaseLost, errors
from holdfast._heartbeats import culprits
from tests.conftest import Running
from tests.sdk.proxy import Proxy
from tests.sdk.workers import fact

LEASE = timedelta(seconds=1.5)  # a third of it is what a slow machine may be late by


@pytest.fixture
async def queue(proxy: Proxy, topic: str) -> AsyncIterator[BrokerQueue]:
    async with BrokerQueue(proxy.url, topic, LEASE) as queue:
        yield queue


@pytest.fixture
async def other(service: Running, topic: str) -> AsyncIterator[BrokerQueue]:
    """The same queue in another process."""
    async with BrokerQueue(service.url, topic) as other:
        await other.read_state()
        yield other


async def taken(queue: BrokerQueue) -> Job:
    await queue.enqueue("task", b"")
    [job] = await queue.dequeue("task")
    return job


async def test_a_block_of_the_loop_costs_no_lease_and_is_reported(
    service: Running, topic: str, caplog: pytest.LogCaptureFixture
) -> None:
    """The service is in this process, so the worker has a loop of its own."""
    caplog.set_level(logging.WARNING, "holdfast")

    async def work() -> int:
        async with BrokerQueue(service.url, topic, LEASE) as queue:
            job = await taken(queue)
            async with HeartbeatManager(queue, job.id):
                time.sleep(3)
            assert await queue.dequeue("task") == []
            await queue.ack(job.id)
            return job.deliveries

    assert await asyncio.to_thread(asyncio.run, work()) == 1
    [report] = [record.getMessage() for record in caplog.records if "blocked" in record.getMessage()]
    first, where, line, *_ = report.splitlines()
    assert first.endswith(f"by job 1 of {topic}:")
    assert __file__ in where, "its stack begins where the loop was blocked"
    assert line.strip() == "time.sleep(3)"


def test_a_blocked_loop_names_what_may_block_it() -> None:
    assert culprits([], None) == ""
    jobs: list[tuple[str, None]] = [(f"job {n} of mail", None) for n in range(7)]
    task: Any = object()
    assert culprits(jobs[:2], task) == " while these ran: job 0 of mail, job 1 of mail"
    assert culprits(jobs, task).endswith("job 4 of mail and 2 more")
    assert culprits([*jobs, ("job 9 of mail", task)], task) == " by job 9 of mail"


async def test_heartbeats_of_jobs_go_out_together(client: AsyncClient, proxy: Proxy, topic: str) -> None:
    async with BrokerQueue(proxy.url, topic, timedelta(seconds=30)) as queue:
        jobs = [await taken(queue) for _ in range(3)]
        managers = [HeartbeatManager(queue, job.id, timedelta(seconds=0.3)) for job in jobs]
        for manager in managers:
            await manager.__aenter__()
        await proxy.asked("POST /extend", 3)
        for manager in managers:
            await manager.__aexit__(None, None, None)
        histories = [await client.topic(topic).history(int(job.id)) for job in jobs]
        extended = [event for history in histories for event in history.events if event.event == "extended"]
        assert len(extended) > proxy.count("POST /extend")
        await asyncio.gather(*(queue.ack(job.id) for job in jobs))


async def test_a_lost_lease_cancels_the_work(queue: BrokerQueue, other: BrokerQueue) -> None:
    job = await taken(queue)

    async def work() -> None:
        async with HeartbeatManager(queue, job.id):
            await other.ack(job.id)
            await asyncio.Event().wait()

    with pytest.raises(LeaseLost) as caught:
        await work()
    assert caught.value.job_id == job.id
    assert asyncio.current_task().cancelling() == 0  # type: ignore[union-attr]
    await asyncio.sleep(0)


async def test_work_that_ends_before_it_hears_of_it_is_told_nevertheless(
    queue: BrokerQueue, other: BrokerQueue
) -> None:
    job = await taken(queue)

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


async def test_an_ack_inside_the_block_is_no_loss(queue: BrokerQueue, other: BrokerQueue, proxy: Proxy) -> None:
    """The answer to the ack comes after some heartbeats, which all find nothing to extend."""
    job = await taken(queue)
    async with HeartbeatManager(queue, job.id, timedelta(milliseconds=20)):
        come = proxy.hold("POST /ack")
        acking = asyncio.create_task(queue.ack(job.id))
        while (await other.read_state()).jobs:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.1)  # five heartbeats
        come.set()
        await acking


async def test_a_heartbeat_that_fails_is_tried_again_until_the_lease_must_have_ended(
    queue: BrokerQueue, proxy: Proxy
) -> None:
    job = await taken(queue)
    began = time.monotonic()

    async def work() -> None:
        async with HeartbeatManager(queue, job.id):
            for _ in range(3):
                proxy.lose("POST /extend")
            await proxy.asked("POST /extend", 5)
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


class Beating:
    """An object with a heartbeat, which raises an error where it has one."""

    def __init__(self, *raises: Exception) -> None:
        self.raises = list(raises)
        self.beats: list[str] = []
        self.stale_timeout: timedelta | None = None

    async def heartbeat(self, job_id: str) -> None:
        self.beats.append(job_id)
        if self.raises:
            raise self.raises.pop(0)


FAST = timedelta(milliseconds=5)


async def test_any_object_with_a_heartbeat_will_do(caplog: pytest.LogCaptureFixture) -> None:
    beating = Beating(errors.StorageError("heartbeat", OSError("away")))
    assert HeartbeatManager(beating, "7").interval == timedelta(seconds=60)
    beating.stale_timeout = LEASE
    assert HeartbeatManager(beating, "7").interval == LEASE / 3
    assert not caplog.text
    HeartbeatManager(beating, "7", LEASE)
    assert "use a third of it or less" in caplog.text
    async with HeartbeatManager(beating, "7", FAST):
        await fact(lambda: len(beating.beats) == 4)
    sent = len(beating.beats)
    await asyncio.sleep(0.05)
    assert beating.beats == ["7"] * sent, "none after the block"

    gone = Beating(errors.JobNotFoundError("7"))
    async with HeartbeatManager(gone, "7", FAST):
        await fact(lambda: "No more heartbeats for job 7" in caplog.text)
    assert gone.beats == ["7"]

    async def fail(error: Exception | None) -> None:
        broken = Beating(RuntimeError("unexpected"))
        async with HeartbeatManager(broken, "7", FAST):
            await fact(lambda: broken.beats)
            if error:
                raise error

    for error in (None, ValueError("of the block")):
        with pytest.raises(type(error) if error else RuntimeError):
            await fail(error)
