"""Messages with keys, as a client sees them."""

from __future__ import annotations

import httpx
import pytest

from tests.api.messages.client import Messages, done, refused


async def test_a_message_that_waits_is_updated_and_keeps_its_id(messages: Messages) -> None:
    first = await messages.put("one", key="k")
    assert await messages.put("two", key="k", metadata={"n": "2"}) == first
    shown = await messages.get(first)
    assert (shown["payload"], shown["metadata"], shown["key"]) == ("two", {"n": "2"}, "k")
    assert await messages.batch({"payload": "3"}, {"payload": "4", "key": "k"}, {"payload": "5", "key": "k"}) != []
    (taken, other) = await messages.dequeue(2)
    assert (taken["id"], taken["payload"], taken["key"]) == (first, "5", "k")
    assert "key" not in other
    second = await messages.put('{"six":6}', key="k")
    await messages.put("text", key="k", content_type="text/plain")  # an update may change the type
    shown = await messages.get(second)
    assert (shown["payload"], shown["content_type"]) == ("text", "text/plain")
    assert second != first
    await messages.nack(first, error="no")  # a newer one waits
    assert await messages.gone(first)
    assert (await messages.take())["id"] == second


@pytest.mark.parametrize("key", ["k", "a/b c%2F?", "ключ", "x" * 256])
async def test_deletion_by_key(messages: Messages, http: httpx.AsyncClient, key: str) -> None:
    path = f"/api/topics/{messages.topic}/messages/by-key/"
    url = http.base_url.copy_with(raw_path=path.encode() + "".join(f"%{b:02X}" for b in key.encode()).encode())
    assert done(await http.delete(url)) == {"deleted": 0}  # there is no such topic
    await messages.put("1", key=key)
    (taken,) = await messages.dequeue()
    await messages.put("2", key=key)
    other = await messages.put("3", key="other")
    assert done(await http.delete(url)) == {"deleted": 2}
    assert done(await http.delete(url)) == {"deleted": 0}
    refused(await messages.verb(taken["id"], "ack"), 404, "not_found")
    assert [one["id"] for one in await messages.dequeue(10)] == [other]


async def test_what_is_no_key_is_refused(messages: Messages, http: httpx.AsyncClient) -> None:
    for path in ("", "x" * 257, "%00"):
        answer = await http.delete(f"/api/topics/{messages.topic}/messages/by-key/{path}")
        refused(answer, 400, "invalid_request")
