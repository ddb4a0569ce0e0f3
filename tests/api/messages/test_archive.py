"""The message log of a replayable topic, and its replay, over HTTP."""

from __future__ import annotations

import base64
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from tests.api.dialect import Body, Topic
from tests.api.messages.client import Messages, done, refused

URL = "/api/topics/{}/{}"


@pytest.fixture
async def log(http: httpx.AsyncClient, messages: Messages) -> Messages:
    """Messages of a replayable topic."""
    await configure(messages)
    return messages


async def configure(messages: Messages, **settings: object) -> None:
    await Topic(messages.http, messages.topic).put(**{"durable": True, "replayable": True, **settings})


async def work_off(messages: Messages) -> list[str]:
    """Ack whatever can be dequeued, one by one: the ids, in that order."""
    ids = []
    while taken := await messages.dequeue(100):
        for message in taken:
            await messages.ack(message["id"])
            ids.append(message["id"])
    return ids


async def page(messages: Messages, **query: str | int) -> Body:
    return done(await messages.http.get(URL.format(messages.topic, "message-log"), params=query))


async def replay(messages: Messages, body: object | None = None) -> Body:
    sent = {} if body is None else {"json": body}
    return done(await messages.http.post(URL.format(messages.topic, "replay"), **sent))  # type: ignore[arg-type]


async def purge(messages: Messages, before: datetime | str) -> int:
    text = before if isinstance(before, str) else before.isoformat()
    answer = await messages.http.delete(URL.format(messages.topic, "message-log"), params={"before": text})
    count: int = done(answer)["deleted"]
    return count


async def test_the_log_shows_what_was_acked_the_last_first(log: Messages) -> None:
    first = await log.put("hej", key="k")
    await log.put("då", metadata={"a": "b"})
    await log.dequeue()
    await log.nack(first, error="no")
    ids = await work_off(log)
    shown = await page(log)
    assert (shown["total"], shown["limit"], shown["offset"], shown["replayable"]) == (2, 50, 0, True)
    assert "next_cursor" not in shown
    assert [item["id"] for item in shown["items"]] == ids[::-1]
    [item] = [item for item in shown["items"] if item["id"] == first]
    assert set(item) == {"id", "topic", "key", "payload", "retry_count", "created_at", "acked_at"}
    assert (item["topic"], item["key"], item["retry_count"]) == (log.topic, "k", 1)
    assert base64.b64decode(item["payload"]) == b"hej"
    assert datetime.fromisoformat(item["created_at"]) < datetime.fromisoformat(item["acked_at"])


async def test_the_log_is_paged_by_offset_and_by_cursor(log: Messages) -> None:
    await log.batch(*({"payload": str(n)} for n in range(7)))
    ids = (await work_off(log))[::-1]
    assert [item["id"] for item in (await page(log, limit=3, offset=2))["items"]] == ids[2:5]
    seen: list[str] = []
    shown = await page(log, limit=3)
    while True:
        seen += [item["id"] for item in shown["items"]]
        if "next_cursor" not in shown:
            break
        shown = await page(log, limit=3, cursor=shown["next_cursor"])
    assert seen == ids
    assert (await page(log, limit=0))["limit"] == 1
    assert (await page(log, limit=999))["limit"] == 200
    for query in ("limit=x", "offset=-1", "offset=10001", "cursor=x"):
        refused(await log.http.get(f"{URL.format(log.topic, 'message-log')}?{query}"), 400, "invalid_request")


async def test_a_dead_letter_keeps_its_id_in_the_log(http: httpx.AsyncClient, messages: Messages) -> None:
    dead = messages.of(f"{messages.topic}.dlq")
    await configure(dead)
    await configure(messages, max_deliveries=1, dead_letter=dead.topic)
    message = await messages.put()
    (taken,) = await messages.dequeue()
    await messages.nack(taken["id"])
    await work_off(dead)
    (item,) = (await page(dead))["items"]
    assert (item["id"], item["original_topic"], item["topic"]) == (message, messages.topic, dead.topic)


async def test_a_replay_enqueues_again_what_was_acked(log: Messages) -> None:
    await log.batch(*({"payload": f"m{n}", "metadata": {"n": str(n)}} for n in range(5)))
    first = await work_off(log)
    answer = await replay(log)
    assert set(answer) == {"topic", "enqueued", "skipped", "from_time", "until_time", "joined"}
    assert (answer["topic"], answer["enqueued"], answer["skipped"], answer["joined"]) == (log.topic, 5, 0, False)
    week = datetime.fromisoformat(answer["until_time"]) - datetime.fromisoformat(answer["from_time"])
    assert week == timedelta(days=7)
    again = await log.dequeue(10)
    assert [message["payload"] for message in again] == [f"m{n}" for n in range(5)]
    assert [message["metadata"] for message in again] == [{"n": str(n)} for n in range(5)]
    assert {message["id"] for message in again}.isdisjoint(first)
    assert {message["retry_count"] for message in again} == {0}


async def test_a_replay_from_a_time(log: Messages) -> None:
    await log.put("old")
    await work_off(log)
    await log.put("new")
    await work_off(log)
    since = (await page(log))["items"][0]["acked_at"]
    answer = await replay(log, {"from_time": since})
    assert (answer["enqueued"], answer["from_time"]) == (1, since)
    assert [message["payload"] for message in await log.dequeue(5)] == ["new"]
    local = datetime.fromisoformat(since).astimezone().isoformat()
    assert (await replay(log, {"from_time": local}))["enqueued"] == 1
    assert (await replay(log, {"from_time": None}))["enqueued"] == 2


async def test_what_can_not_be_replayed(http: httpx.AsyncClient, messages: Messages, log: Messages) -> None:
    url = URL.format(log.topic, "replay")
    for bad in ("yesterday", "", "2030-01-01T00:00:00", "0001-01-01T00:00:00+23:59"):
        refused(await http.post(url, json={"from_time": bad}), 422, "invalid_time")
    for far in (datetime.now(UTC) - timedelta(days=8), datetime.now(UTC) + timedelta(days=1)):
        refused(await http.post(url, json={"from_time": far.isoformat()}), 422, "outside_window")
    plain = messages.of(f"{messages.topic}-plain")
    await configure(plain, replayable=False)
    await plain.put()
    await work_off(plain)
    refused(await http.post(URL.format(plain.topic, "replay")), 422, "not_replayable")
    shown = await page(plain)
    assert (shown["items"], shown["replayable"]) == ([], False)


async def test_the_log_is_purged_up_to_a_time(log: Messages) -> None:
    await log.batch(*({"payload": str(n)} for n in range(4)))
    await work_off(log)
    items = (await page(log))["items"]
    assert await purge(log, items[1]["acked_at"]) == 2
    assert [item["id"] for item in (await page(log))["items"]] == [item["id"] for item in items[:2]]
    assert (await replay(log))["enqueued"] == 2
    assert await purge(log, datetime.now(UTC) + timedelta(days=1)) == 2
    assert await purge(log, datetime.now(UTC) + timedelta(days=1)) == 0
    for query in ("", "?before=x", "?before=2030-01-01"):
        answer = await log.http.delete(URL.format(log.topic, "message-log") + query)
        refused(answer, 400, "invalid_request")
