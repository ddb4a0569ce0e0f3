"""Claims that wait: what ends the wait, and what becomes of a caller who leaves."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING

import asyncpg
import httpx
import pytest

from tests.api.dialect import Topic, eventually, until_waiting

if TYPE_CHECKING:
    from tests.conftest import Running

    Connect = Callable[[], Awaitable[asyncpg.Connection[asyncpg.Record]]]


async def test_a_wait_without_work_ends_empty_at_its_deadline_and_no_wait_is_none(queue: Topic) -> None:
    began = time.monotonic()
    answer = await queue.claim("a", wait_ms=400)
    assert time.monotonic() - began >= 0.4
    assert (answer["claimed"], answer["count"]) == ([], 0)
    async with asyncio.timeout(15):
        for wait in ({}, {"wait_ms": 0}, {"wait_ms": None}):
            assert (await queue.claim("a", **wait))["count"] == 0
        await queue.add(1)
        assert (await queue.claim("a", max=100, wait_ms=30_000))["count"] == 1


@pytest.mark.parametrize("jitter", [0, 300])
async def test_a_caller_who_left_while_waiting_gets_no_job(service: Running, queue: Topic, jitter: int) -> None:
    await queue.put(claim_jitter_ms=jitter)
    leaving = asyncio.create_task(queue.claim("gone", wait_ms=30_000))
    await until_waiting(service, queue.name, 1)
    leaving.cancel()
    await until_waiting(service, queue.name, 0)
    await queue.add(1)
    assert (await queue.take("there"))["deliveries"] == 1


@pytest.mark.parametrize("wait", [{}, {"wait_ms": 30_000}], ids=["plain", "waiting"])
async def test_a_caller_who_left_while_its_claim_was_in_the_database_gets_no_job(
    service: Running, queue: Topic, connect: Connect, wait: dict[str, int]
) -> None:
    """The statement leases the job to one who is not there any more: it goes back, and counts as no delivery."""
    await queue.add(1)
    rival, onlooker = await connect(), await connect()
    connections = service._server.server_state.connections

    async def claim_is_blocked() -> bool:
        blocked = "SELECT EXISTS (SELECT 1 FROM pg_locks WHERE NOT granted AND relation = 'holdfast.jobs'::regclass)"
        return bool(await onlooker.fetchval(blocked))

    async def server_has_noticed() -> bool:
        return len(connections) == before

    async with httpx.AsyncClient(base_url=service.url) as http, rival.transaction():
        before = len(connections)
        await rival.execute("LOCK TABLE holdfast.jobs IN ACCESS EXCLUSIVE MODE")
        leaving = asyncio.create_task(queue.through(http).claim("gone", **wait))
        await eventually(claim_is_blocked)
        leaving.cancel()
        await eventually(server_has_noticed)
    assert (await queue.take("there"))["deliveries"] == 1
