"""A queue whose service is killed again and again: nothing is lost, nothing is written twice, no ack is undone."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from datetime import timedelta
from pathlib import Path

import pytest

from holdfast import AsyncClient, BrokerQueue, HeartbeatManager, JobNotFoundError, StorageError
from tests.api.process import Process

pytestmark = pytest.mark.alone

JOBS = 400
KILLS = 4


@pytest.fixture
async def process(database_url: str, tmp_path: Path) -> AsyncIterator[Process]:
    process = Process(database_url, tmp_path)
    yield process
    await asyncio.to_thread(process.stop)


async def test_kills_of_the_service_lose_and_double_nothing(process: Process, topic: str) -> None:
    url = await asyncio.to_thread(process.url)
    put: dict[str, bytes] = {}  # by id, as `enqueue` has answered
    acked: Counter[str] = Counter()
    after_ack: list[str] = []  # jobs that came although their ack had been answered
    killed = 0

    async def produce(queue: BrokerQueue, numbers: range) -> None:
        for number in numbers:
            job = await queue.enqueue("task", b"%d" % number)
            assert job.id not in put
            put[job.id] = job.payload

    async def consume(queue: BrokerQueue) -> None:
        while sum(acked.values()) < JOBS:
            try:
                jobs = await queue.dequeue("task", batch_size=5)
            except StorageError:
                continue  # a claim is not repeated by itself
            # At once: later, a task that was too slow may have acked it by the lease that came with this delivery.
            after_ack.extend(job.id for job in jobs if acked[job.id])
            for job in jobs:
                try:
                    async with HeartbeatManager(queue, job.id):
                        await asyncio.sleep(0.01)
                    await queue.ack(job.id)
                except JobNotFoundError:
                    continue  # its lease ended while nobody could be reached
                acked[job.id] += 1
            if not jobs:
                await asyncio.sleep(0.02)

    async def kill() -> None:
        nonlocal killed
        while killed < KILLS:
            done = sum(acked.values())
            while sum(acked.values()) < done + JOBS // (2 * KILLS):
                await asyncio.sleep(0.01)
            (await asyncio.to_thread(process.server)).kill()
            killed += 1

    client = AsyncClient(url, timeout=60, retries=100)
    async with client, BrokerQueue(client, topic, timedelta(seconds=3)) as queue, asyncio.timeout(120):
        await asyncio.gather(
            *(produce(queue, range(start, JOBS, 8)) for start in range(8)), *(consume(queue) for _ in range(4)), kill()
        )
        left = (await queue.read_state()).jobs
    assert killed == KILLS
    assert sorted(put.values(), key=int) == [b"%d" % number for number in range(JOBS)]
    assert (left, after_ack) == ((), [])
    assert set(acked) == set(put)
    assert set(acked.values()) == {1}
