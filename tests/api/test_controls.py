"""Pause, resume, drain: what an operator does to a queue, and who notices."""

from __future__ import annotations

import asyncio

from tests.api.dialect import Body, Topic, accepted, refused, until_waiting
from tests.conftest import Running


async def control(queue: Topic, verb: str, **body: object) -> Body:
    return accepted(await queue.http.post(f"{queue.path}/{verb}", json=body))


async def test_nothing_is_claimed_while_it_is_paused(queue: Topic) -> None:
    await queue.add(2)
    held = (await queue.claim())["claimed"]
    assert (await control(queue, "pause"))["paused"] is True
    assert (await queue.claim(max=10))["claimed"] == []
    await queue.add(1)  # enqueues go on, and so do leases
    assert (await queue.ack("n", [held[0]["$seq"]]))["acked"] == 1
    reasons = accepted(await queue.http.get(f"{queue.path}/jobs/2/explain"))["reasons"]
    assert reasons[0]["code"] == "paused"
    assert (await control(queue, "resume"))["paused"] is False
    assert len((await queue.claim(max=10))["claimed"]) == 2


async def test_who_waits_gets_nothing_while_it_is_paused_and_all_once_it_is_resumed(
    service: Running, queue: Topic
) -> None:
    waiting = asyncio.create_task(queue.claim(wait_ms=20_000))
    await until_waiting(service, queue.name, 1)
    await control(queue, "pause")
    await queue.add(1)
    await queue.claim(max=1)  # and somebody who looks in between
    assert not waiting.done()
    await control(queue, "resume")
    assert len((await waiting)["claimed"]) == 1


async def test_configuration_leaves_it(queue: Topic) -> None:
    await queue.add(1)
    await control(queue, "pause")
    await queue.put(lease_ms=5_000)
    assert (await queue.claim())["claimed"] == []


async def test_drain(queue: Topic) -> None:
    await queue.add(2)
    told = await control(queue, "drain")
    assert (told["draining"], told["left"], told["empty"]) == (True, 2, False)
    refused(await queue.http.post(queue.path, json={"records": [{"data": 1}]}), 409, "draining")
    message = {"topic": queue.name, "payload": "x"}
    assert (await queue.http.post("/api/messages", json=message)).status_code == 409
    waiting = asyncio.create_task(control(queue, "drain", wait_ms=20_000))
    jobs = (await queue.claim(max=2))["claimed"]
    await queue.ack("n", [job["$seq"] for job in jobs])
    assert (await waiting)["empty"] is True
    await control(queue, "resume")
    await queue.add(1)


async def test_a_drain_that_is_not_done_in_time_says_so(queue: Topic) -> None:
    await queue.add(1, delay_ms=60_000)
    told = await control(queue, "drain", wait_ms=300)
    assert (told["left"], told["empty"]) == (1, False)


async def test_each_change_is_in_the_audit_trail(queue: Topic) -> None:
    for verb in ("pause", "pause", "drain", "resume"):
        await control(queue, verb)
    entries = accepted(await queue.http.get("/v0/admin/audit", params={"subject": queue.name}))["entries"]
    assert [entry["action"] for entry in entries][:3] == ["topic.resumed", "topic.drained", "topic.paused"]


async def test_what_is_refused(queue: Topic) -> None:
    log = Topic(queue.http, f"{queue.name}.log")
    await log.put(type="log")
    for verb in ("pause", "resume", "drain"):
        refused(await queue.http.post(f"{log.path}/{verb}"), 409, "not_a_queue")
        refused(await queue.http.post(f"/v0/topics/{queue.name}.none/{verb}"), 404, "topic_not_found")
        refused(await queue.http.post(f"{queue.path}/{verb}", json={"x": 1}), 400, "invalid_request")
