"""Each transition of the original's page on concepts, by its cause."""

from __future__ import annotations

import httpx

from app.kernel.engine import Engine
from app.kernel.topics.cache import Policies
from tests.api.dialect import Topic, eventually
from tests.api.messages.client import Messages, refused


async def test_pending_processing_acknowledged_gone(messages: Messages) -> None:
    one = await messages.put("hello", metadata={"a": "b"})
    assert (await messages.get(one))["status"] == "pending"
    (taken,) = await messages.dequeue()
    assert (taken["id"], taken["status"], taken["payload"]) == (one, "processing", "hello")
    assert taken["metadata"] == {"a": "b"}
    assert (taken["retry_count"], taken["max_retries"]) == (0, 3)
    shown = await messages.get(one)
    assert shown["status"] == "processing"
    assert shown["visibility_timeout"] == taken["visibility_timeout"]
    assert "lease_id" not in shown
    assert await messages.dequeue() == []
    await messages.ack(one)
    assert await messages.gone(one)
    assert (await messages.page())["items"] == []
    for verb in ("ack", "nack", "extend"):
        refused(await messages.verb(one, verb), 404, "not_found")


async def test_a_nack_with_retries_left_makes_it_pending_again(messages: Messages) -> None:
    one = await messages.put()
    await messages.dequeue()
    await messages.nack(one, error="smtp: 421")
    shown = await messages.get(one)
    assert (shown["status"], shown["retry_count"], shown["last_error"]) == ("pending", 1, "smtp: 421")
    again = await messages.take()
    assert (again["id"], again["retry_count"], again["last_error"]) == (one, 1, "smtp: 421")


async def test_the_nack_that_reaches_the_threshold_moves_it_to_the_dead_letters(messages: Messages) -> None:
    one = await messages.put("poison", metadata={"k": "v"})
    for attempt in range(3):
        taken = await messages.take()
        assert taken["retry_count"] == attempt
        await messages.nack(one, error=f"attempt {attempt}")
    assert (await messages.page())["items"] == []
    dead = await messages.get(one)
    letters = messages.of(f"{messages.topic}.dlq")
    assert (await letters.page())["items"] == [dead]
    assert (dead["id"], dead["topic"], dead["status"]) == (one, letters.topic, "pending")
    assert (dead["retry_count"], dead["max_retries"], dead["last_error"]) == (0, 0, "attempt 2")
    assert (dead["payload"], dead["metadata"]) == ("poison", {"k": "v"})
    assert dead["original_topic"] == messages.topic
    assert dead["dlq_moved_at"] >= dead["created_at"]
    assert "expires_at" not in dead


async def test_dead_letters_can_be_worked_on_under_the_ids_that_they_had(messages: Messages) -> None:
    ids = [await messages.put(str(n)) for n in range(3)]
    for _ in range(3):
        for taken in await messages.dequeue(3):
            await messages.nack(taken["id"])
    letters = messages.of(f"{messages.topic}.dlq")
    held = await letters.dequeue(3)
    assert [one["id"] for one in held] == ids
    assert {one["original_topic"] for one in held} == {messages.topic}
    extended = await messages.extend(ids[0], visibility_timeout_seconds=600)
    assert extended["visibility_timeout"] > held[0]["visibility_timeout"]
    await messages.nack(ids[0], error="still")
    assert (await messages.get(ids[0]))["last_error"] == "still"
    refused(await messages.verb(ids[1], "ack", lease_id="lease_1"), 404, "not_found")
    await messages.ack(ids[1], lease_id=held[1]["lease_id"])
    answer = await messages.http.post("/api/messages/ack", json={"ids": [*ids, "x"]})
    assert answer.json() == {"acked": 1, "skipped": [ids[0], ids[1], "x"]}
    assert [await messages.gone(one) for one in ids] == [False, True, True]


async def test_a_dead_letter_of_a_dead_letter_keeps_its_id(http: httpx.AsyncClient, messages: Messages) -> None:
    """A chain that v0 can make."""
    names = [messages.topic, f"{messages.topic}.a", f"{messages.topic}.b"]
    for name, after in zip(names, [*names[1:], None], strict=True):
        await Topic(http, name).put(max_deliveries=1 if after else 0, dead_letter=after)
    one = await messages.put()
    for name in names[:2]:
        (taken,) = await messages.of(name).dequeue()
        assert taken["id"] == one
        await messages.nack(one)
    assert (await messages.get(one))["topic"] == names[2]
    (taken,) = await messages.of(names[2]).dequeue()
    assert (taken["id"], taken["original_topic"]) == (one, names[1])
    await messages.ack(one)
    assert await messages.gone(one)


async def test_where_there_are_no_dead_letters_the_last_nack_fails_it(
    http: httpx.AsyncClient, messages: Messages
) -> None:
    await Topic(http, messages.topic).put(max_deliveries=1, on_exhausted="fail")
    one = await messages.put()
    await messages.dequeue()
    await messages.nack(one, error="no")
    shown = await messages.get(one)
    assert (shown["status"], shown["retry_count"], shown["last_error"]) == ("failed", 1, "no")
    assert await messages.dequeue() == []
    assert await messages.counts() == {"failed": 1}
    refused(await messages.verb(one, "ack"), 404, "not_found")


async def test_a_time_to_live_that_passes_makes_it_expired(
    messages: Messages, engine: Engine, policies: Policies
) -> None:
    """By the clock, before and after a sweep has marked it; whether it waits, is delayed or was leased."""
    leased = await messages.put(ttl_seconds=1)
    await messages.dequeue(visibility_timeout_seconds=0.1)
    ids = [leased, await messages.put(ttl_seconds=1), await messages.put(ttl_seconds=1, delay_seconds=3_600)]

    async def over() -> bool:
        return [(await messages.get(one))["status"] for one in ids] == ["expired"] * 3

    await eventually(over)
    for _ in range(2):
        assert await messages.counts() == {"expired": 3}
        assert [item["id"] for item in (await messages.page(status="expired"))["items"]] == ids[::-1]
        assert await messages.dequeue() == []
        await engine.exits.expire(await policies.queue(messages.topic))
