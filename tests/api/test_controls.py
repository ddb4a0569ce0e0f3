"""Pause, resume, drain: what an operator does to a queue, and who notices."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from app.features.topics.changes import CLOSE_SECONDS, Drains
from app.kernel.claim import waiters
from tests.api.conftest import Serve
from tests.api.dialect import Body, Topic, accepted, refused, until_waiting
from tests.api.keyring import Services, client
from tests.conftest import Running
from tests.queue.calls import Session
from tests.topics.test_bus import Redis, redis, until
from tests.topics.test_warm import subscribed

__all__ = ["redis"]


async def control(queue: Topic, verb: str, **body: object) -> Body:
    return accepted(await queue.http.post(f"{queue.path}/{verb}", json=body))


async def test_nothing_is_claimed_while_it_is_paused(queue: Topic) -> None:
    await queue.add(2)
    held = (await queue.claim())["claimed"]
    assert (await control(queue, "pause"))["paused"] is True
    await queue.put(lease_ms=5_000)  # which leaves it paused
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


async def test_a_tenants_pause_is_that_tenants(serve: Serve, topic: str, monkeypatch: pytest.MonkeyPatch) -> None:
    service = await serve()
    async with client(service) as http:
        queue = Topic(http, topic)
        await queue.put()
        for tenant in ("acme", "zeta", "acme"):
            await queue.append({"data": tenant, "tenant": tenant})
        assert (await control(queue, "pause", tenant="acme"))["paused_tenants"] == ["acme"]
        assert [job["data"] for job in (await queue.claim(max=10))["claimed"]] == ["zeta"]
        assert (await queue.claim(max=10, tenants=["acme"]))["claimed"] == []
        assert (await queue.claim(max=10, tenants=["acme", "zeta"]))["claimed"] == []
        monkeypatch.setattr(waiters, "POLL_SECONDS", 60.0)  # so that none but the resume wakes it
        waiting = asyncio.create_task(queue.claim(max=10, wait_ms=20_000))
        await until_waiting(service, topic, 1)
        await asyncio.sleep(0.6)  # a look that had begun before
        assert not waiting.done()
        assert (await control(queue, "resume", tenant="acme"))["paused_tenants"] == []
        assert [job["data"] for job in (await waiting)["claimed"]] == ["acme", "acme"]


async def test_other_processes_hear_of_it(
    serve: Serve, new_database: Callable[[], Awaitable[str]], redis: Redis, topic: str
) -> None:
    services = await Services.make(serve, new_database)
    here, there = [await services.start(redis_url=redis.url) for _ in range(2)]
    async with client(here) as one, client(there) as two:
        queue, elsewhere = Topic(one, topic), Topic(two, topic)
        await queue.put()
        await elsewhere.add(1)
        await elsewhere.claim()  # its policy is known there
        await elsewhere.add(2)
        await until(lambda: subscribed(there))
        await control(queue, "pause")
        await asyncio.sleep(0.2)
        assert (await elsewhere.claim())["claimed"] == []
        waiting = asyncio.create_task(elsewhere.claim(max=2, wait_ms=20_000))
        await until_waiting(there, topic, 1)
        await control(queue, "resume")
        assert len((await waiting)["claimed"]) == 2
        await control(queue, "drain")
        await asyncio.sleep(0.2)
        refused(await elsewhere.http.post(elsewhere.path, json={"records": [{"data": 1}]}), 409, "draining")


async def test_drain(queue: Topic) -> None:
    await queue.put(replayable=True)
    await queue.add(2)
    told = await control(queue, "drain")
    assert (told["draining"], told["left"], told["empty"]) == (True, 2, False)
    refused(await queue.http.post(queue.path, json={"records": [{"data": 1}]}), 409, "draining")
    message = {"topic": queue.name, "payload": "x"}
    assert (await queue.http.post("/api/messages", json=message)).status_code == 409
    jobs = (await queue.claim(max=2))["claimed"]
    await queue.ack("n", [job["$seq"] for job in jobs])
    told = await control(queue, "drain")
    assert (told["left"], told["empty"]) == (0, False), "another process may not have heard of it"
    assert 0 < told["closes_in_ms"] <= CLOSE_SECONDS * 1000
    again = await control(queue, "drain", wait_ms=600)  # which does not begin anew
    assert (again["left"], again["empty"]) == (0, False), "not done in this time"
    assert again["closes_in_ms"] <= told["closes_in_ms"] - 400
    replay = f"/api/topics/{queue.name}/replay"
    refused(await queue.http.post(replay, json={}), 409, "draining")
    await control(queue, "resume")
    assert (await queue.http.post(replay, json={})).json()["enqueued"] == 2
    assert (await control(queue, "drain"))["closes_in_ms"] > again["closes_in_ms"]
    await control(queue, "resume")
    await queue.add(1)
    entries = accepted(await queue.http.get("/v0/admin/audit", params={"subject": queue.name}))["entries"]
    actions = [entry["action"] for entry in entries if entry["action"] != "replay.started"]
    assert actions[:4] == ["topic.resumed", "topic.drained", "topic.resumed", "topic.drained"]


async def test_it_is_empty_once_nobody_can_take_in_any_more(
    queue: Topic, service: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service.context.core(Drains), "close_seconds", 1.0)
    await queue.add(1)
    assert (await control(queue, "drain"))["left"] == 1
    waiting = asyncio.create_task(control(queue, "drain", wait_ms=20_000))
    await asyncio.sleep(1.1)
    assert not waiting.done(), "one is left"
    await queue.claim()
    await queue.ack("n", [1])
    told = await waiting
    assert (told["left"], told["closes_in_ms"], told["empty"]) == (0, 0, True)


async def test_the_inbox_takes_nothing_for_a_drained_topic(
    queue: Topic, service: Running, connect: Callable[[], Awaitable[Session]], monkeypatch: pytest.MonkeyPatch
) -> None:
    """And what a transaction has put in that is not committed yet is waited for."""
    monkeypatch.setattr(service.context.core(Drains), "close_seconds", 0.0)
    one, two = await connect(), await connect()
    insert = "INSERT INTO holdfast.inbox (topic, payload_text) VALUES ($1, '1')"
    transaction = one.transaction()
    await transaction.start()
    await one.execute(insert, queue.name)
    told = await control(queue, "drain")
    assert (told["left"], told["closes_in_ms"], told["empty"]) == (0, 0, False)
    with pytest.raises(asyncpg.ObjectNotInPrerequisiteStateError, match="is draining"):
        await two.execute(insert, queue.name)
    await transaction.rollback()
    assert (await control(queue, "drain", wait_ms=5_000))["empty"] is True
    await control(queue, "resume")
    await two.execute(insert, queue.name)


async def test_rows_of_the_inbox_that_were_taken_in_before_still_come(
    queue: Topic, service: Running, connect: Callable[[], Awaitable[Session]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(service.context.core(Drains), "close_seconds", 0.0)
    await queue.put(schema={"format": "json", "schema": "true"})
    db = await connect()
    async with db.transaction():
        await db.execute("INSERT INTO holdfast.inbox (topic, payload_text) VALUES ($1, '1')", queue.name)
    told = await control(queue, "drain")
    assert (told["left"], told["empty"]) == (1, False)
    claimed = await queue.claim(wait_ms=15_000)
    assert len(claimed["claimed"]) == 1


async def test_a_drain_that_is_not_done_in_time_says_so(queue: Topic) -> None:
    await queue.add(1, delay_ms=60_000)
    told = await control(queue, "drain", wait_ms=300)
    assert (told["left"], told["empty"]) == (1, False)
