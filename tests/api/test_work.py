"""Work streams: jobs pushed to a connection, no more than it asked to hold."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.api.dialect import JSON, Topic, until_waiting
from tests.api.events import HEARTBEAT, WorkStream, frames_of_a_second, working

if TYPE_CHECKING:
    from tests.conftest import Running


async def settled(stream: WorkStream, queue: Topic) -> None:
    """Nothing more was pushed, by the time that the server has answered a few other requests."""
    for _ in range(3):
        assert (await queue.ack("nobody", [1]))["acked"] == 0
    assert stream.waiting() == []


async def test_a_frame_is_one_job(queue: Topic) -> None:
    data = {"text": "line\nline\r\n\n: hb", "ü": ["\u2028"]}
    await queue.append({"data": data, "tag": "clip", "meta": {"trace": "z9"}})
    async with working(queue, "w", lease_ms=3_600_000) as stream:
        assert stream.headers["x-accel-buffering"] == "no"
        assert "content-length" not in stream.headers
        frame = await stream.event("job")
        assert list(frame.fields) == ["id", "event", "data"]
        assert frame.fields["id"] == "1"
        job = frame.data
        assert job.pop("deadline") - job.pop("$ts") >= 3_600_000
        lease = job.pop("lease_id")
        assert job == {
            "topic": queue.name,
            "token": f"{queue.name}:1:{lease}",
            "$seq": 1,
            "$tag": "clip",
            "deliveries": 1,
            "data": data,
            "meta": {"trace": "z9"},
        }
        assert (await queue.ack("w", [1], lease_ids=[lease]))["acked"] == 1


@pytest.mark.parametrize("field", ["data", "meta"])
async def test_line_ends_between_tokens_of_json_break_no_frame(queue: Topic, field: str) -> None:
    """The event stream format knows three line ends, and each would end the field."""
    for end in ("\n", "\r", "\r\n", "\n\n"):
        body = f'{{"records":[{{"data":1,"{field}":{{{end}"a":{end}1}}}}]}}'
        assert (await queue.http.post(queue.path, content=body, headers=JSON)).status_code == 200
    async with working(queue, max=4) as stream:
        for _ in range(4):
            frame = await stream.event("job")
            assert set(frame.fields) == {"id", "event", "data"}
            assert frame.data[field] == {"a": 1}


async def test_what_is_settled_makes_room_and_what_comes_later_is_pushed(service: Running, queue: Topic) -> None:
    await queue.add(3)
    async with working(queue, "w") as stream:  # max is 1 unless said otherwise
        job = await stream.job()
        await settled(stream, queue)
        assert await queue.counts() == (2, 1)
        await queue.nack("w", [1])
        again = await stream.job()
        assert (again["$seq"], again["deliveries"]) == (1, 2)
        answer = await queue.extend("w", [1], 3_600_000, lease_ids=[again["lease_id"]])
        assert answer["deadlines"]["1"] > job["deadline"]
        await settled(stream, queue)
        await queue.nack("w", [1], delay_ms=3_600_000)
        for seq in (2, 3):
            assert (await stream.job())["$seq"] == seq
            await queue.ack("w", [seq])
        await until_waiting(service, queue.name, 1)
        await queue.add(2)
        assert (await stream.job())["$seq"] == 4
        await settled(stream, queue)


async def test_max_is_clamped(queue: Topic) -> None:
    await queue.append(*([{"data": 1}] * 1_005))
    for asked, most in ((0, 1), (5_000, 1_000)):
        async with working(queue, "w", max=asked) as stream:
            await stream.jobs(most)
            await settled(stream, queue)
            assert await queue.counts() == (1_005 - most, most)
        await queue.until_counts(1_005, 0)


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


async def test_heartbeats_come_while_no_job_does(queue: Topic, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.features.queue.v0_work.HEARTBEAT_SECONDS", 0.3)
    async with working(queue, max=100) as stream:
        beats = [await stream.frame() for _ in range(3)]
        assert [beat and beat.text for beat in beats] == [HEARTBEAT] * 3
        frames = await frames_of_a_second(stream, queue)
        assert sum(frame.text != HEARTBEAT for frame in frames) == 10


@pytest.mark.parametrize("accept", [None, "*/*", "text/*", "text/event-stream", "text/html, text/event-stream;q=0.9"])
async def test_every_accept_that_allows_events_opens(queue: Topic, accept: str | None) -> None:
    request = queue.http.build_request("GET", f"{queue.path}/work?node=n")
    del request.headers["accept"]
    if accept is not None:
        request.headers["accept"] = accept
    request.headers["last-event-id"] = "7"  # which changes nothing
    response = await queue.http.send(request, stream=True)
    assert response.status_code == 200
    await response.aclose()
