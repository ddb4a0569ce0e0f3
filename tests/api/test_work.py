"""Work streams: jobs pushed to a connection, no more than it asked to hold."""

from __future__ import annotations

import asyncio
import itertools
import time
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.api.dialect import JSON, Topic, eventually, refused, until_waiting
from tests.api.events import HEARTBEAT, WorkStream, working

if TYPE_CHECKING:
    from tests.api.conftest import Serve
    from tests.conftest import Running


async def settled(stream: WorkStream, queue: Topic, probe_seq: int) -> None:
    """Nothing more was pushed, by the time that the server has answered a few other requests."""
    for _ in range(3):
        assert (await queue.ack("nobody", [probe_seq]))["acked"] == 0
    assert stream.waiting() == []


async def test_the_headers_and_the_first_frames(queue: Topic) -> None:
    async with working(queue) as stream:
        assert stream.headers["content-type"].split(";")[0] == "text/event-stream"
        assert stream.headers["cache-control"] == "no-store"
        assert stream.headers["x-accel-buffering"] == "no"
        assert "content-length" not in stream.headers
        frame = await stream.frame()
        assert frame is not None
        assert frame.text == HEARTBEAT


async def test_a_frame_is_one_job(queue: Topic) -> None:
    data = {"text": "line\nline\r\n\n: hb", "ü": ["\u2028"]}
    await queue.append({"data": data, "tag": "clip", "meta": {"trace": "z9"}})
    async with working(queue, "w", lease_ms=3_600_000) as stream:
        frame = await stream.event("job")
        assert list(frame.fields) == ["id", "event", "data"]
        assert frame.fields["id"] == "1"
        job = frame.data
        assert job.pop("deadline") - job.pop("$ts") >= 3_600_000
        lease = job.pop("lease_id")
        assert job.pop("token") == f"{queue.name}:1:{lease}"
        assert job == {
            "topic": queue.name,
            "$seq": 1,
            "$tag": "clip",
            "deliveries": 1,
            "data": data,
            "meta": {"trace": "z9"},
        }
        assert (await queue.ack("w", [1], lease_ids=[lease]))["acked"] == 1


@pytest.mark.parametrize("end", [b"\n", b"\r", b"\r\n", b"\n\n"], ids=["LF", "CR", "CRLF", "two"])
@pytest.mark.parametrize("field", [b"data", b"meta"])
async def test_line_ends_between_tokens_of_json_break_no_frame(queue: Topic, field: bytes, end: bytes) -> None:
    """The event stream format knows three line ends, and each would end the field."""
    body = b'{"records":[{"data":1,"%b":{%b"a":%b1}}]}' % (field, end, end)
    answer = await queue.http.post(queue.path, content=body, headers=JSON)
    assert answer.status_code == 200
    async with working(queue) as stream:
        frame = await stream.event("job")
        assert set(frame.fields) == {"id", "event", "data"}
        assert frame.data[field.decode()] == {"a": 1}


async def test_never_more_than_max_are_in_flight(queue: Topic) -> None:
    await queue.append(*([{"data": 1}] * 50))
    outstanding: set[int] = set()
    async with working(queue, "w", max=4) as stream:
        while len(stream.seqs) < 50:
            outstanding.add((await stream.job())["$seq"])
            assert len(outstanding) <= 4
            if len(outstanding) == 4 or len(stream.seqs) == 50:
                ready, in_flight = await queue.counts()
                assert (ready, in_flight) == (50 - len(stream.seqs), len(outstanding))
                await settled(stream, queue, 1)
                done = sorted(outstanding)[:3]
                outstanding -= set(done)
                assert (await queue.ack("w", done))["acked"] == len(done)
    assert sorted(stream.seqs) == list(range(1, 51))


