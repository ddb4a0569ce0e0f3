"""How work streams end, and what becomes of the leases that were delivered on them."""

from __future__ import annotations

import asyncio
import json
import time
from typing import TYPE_CHECKING

import httpx
import pytest

from app.http import sse as events
from tests.api.dialect import Body, Topic, refused, until_waiting
from tests.api.events import working
from tests.api.raw import get, raw

if TYPE_CHECKING:
    from tests.api.conftest import Serve
    from tests.conftest import Running


async def test_leaving_releases_what_was_not_settled(queue: Topic) -> None:
    await queue.add(5)
    async with working(queue, "w", max=4) as stream:
        await stream.jobs(4)
        await queue.ack("w", [2])
        await stream.job()
        assert await queue.counts() == (0, 4)
    began = time.monotonic()
    jobs: list[int] = []
    while len(jobs) < 4:
        claimed = (await queue.claim("other", max=10, wait_ms=10_000))["claimed"]
        assert [job["deliveries"] for job in claimed] == [2] * len(claimed)  # the delivery counts
        jobs += [job["$seq"] for job in claimed]
    assert time.monotonic() - began < 2
    assert sorted(jobs) == [1, 3, 4, 5]
    assert (await queue.ack("w", [1, 3, 4, 5]))["acked"] == 0


async def test_leaving_touches_no_lease_of_a_claim_by_the_same_node(queue: Topic) -> None:
    await queue.add(3)
    claimed = await queue.take("w")
    async with working(queue, "w") as stream:
        assert (await stream.job())["$seq"] == 2
        async with working(queue, "w") as other:
            assert (await other.job())["$seq"] == 3
        await queue.until_counts(1, 2)
    await queue.until_counts(2, 1)
    assert (await queue.ack("w", [1, 2, 3], lease_ids=[claimed["lease_id"], "", ""]))["skipped"] == [2, 3]


async def test_leaving_touches_no_lease_that_somebody_else_has_by_now(queue: Topic) -> None:
    await queue.add(1)
    async with working(queue, "w", lease_ms=100) as stream:
        await stream.job()
        held = await queue.take("w")  # the same node, another lease
        assert held["deliveries"] == 2
    async with working(queue, "x"):
        pass
    answer = await queue.ack("w", [1], lease_ids=[held["lease_id"]])
    assert (answer["acked"], answer["in_flight"]) == (1, 0)


async def test_a_job_that_moved_to_another_stream_is_that_streams(queue: Topic) -> None:
    """The first stream's lease runs out, and the job is pushed on the second: what each holds stays right."""
    await queue.add(1)
    async with working(queue, "slow", lease_ms=100) as slow:
        await slow.job()
        async with working(queue, "quick", lease_ms=3_600_000) as quick:
            assert (await quick.job())["deliveries"] == 2
            # The first learns that it lost its lease, and has room again; the second is full.
            await queue.add(1)
            assert (await slow.job())["$seq"] == 2
            await queue.extend("slow", [2], 3_600_000)
            await queue.add(1)
            with pytest.raises(asyncio.TimeoutError):
                await quick.event("job", 2.5)  # two looks of a full stream
            assert await queue.counts() == (1, 2)
            await queue.ack("quick", [1])
            assert (await quick.job())["$seq"] == 3
        await queue.until_counts(1, 1)  # the second left, and its job with it


async def test_the_stream_of_a_deleted_topic_says_so_and_ends(queue: Topic) -> None:
    await queue.add(1)
    async with working(queue, max=5) as stream, working(queue, "idle") as idle:
        await stream.job()
        await queue.drop()
        for one in (stream, idle):
            error = await one.error()
            assert {key: error[key] for key in ("code", "error", "topic")} == {
                "code": 409,
                "error": "not_a_queue",
                "topic": queue.name,
            }
            assert await one.frame() is None


async def test_so_does_that_of_one_made_anew_as_a_log(queue: Topic) -> None:
    async with working(queue) as stream:
        await queue.drop()
        await queue.put(type="log")
        assert (await stream.error())["code"] == 409
        assert await stream.frame() is None
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
            began = time.monotonic()
            ended = asyncio.create_task(stopping.stop())
            for one in (stream, full):
                error = await one.error()
                assert (error["code"], error["error"]) == (503, "shutting_down")
                assert await one.frame() is None
            assert (await waiting)["count"] == 0
        await ended
        assert time.monotonic() - began < 5
    jobs: list[Body] = []
    while len(jobs) < 3:
        jobs += (await queue.claim("other", max=10, wait_ms=10_000))["claimed"]
    assert sorted((job["$seq"], job["deliveries"]) for job in jobs) == [(2, 1), (3, 1), (4, 1)]
    assert (await queue.ack("w", [1], lease_ids=[claimed["lease_id"]]))["acked"] == 1


@pytest.mark.parametrize("at_once", [1, 50])
async def test_a_stream_that_takes_nothing_is_told_why_and_its_jobs_go_to_others(
    queue: Topic, service: Running, monkeypatch: pytest.MonkeyPatch, at_once: int
) -> None:
    monkeypatch.setattr(events, "SEND_SECONDS", 0.5)
    count = 150
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
    frames = [frame for frame in told.split(b"\n\n") if b"event: error" in frame]
    assert len(frames) == 1
    last = json.loads(frames[0].partition(b"data: ")[2])
    assert (last["code"], last["error"]) == (408, "slow_reader")
