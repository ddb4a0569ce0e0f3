"""The end of background tasks."""

from __future__ import annotations

import asyncio
import time

from redis.asyncio import Redis as Client
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff

from app.base.loops import CANCEL_AGAIN_SECONDS, end_tasks
from tests.topics.test_bus import Redis, redis

__all__ = ["redis"]

TURNS = 40  # of the event loop; redis-py takes some 20 to connect


async def test_one_that_is_cancelled_while_it_connects_to_redis_ends(redis: Redis) -> None:
    """At each of its points. redis-py loses some of these cancellations."""

    async def connected() -> None:
        client = Client.from_url(redis.url, socket_connect_timeout=2, retry=Retry(NoBackoff(), 0))
        try:
            await client.ping()
            await asyncio.Event().wait()
        finally:
            await client.aclose()

    connecting = []
    for turns in range(TURNS):
        task = asyncio.create_task(connected())
        for _ in range(turns):
            await asyncio.sleep(0)
        connecting.append(asyncio.create_task(end_tasks(task)))
    async with asyncio.timeout(5):
        await asyncio.gather(*connecting)


async def test_one_that_takes_no_notice_is_told_again() -> None:
    async def deaf() -> None:
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            await asyncio.Event().wait()

    task = asyncio.create_task(deaf())
    await asyncio.sleep(0)
    began = time.monotonic()
    await end_tasks(task)
    assert task.cancelled()
    assert time.monotonic() - began < 2 * CANCEL_AGAIN_SECONDS


async def test_what_it_raises_is_dropped() -> None:
    async def failing() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            raise ValueError("too late")

    task = asyncio.create_task(failing())
    await asyncio.sleep(0)
    await end_tasks(task)
    assert task.done()


async def test_none_is_no_wait() -> None:
    await end_tasks()
