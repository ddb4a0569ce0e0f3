"""How work streams end, and what becomes of the leases that were delivered on them."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING

import httpx
import pytest

from app.http import sse as events
from tests.api.dialect import Topic, refused, until_waiting
from tests.api.events import working
from tests.api.raw import get, raw

if TYPE_CHECKING:
    from tests.api.conftest import Serve
    from tests.conftest import Running


async def test_leaving_releases_what_was_not_settled_and_nothing_of_others(queue: Topic) -> None:
    await queue.add(6)
    claimed = await queue.take("w")  # by the same node, and no stream's
    async with working(queue, "w", max=4) as stream:
        await stream.jobs(4)
        await queue.ack("w", [3])
        await stream.job()
        assert await queue.counts() == (0, 5)
    await queue.until_counts(4, 1)
    jobs = (await queue.claim("other", max=10))["claimed"]
    assert [(job["$seq"], job["deliveries"]) for job in jobs] == [(2, 2), (4, 2), (5, 2), (6, 2)]  # the delivery counts
    assert (await queue.ack("w", [2, 4, 5, 6]))["acked"] == 0
    assert (await queue.ack("w", [1], lease_ids=[claimed["lease_id"]]))["acked"] == 1


async def test_the_stream_of_a_deleted_topic_says_so_and_ends(queue: Topic) -> None:
    await queue.add(1)
    async with working(queue, max=5) as stream, working(queue, "idle") as idle:
        await stream.job()
        await queue.drop()
        await queue.put(type="log")
        for one in (stream, idle):
            error = await one.error()
            assert (error["code"], error["error"], error["topic"]) == (409, "not_a_queue", queue.name)
            assert await one.frame() is None
    refused(await queue.http.get(f"{queue.path}/work?node=n"), 409, "not_a_queue")


async def test_a_stopping_service_says_so_and_gives_deliveries_back(serve: Serve, queue: Topic) -> None:
    await queue.add(4)
    stopping = await serve()
    async with httpx.AsyncClient(base_url=stopping.url) as http:
        there = queue.through(http)
        claimed = await there.take("w")
        async with working(there, "w", max=2) as stream, working(there, "full") as full:
            assert [job["$seq"] for job in await stream.jobs(2)] == [2, 3]
            assert (await full.job())["$seq"] == 4
            waiting = asyncio.create_task(there.claim("w", wait_ms=30_000))
            await until_waiting(stopping, queue.name, 1)
            ended = asyncio.create_task(stopping.stop())
            for one in (stream, full):
                error = await one.error()
                assert (error["code"], error["error"]) == (503, "shutting_down")
                assert await one.frame() is None
            assert (await waiting)["count"] == 0
        async with asyncio.timeout(20):  # and not for as long as a claim may wait
            await ended
    await queue.until_counts(3, 1)
    jobs = (await queue.claim("other", max=10))["claimed"]
    assert [(job["$seq"], job["deliveries"]) for job in jobs] == [(2, 1), (3, 1), (4, 1)]
    assert (await queue.ack("w", [1], lease_ids=[claimed["lease_id"]]))["acked"] == 1


@pytest.mark.parametrize("at_once", [2, 50])
async def test_a_stream_that_takes_nothing_is_told_why_and_its_jobs_go_to_others(
    queue: Topic, service: Running, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(events, "SEND_SECONDS", 0.5)
    count = 100
    async with raw(service.url, receive_bytes=4096) as sleeper:
        await sleeper.send(get(f"{queue.path}/work?node=asleep&max=1000", "connection: close"))
        await sleeper.reader.readuntil(b": hb\n\n")
        sleeper.writer.transport.pause_reading()  # type: ignore[attr-defined]
        for _ in range(count // at_once):  # each is a frame of its own, more together than lies between the two
            await queue.append(*({"data": "x" * 60_000} for _ in range(at_once)))
        found: set[int] = set()
        while len(found) < count:
            found |= {job["$seq"] for job in (await queue.claim("awake", max=count, wait_ms=10_000))["claimed"]}
        sleeper.writer.transport.resume_reading()  # type: ignore[attr-defined]
        told = await sleeper.closed()
    [error] = [frame for frame in told.split(b"\n\n") if b"event: error" in frame]
    last = json.loads(error.partition(b"data: ")[2])
    assert (last["code"], last["error"]) == (408, "slow_reader")
