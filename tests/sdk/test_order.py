"""A batch of jobs is worked on in claim order, high priorities first, whichever was enqueued first."""

from __future__ import annotations

import asyncio

import pytest

from holdfast import AsyncClient, AsyncTopic, BrokerQueue, Queue, Record
from tests.conftest import Running
from tests.sdk.workers import fact, working

LOW, HIGH = range(5), range(5, 10)


@pytest.fixture
async def filled(queue: AsyncTopic) -> AsyncTopic:
    """Five jobs of low priority, and five of high priority after them."""
    await queue.enqueue_many([Record(data=n, priority=1) for n in LOW] + [Record(data=n, priority=8) for n in HIGH])
    return queue


async def test_a_claim_is_in_that_order(filled: AsyncTopic) -> None:
    claimed = await filled.claim(max=10)
    assert [job.data for job in claimed.jobs] == [*HIGH, *LOW]
    assert [job.order for job in claimed.jobs] == list(range(1, 11))


async def test_a_worker_begins_jobs_in_that_order(filled: AsyncTopic, handlers: Queue) -> None:
    begun: list[int] = []
    go = asyncio.Event()

    @handlers.handler(filled.name, concurrency=10)
    async def handler(number: int) -> None:
        begun.append(number)
        await go.wait()

    async with working(handlers):
        await fact(lambda: len(begun) == 10)
        go.set()
    assert begun == [*HIGH, *LOW]


async def test_a_dequeue_of_jqueues_is_in_that_order(service: Running, client: AsyncClient, topic: str) -> None:
    """Low numbers first there, over all entrypoints."""
    async with BrokerQueue(client, topic) as queue:
        for entrypoint in ("mail", "sms"):
            for priority in (7, 7, 2):
                await queue.enqueue(entrypoint, b"", priority=priority)
        jobs = await queue.dequeue(batch_size=6)
    assert [job.priority for job in jobs] == [2, 2, 7, 7, 7, 7]
