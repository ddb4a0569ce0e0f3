"""Two dialects, one queue: what one does, the other sees."""

from __future__ import annotations

import httpx

from tests.api.dialect import Topic
from tests.api.messages.client import Messages, refused


async def test_what_is_enqueued_here_is_claimed_there(http: httpx.AsyncClient, messages: Messages) -> None:
    await messages.put('{"to": "a@b.c"}', metadata={"trace": "z9"}, priority=3)
    await messages.put("plain")
    topic = Topic(http, messages.topic)
    first, second = (await topic.claim("w", max=2))["claimed"]
    assert (first["data"], first["meta"], first["deliveries"]) == ({"to": "a@b.c"}, {"trace": "z9"}, 1)
    assert (second["data"], "meta" in second) == ("plain", False)
    assert (await topic.ack("w", [first["$seq"], second["$seq"]]))["acked"] == 2
    assert await messages.dequeue() == []


async def test_what_is_enqueued_there_is_dequeued_here(http: httpx.AsyncClient, queue: Topic) -> None:
    await queue.append(
        {"data": {"n": 1}, "tag": "t", "meta": {"s": "x", "n": 1, "o": {"a": [1, None]}, "e": '\\"é'}, "ttl_ms": 60_000}
    )
    messages = Messages(http, queue.name)
    (one,) = await messages.dequeue()
    assert one["payload"] == '{"n":1}'
    assert one["metadata"] == {"s": "x", "n": "1", "o": '{"a":[1,null]}', "e": '\\"é'}
    assert (one["status"], one["retry_count"], one["max_retries"]) == ("processing", 0, 0)
    assert one["created_at"] < one["visibility_timeout"] < one["expires_at"]
    await messages.ack(one["id"], lease_id=one["lease_id"])
    assert await queue.counts() == (0, 0)


async def test_a_lease_of_one_is_a_lease_of_the_other(http: httpx.AsyncClient, messages: Messages) -> None:
    ids = await messages.batch({"payload": "1"}, {"payload": "2"})
    topic = Topic(http, messages.topic)
    (here,) = await messages.dequeue()
    (there,) = (await topic.claim("w"))["claimed"]
    assert (here["id"], there["data"]) == (ids[0], 2)
    assert (await topic.extend("messages", [1], 60_000, lease_ids=[here["lease_id"]]))["extended"] == 1
    assert (await topic.ack("w", [1]))["skipped"] == [1]
    assert (await topic.ack("messages", [1], lease_ids=[here["lease_id"]]))["acked"] == 1
    refused(await messages.verb(ids[1], "ack", lease_id=here["lease_id"]), 404, "not_found")
    await messages.ack(ids[1], lease_id=there["lease_id"])
    assert await topic.counts() == (0, 0)


async def test_a_dead_letter_tells_both_where_it_came_from(http: httpx.AsyncClient, messages: Messages) -> None:
    one = await messages.put(metadata={"a": "b"})
    for _ in range(3):
        await messages.take()
        await messages.nack(one)
    job = await Topic(http, f"{messages.topic}.dlq").take()
    assert job["meta"] == {
        "a": "b",
        "$dead_letter_from": messages.topic,
        "$dead_letter_deliveries": "3",
        "$dead_letter_src_seq": "1",
    }


async def test_a_topic_that_an_enqueue_makes_is_a_durable_queue_with_the_originals_defaults(
    http: httpx.AsyncClient, messages: Messages
) -> None:
    one = await messages.put()
    state = await Topic(http, messages.topic).state()
    shown = {name: state["config"][name] for name in ("type", "durability", "lease_ms", "max_deliveries", "ttl_ms")}
    assert shown == {
        "type": "queue",
        "durability": "fsync",
        "lease_ms": 30_000,
        "max_deliveries": 3,
        "ttl_ms": 86_400_000,
    }
    assert state["config"]["dead_letter"] == f"{messages.topic}.dlq"
    assert "expires_at" in await messages.get(one)