async def test_a_job_that_comes_later_is_pushed_at_once(service: Running, queue: Topic) -> None:
    async with working(queue, max=3) as stream:
        await until_waiting(service, queue.name, 1)
        began = time.monotonic()
        await queue.add(2)
        frame = await stream.event("job")
        assert frame.at - began < 1
        await stream.job()
        await queue.add(1)
        assert (await stream.job())["$seq"] == 3


async def test_an_ack_makes_room_at_once(queue: Topic) -> None:
    """Well below the second within which a full stream looks for itself."""
    await queue.append(*([{"data": 1}] * 21))
    slowest = 0.0
    async with working(queue, "w") as stream:
        job = await stream.job()
        for _ in range(20):
            began = time.monotonic()
            await queue.ack("w", [job["$seq"]])
            frame = await stream.event("job")
            slowest = max(slowest, frame.at - began)
            job = frame.data
    assert slowest < 0.5


async def test_max_is_one_unless_said_otherwise_and_at_least_one(queue: Topic) -> None:
    await queue.add(3)
    for query in ({}, {"max": 0}):
        async with working(queue, "w", **query) as stream:
            job = await stream.job()
            assert await queue.counts() == (2, 1)
            await settled(stream, queue, 1)
            await queue.nack("w", [job["$seq"]])
            await stream.job()
        await queue.until_counts(3, 0)


async def test_max_is_clamped_to_1000(queue: Topic) -> None:
    await queue.append(*([{"data": 1}] * 1_005))
    async with working(queue, "w", max=5_000) as stream:
        await stream.jobs(1_000)
        await settled(stream, queue, 1)
        assert await queue.counts() == (5, 1_000)


async def test_a_nack_makes_room_and_the_job_comes_again(queue: Topic) -> None:
    await queue.add(2)
    async with working(queue, "w") as stream:
        first = await stream.job()
        await queue.nack("w", [first["$seq"]])
        again = await stream.job()
        assert (again["$seq"], again["deliveries"]) == (1, 2)
        await queue.nack("w", [1], delay_ms=3_600_000)
        assert (await stream.job())["$seq"] == 2


async def test_an_extended_lease_stays_the_streams(queue: Topic) -> None:
    await queue.add(2)
    async with working(queue, "w", lease_ms=500) as stream:
        job = await stream.job()
        answer = await queue.extend("w", [1], 3_600_000, lease_ids=[job["lease_id"]])
        assert answer["deadlines"]["1"] > job["deadline"]
        # Another lease of 500 ms, of a later claim, runs out; the extended one has not.
        await queue.take("other", lease_ms=500)
        await queue.until_counts(1, 1)
        await settled(stream, queue, 1)
        assert (await queue.ack("w", [1]))["acked"] == 1
        assert (await stream.job())["$seq"] == 2


async def test_jobs_come_in_the_order_of_claims(queue: Topic) -> None:
    """A claim's answer is sorted by seq; a stream shows what comes first."""
    await queue.append({"data": "fresh"}, {"data": "returned"}, {"data": "high", "priority": 5})
    await queue.claim("other", max=3)
    await queue.nack("other", [2])
    await queue.ack("other", [1])
    await queue.nack("other", [3])
    await queue.append({"data": "later"}, {"data": "higher", "priority": 6})
    async with working(queue, max=10) as stream:
        assert [job["data"] for job in await stream.jobs(4)] == ["higher", "high", "returned", "later"]


async def test_a_lease_that_ran_out_makes_room(queue: Topic) -> None:
    await queue.add(1)
    async with working(queue, "w", lease_ms=300) as stream:
        deliveries = [(await stream.job())["deliveries"] for _ in range(3)]
    assert deliveries == [1, 2, 3]


async def test_a_delivery_on_a_stream_counts_towards_the_last(queue: Topic) -> None:
    await queue.put(max_deliveries=2, on_exhausted="fail")
    await queue.add(1)
    for _ in range(2):
        async with working(queue) as stream:
            await stream.job()

    async def failed() -> bool:
        return bool((await queue.state())["count"] == 0)

    await eventually(failed)


