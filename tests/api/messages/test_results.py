"""Results and progress that are handed in over the messages dialect; v0 shows them."""

from __future__ import annotations

import pytest

from tests.api.dialect import accepted
from tests.api.messages.client import Body, Messages, done, refused


async def result(messages: Messages, message_id: str) -> Body:
    """An id ends with the job's seq."""
    seq = int(message_id[-12:], 16)
    return accepted(await messages.http.get(f"/v0/topics/{messages.topic}/jobs/{seq}/result"))


async def test_a_result_is_kept_for_a_day(messages: Messages) -> None:
    """The first that its lease hands in: the same again answers alike. One without a result is known to be done."""
    one, two = await messages.put(), await messages.put()
    assert (await result(messages, one))["state"] == "pending"
    lease = (await messages.take())["lease_id"]
    await messages.ack(one, lease_id=lease, result={"n": [1, None]})
    await messages.ack(one, lease_id=lease, result="second")
    found = await result(messages, one)
    assert (found["state"], found["result"]) == ("completed", {"n": [1, None]})
    assert found["expires_at"] - found["completed_at"] == pytest.approx(86_400_000, abs=1)
    refused(await messages.verb(one, "ack", lease_id=lease), 404, "not_found")
    refused(await messages.verb(one, "ack", result="third"), 404, "not_found")
    await messages.dequeue()
    await messages.ack(two, result=None)
    found = await result(messages, two)
    assert (found["state"], found["result"], "expires_at" in found) == ("completed", None, False)


async def test_a_batch_hands_in_one_for_each_id(messages: Messages) -> None:
    ids = await messages.batch(*({"payload": str(n)} for n in range(3)))
    await messages.dequeue(3)
    other = messages.of(f"{messages.topic}.b")
    ids.insert(1, await other.put())
    await other.dequeue()
    body: Body = {"ids": ids, "results": ["a", "b", None, "d"]}
    assert done(await messages.http.post("/api/messages/ack", json=body)) == {"acked": 4, "skipped": []}
    of = [messages, other, messages, messages]
    assert [(await result(*one))["result"] for one in zip(of, ids, strict=True)] == ["a", "b", None, "d"]
    refused(await messages.http.post("/api/messages/ack", json={"ids": ids, "results": []}), 400, "invalid_request")


async def test_a_result_of_a_dead_letter_is_found_by_the_same_seq(messages: Messages) -> None:
    one = await messages.put(max_deliveries=1)
    await messages.dequeue()
    await messages.nack(one, error="boom")
    letters = messages.of(f"{messages.topic}.dlq")
    lease = (await letters.take())["lease_id"]
    for _ in range(2):
        await messages.ack(one, lease_id=lease, result="mended")
    assert (await result(messages, one))["result"] == "mended"


async def test_progress_is_shown_with_the_message(messages: Messages) -> None:
    one = await messages.put()
    lease = (await messages.take())["lease_id"]
    said: Body = {"percent": 40, "note": "half of it"}
    await messages.extend(one, lease_id=lease, visibility_timeout_seconds=60, progress=said)
    shown = (await messages.get(one))["progress"]
    assert {name: shown[name] for name in said} == said
    assert (await messages.page())["items"][0]["progress"] == shown
    await messages.extend(one, lease_id=lease, visibility_timeout_seconds=60, progress={"percent": 50})
    assert set((await messages.get(one))["progress"]) == {"percent", "at"}
    await messages.nack(one)
    assert "progress" not in await messages.get(one)
    await messages.take()
    assert "progress" not in await messages.get(one), "it was another delivery's"
