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
    from tests.api.conftest import Serve
    from tests.conftest import Running

    Connect = Callable[[], Awaitable[asyncpg.Connection[asyncpg.Record]]]

BLOCKED = "SELECT count(*) FROM pg_locks WHERE NOT granted AND relation = 'holdfast.jobs'::regclass"


async def test_a_job_that_comes_meanwhile_ends_the_wait(service: Running, queue: Topic) -> None:
    waiting = asyncio.create_task(queue.claim("a", max=5, wait_ms=20_000))
    await until_waiting(service, queue.name, 1)
    began = time.monotonic()
    await queue.add(2)
    answer = await waiting
    assert time.monotonic() - began < 1
    assert (answer["count"], answer["ready"]) == (2, 0)


async def test_a_wait_without_work_ends_empty_at_its_deadline(queue: Topic) -> None:
    began = time.monotonic()
    answer = await queue.claim("a", wait_ms=400)
    assert 0.4 <= time.monotonic() - began < 3
    assert (answer["claimed"], answer["count"]) == ([], 0)


async def test_no_wait_is_no_wait(queue: Topic) -> None:
    began = time.monotonic()
    for wait in ({}, {"wait_ms": 0}, {"wait_ms": None}):
        assert (await queue.claim("a", **wait))["count"] == 0
    assert time.monotonic() - began < 2


async def test_a_wait_with_work_there_is_none_either(queue: Topic) -> None:
    await queue.add(1)
    began = time.monotonic()
    assert (await queue.claim("a", max=100, wait_ms=20_000))["count"] == 1
    assert time.monotonic() - began < 2


@pytest.mark.parametrize("delay_ms", [300, 1_300])
async def test_a_delay_that_ends_ends_the_wait(queue: Topic, delay_ms: int) -> None:
    waiting = asyncio.create_task(queue.claim("a", wait_ms=20_000))
    began = time.monotonic()
    await queue.append({"data": 1, "delay_ms": delay_ms})
    assert (await waiting)["count"] == 1
    assert delay_ms / 1000 <= time.monotonic() - began < delay_ms / 1000 + 1


async def test_a_lease_that_runs_out_ends_the_wait(queue: Topic) -> None:
    await queue.add(1)
    began = time.monotonic()
    await queue.take("a", lease_ms=700)
    job = await queue.take("b", wait_ms=20_000)
    assert 0.7 <= time.monotonic() - began < 1.7
    assert job["deliveries"] == 2


async def test_so_does_a_nack_at_once_and_a_delayed_one_in_time(service: Running, queue: Topic) -> None:
    await queue.add(2)
    await queue.claim("a", max=2)
    waiting = asyncio.create_task(queue.claim("b", wait_ms=20_000))
    await until_waiting(service, queue.name, 1)
    began = time.monotonic()
    await queue.nack("a", [1])
    assert (await waiting)["count"] == 1
    assert time.monotonic() - began < 1
    await queue.nack("a", [2], delay_ms=400)
    began = time.monotonic()
    assert (await queue.take("b"))["$seq"] == 2
    assert time.monotonic() - began < 1.4


async def test_one_job_ends_one_wait(service: Running, queue: Topic) -> None:
    waiting = [asyncio.create_task(queue.claim(f"w{i}", wait_ms=3_000)) for i in range(5)]
    await until_waiting(service, queue.name, 5)
    await queue.add(2)
    answers = await asyncio.gather(*waiting)
    assert sorted(answer["count"] for answer in answers) == [0, 0, 0, 1, 1]


async def test_many_jobs_end_every_wait(service: Running, queue: Topic) -> None:
    waiting = [asyncio.create_task(queue.claim(f"w{i}", max=10, wait_ms=20_000)) for i in range(8)]
    await until_waiting(service, queue.name, 8)
    began = time.monotonic()
    await queue.add(80)
    answers = await asyncio.gather(*waiting)
    assert time.monotonic() - began < 2
    assert [answer["count"] for answer in answers] == [10] * 8


async def test_what_another_process_adds_is_found_within_a_second(service: Running, serve: Serve, queue: Topic) -> None:
    other = await serve()
    waiting = asyncio.create_task(queue.claim("a", wait_ms=20_000))
    await until_waiting(service, queue.name, 1)
    async with httpx.AsyncClient(base_url=other.url) as http:
        began = time.monotonic()
        await queue.through(http).add(1)
    assert (await waiting)["count"] == 1
    assert time.monotonic() - began < 1.2
    await other.stop()


@pytest.mark.parametrize("jitter", [0, 300])
async def test_a_caller_who_left_while_waiting_gets_no_job(service: Running, queue: Topic, jitter: int) -> None:
    await queue.put(claim_jitter_ms=jitter)
    leaving = asyncio.create_task(queue.claim("gone", wait_ms=30_000))
    await until_waiting(service, queue.name, 1)
    leaving.cancel()
    await asyncio.gather(leaving, return_exceptions=True)
    await until_waiting(service, queue.name, 0)
    await queue.add(1)
    job = await queue.take("there")
    assert job["deliveries"] == 1


async def test_a_caller_who_leaves_in_the_cohorts_window_gets_no_job(queue: Topic) -> None:
    await queue.put(claim_jitter_ms=1_000)
    await queue.add(1)
    leaving = asyncio.create_task(queue.claim("gone"))
    staying = asyncio.create_task(queue.claim("there", wait_ms=10_000))
    done, _ = await asyncio.wait([leaving], timeout=0.3)
    assert not done, "the window is over already"
    leaving.cancel()
    answer = await staying
    assert [job["deliveries"] for job in answer["claimed"]] == [1]


@pytest.mark.parametrize("wait", [{}, {"wait_ms": 30_000}], ids=["plain", "waiting"])
async def test_a_caller_who_left_while_its_claim_was_in_the_database_gets_no_job(
    service: Running, queue: Topic, connect: Connect, wait: dict[str, int]
) -> None:
    """The statement leases the job to one who is not there any more: it goes back, and counts as no delivery."""
    await queue.add(1)
    rival, onlooker = await connect(), await connect()
    connections = service._server.server_state.connections

    async def claim_is_blocked() -> bool:
        return bool(await onlooker.fetchval(BLOCKED))

    async def server_has_noticed() -> bool:
        return len(connections) == before

    async with httpx.AsyncClient(base_url=service.url) as http, rival.transaction():
        before = len(connections)
        await rival.execute("LOCK TABLE holdfast.jobs IN ACCESS EXCLUSIVE MODE")
        leaving = asyncio.create_task(queue.through(http).claim("gone", **wait))
        await eventually(claim_is_blocked)
        leaving.cancel()
        await eventually(server_has_noticed)
    job = await queue.take("there")
    assert job["deliveries"] == 1
