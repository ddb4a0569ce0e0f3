"""Workers beside the code of a test."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from holdfast import AsyncTopic, Queue, Worker, models


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
    """What comes of a job, when it has."""
    async with asyncio.timeout(90):
        while (end := await queue.result(seq, wait_ms=20_000)).state == "pending":
            pass
    return end


async def suspected(queue: AsyncTopic, what: str) -> int:
    """A job whose holders let it lie, twice: a suspect."""
    seq = (await queue.enqueue(what)).seq
    for _ in range(2):
        [job] = (await queue.claim(lease_ms=100, wait_ms=10_000)).jobs
        while (await queue.job(job.seq)).state == "leased":
            await asyncio.sleep(0.01)
    return seq
