"""dedupe_id and idempotency keys in both dialects, and what the answers say. docs/semantics.md, section 8."""

from __future__ import annotations

import httpx
import pytest

from tests.api.dialect import Body, Topic, accepted
from tests.api.messages.client import Messages, done


async def test_v0_says_which_places_are_duplicates_and_of_what(queue: Topic) -> None:
    first = await queue.append({"data": 1, "dedupe_id": "a"}, {"data": 2})
    assert (first["seqs"], first["deduped"], "duplicates" in first) == ([1, 2], False, False)
    again = await queue.append({"data": 3}, {"data": 4, "dedupe_id": "a"}, {"data": 5, "dedupe_id": "b"})
    assert (again["seqs"], again["duplicates"], again["deduped"]) == ([3, 1, 4], [1], False)
    assert (again["first_seq"], again["last_seq"], again["head_seq"], again["count"]) == (1, 4, 4, 3)
    body = {"records": [{"data": 6, "dedupe_id": "b"}, {"data": 6, "dedupe_id": "c"}]}
    answer = accepted(await queue.http.post(f"{queue.path}?return_seqs=false", json=body))
    assert (answer["duplicates"], "seqs" in answer, answer["count"]) == ([0], False, 2)
    assert [job["data"] for job in (await queue.claim("n", max=9))["claimed"]] == [1, 2, 3, 5, 6]
    await queue.ack("n", [1])
    message = {"topic": queue.name, "payload": "x", "dedupe_id": "a"}
    assert done(await queue.http.post("/api/messages", json=message), 201)["duplicate"] is True


async def test_a_repeated_batch_is_no_batch_of_duplicates(queue: Topic) -> None:
    """deduped says it of the whole: nothing of it was looked at."""
    records = [{"data": 1, "dedupe_id": "a"}, {"data": 2, "dedupe_id": "a"}]
    first = await queue.append(*records, idempotency_key="k")
    again = await queue.append(*records, idempotency_key="k")
    assert (first["seqs"], first["duplicates"], first["deduped"]) == ([1, 1], [1], False)
    assert (again["seqs"], again["deduped"], again["head_seq"], "duplicates" in again) == ([1, 1], True, 1, False)


async def test_without_a_window_ids_and_keys_mean_nothing(queue: Topic) -> None:
    await queue.put(dedupe_window_ms=0, idempotency_window_ms=0)
    answer = await queue.append({"data": 1, "dedupe_id": "a"}, {"data": 2, "dedupe_id": "a"})
    assert (answer["seqs"], "duplicates" in answer) == ([1, 2], False)
    body = {"topic": queue.name, "payload": "x", "idempotency_key": "k"}
    assert len({done(await queue.http.post("/api/messages", json=body), 201)["id"] for _ in range(2)}) == 2


async def test_messages_say_it_of_one_and_of_many(http: httpx.AsyncClient, topic: str) -> None:
    body: Body = {"topic": topic, "payload": "x", "dedupe_id": "a"}
    first = done(await http.post("/api/messages", json=body), 201)
    assert set(first) == {"id"}
    assert done(await http.post("/api/messages", json=body), 201) == first | {"duplicate": True}
    many = {"topic": topic, "messages": [{"payload": "y", "dedupe_id": "b"}, {"payload": "z", "dedupe_id": "a"}]}
    answer = done(await http.post("/api/messages/batch", json=many), 201)
    assert (answer["ids"][1], answer["duplicates"]) == (first["id"], [1])
    assert [message["payload"] for message in await Messages(http, topic).dequeue(9)] == ["x", "y"]


@pytest.mark.parametrize("in_body", [False, True], ids=["header", "field"])
async def test_messages_with_an_idempotency_key_are_enqueued_once(
    in_body: bool, http: httpx.AsyncClient, topic: str
) -> None:
    async def keyed(body: Body, key: str = "k") -> Body:
        fields, headers = ({"idempotency_key": key}, {}) if in_body else ({}, {"idempotency-key": key})
        path = "/api/messages/batch" if "messages" in body else "/api/messages"
        return done(await http.post(path, json={"topic": topic, **body, **fields}, headers=headers), 201)

    messages = Messages(http, topic)
    first = await keyed({"payload": "x"})
    assert set(first) == {"id"}
    await messages.ack((await messages.take())["id"])
    assert await keyed({"payload": "other"}) == first | {"duplicate": True}
    assert await keyed({"payload": "y"}, "another") != first
    batch = await keyed({"messages": [{"payload": "x"}, {"payload": "y", "dedupe_id": "a"}]}, "b")
    assert set(batch) == {"ids"}
    assert await keyed({"messages": [{"payload": "z"}]}, "b") == batch | {"deduped": True}
    # One message has the first of them.
    assert await keyed({"payload": "z"}, "b") == {"id": batch["ids"][0], "duplicate": True}
    assert [message["payload"] for message in await messages.dequeue(9)] == ["y", "x", "y"]


async def test_idempotency_keys_are_the_same_in_both_dialects(queue: Topic) -> None:
    await queue.append({"data": "x"}, idempotency_key="k")
    body = {"topic": queue.name, "payload": "x"}
    # Of two, the body's goes first.
    headers, both = {"idempotency-key": "new"}, body | {"idempotency_key": "k"}
    assert done(await queue.http.post("/api/messages", json=both, headers=headers), 201)["duplicate"] is True
    assert "duplicate" not in done(await queue.http.post("/api/messages", json=body, headers=headers), 201)
    assert (await queue.append({"data": "x"}, idempotency_key="new"))["deduped"] is True