async def test_two_streams_and_a_poller_share(queue: Topic) -> None:
    await queue.append(*([{"data": 1}] * 90))
    done: dict[str, list[int]] = {"a": [], "b": [], "poll": []}

    async def stream_worker(node: str) -> None:
        async with working(queue, node, max=2) as stream:
            while sum(map(len, done.values())) < 90:
                try:
                    job = await stream.job(0.5)
                except TimeoutError:
                    continue
                assert (await queue.ack(node, [job["$seq"]]))["acked"] == 1
                done[node].append(job["$seq"])

    async def poller() -> None:
        while sum(map(len, done.values())) < 90:
            for job in (await queue.claim("poll", max=2))["claimed"]:
                assert (await queue.ack("poll", [job["$seq"]]))["acked"] == 1
                done["poll"].append(job["$seq"])

    await asyncio.wait_for(asyncio.gather(stream_worker("a"), stream_worker("b"), poller()), 30)
    assert sorted(itertools.chain.from_iterable(done.values())) == list(range(1, 91))
    assert all(len(jobs) >= 5 for jobs in done.values()), {node: len(jobs) for node, jobs in done.items()}
    assert (await queue.state())["count"] == 0


async def test_heartbeats_come_while_no_job_does(queue: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.features.queue.v0_work.HEARTBEAT_SECONDS", 0.2)
    async with working(queue, max=100) as stream:
        frames = [await stream.frame() for _ in range(4)]
        assert [frame and frame.text for frame in frames] == [HEARTBEAT] * 4
        times = [frame.at for frame in frames[1:] if frame is not None]
        assert all(b - a > 0.15 for a, b in itertools.pairwise(times))
        await queue.add(1)
        await stream.job()


async def test_heartbeats_are_left_out_while_jobs_come(queue: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.features.queue.v0_work.HEARTBEAT_SECONDS", 1.5)
    async with working(queue, max=100) as stream:
        assert (await stream.frame()).text == HEARTBEAT  # type: ignore[union-attr]
        end = time.monotonic() + 2.5
        kinds = set()
        while time.monotonic() < end:
            await queue.append({"data": 1, "delay_ms": 200})
            frame = await stream.frame()
            assert frame is not None
            kinds.add(frame.fields.get("event", "heartbeat"))
        assert kinds == {"job"}


async def test_an_id_that_was_seen_last_changes_nothing(queue: Topic) -> None:
    await queue.add(2)
    headers = {"accept": "text/event-stream", "last-event-id": "1"}
    async with queue.http.stream("GET", f"{queue.path}/work?node=n&max=2", headers=headers) as response:
        text = ""
        async for more in response.aiter_text():
            text += more
            if "id: 2" in text:
                break
    assert "id: 1" in text


@pytest.mark.parametrize("accept", [None, "*/*", "text/*", "text/event-stream", "text/html, text/event-stream;q=0.9"])
async def test_every_accept_that_allows_events_opens(queue: Topic, accept: str | None) -> None:
    request = queue.http.build_request("GET", f"{queue.path}/work?node=n")
    del request.headers["accept"]
    if accept is not None:
        request.headers["accept"] = accept
    response = await queue.http.send(request, stream=True)
    assert response.status_code == 200
    await response.aclose()


async def test_too_many_streams_are_told_to_come_again(serve: Serve, queue: Topic) -> None:
    small = await serve(max_streams=1)
    async with httpx.AsyncClient(base_url=small.url) as http:
        there = queue.through(http)
        async with working(there):
            answer = await http.get(f"{there.path}/work?node=n")
            assert refused(answer, 429, "throttled")["detail"] == {"limit": "streams", "max": 1}
            assert answer.headers["retry-after"] == "1"

        async def opens_again() -> bool:
            async with http.stream("GET", f"{there.path}/work?node=n") as response:
                return response.status_code == 200

        await eventually(opens_again)
    await small.stop()
