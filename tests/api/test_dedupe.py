"""dedupe_id and idempotency keys in both dialects, and what the answers say. docs/semantics.md, section 8."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.api.dialect import Body, Topic, accepted, refused
from tests.api.messages.client import Messages, done


def post(http: httpx.AsyncClient, topic: str, *messages: Body) -> asyncio.Future[httpx.Response]:
    return asyncio.ensure_future(http.post("/api/messages/batch", json={"topic": topic, "messages": messages}))


async def test_v0_says_which_places_are_duplicates_and_of_what(queue: Topic) -> None:
    first = await queue.append({"data": 1, "dedupe_id": "a"}, {"data": 2})
    assert (first["seqs"], first["deduped"], "duplicates" in first) == ([1, 2], False, False)
    again = await queue.append({"data": 3}, {"data": 4, "dedupe_id": "a"}, {"data": 5, "dedupe_id": "b"})
    assert (again["seqs"], again["duplicates"], again["deduped"]) == ([3, 1, 4], [1], False)
    assert (again["first_seq"], again["last_seq"], again["head_seq"], again["count"]) == (1, 4, 4, 3)
    only = await queue.append({"data": 6, "dedupe_id": "b"})
    assert (only["seqs"], only["duplicates"], only["head_seq"]) == ([4], [0], 4)
    assert [job["data"] for job in (await queue.claim("n", max=9))["claimed"]] == [1, 2, 3, 5]


async def test_without_seqs_the_places_are_told_all_the_same(queue: Topic) -> None:
    body = {"records": [{"data": 1, "dedupe_id": "a"}, {"data": 2, "dedupe_id": "a"}]}
    answer = accepted(await queue.http.post(f"{queue.path}?return_seqs=false", json=body))
    assert (answer["duplicates"], "seqs" in answer, answer["count"]) == ([1], False, 2)


async def test_a_job_that_is_done_is_not_done_again(queue: Topic) -> None:
    await queue.append({"data": 1, "dedupe_id": "a"})
    job = (await queue.claim("n"))["claimed"][0]
    await queue.ack("n", [job["$seq"]])
    assert (await queue.append({"data": 1, "dedupe_id": "a"}))["duplicates"] == [0]
    assert (await queue.claim("n"))["count"] == 0


async def test_a_repeated_batch_is_no_batch_of_duplicates(queue: Topic) -> None:
    """deduped says it of the whole: nothing of it was looked at."""
    records = [{"data": 1, "dedupe_id": "a"}, {"data": 2, "dedupe_id": "a"}]
    first = await queue.append(*records, idempotency_key="k")
    again = await queue.append(*records, idempotency_key="k")
    assert (first["seqs"], first["duplicates"], first["deduped"]) == ([1, 1], [1], False)
    assert (again["seqs"], again["deduped"], again["head_seq"], "duplicates" in again) == ([1, 1], True, 1, False)


async def test_without_a_window_ids_mean_nothing(http: httpx.AsyncClient, topic: str) -> None:
    queue = Topic(http, topic)
    await queue.put(dedupe_window_ms=0)
    answer = await queue.append({"data": 1, "dedupe_id": "a"}, {"data": 2, "dedupe_id": "a"})
    assert (answer["seqs"], "duplicates" in answer) == ([1, 2], False)


async def test_a_window_that_is_over_and_a_topic_that_is_made_anew(http: httpx.AsyncClient, topic: str) -> None:
    queue = Topic(http, topic)
    await queue.put(dedupe_window_ms=1)
    await queue.append({"data": 1, "dedupe_id": "a"})
    while "duplicates" in await queue.append({"data": 2, "dedupe_id": "a"}):
        pass
    await queue.put(dedupe_window_ms=604_800_000)
    await queue.append({"data": 1, "dedupe_id": "b"})
    await queue.drop()
    await queue.put()
    assert "duplicates" not in await queue.append({"data": 1, "dedupe_id": "b"})


async def test_messages_say_it_of_one_and_of_many(http: httpx.AsyncClient, topic: str) -> None:
    messages = Messages(http, topic)
    body: Body = {"topic": topic, "payload": "x", "dedupe_id": "a"}
    first = done(await http.post("/api/messages", json=body), 201)
    assert set(first) == {"id"}
    assert done(await http.post("/api/messages", json=body), 201) == first | {"duplicate": True}
    many = done(await post(http, topic, {"payload": "y", "dedupe_id": "b"}, {"payload": "z", "dedupe_id": "a"}), 201)
    assert (many["ids"][1], many["duplicates"]) == (first["id"], [1])
    assert set(done(await post(http, topic, {"payload": "w"}), 201)) == {"ids"}
    assert [message["payload"] for message in await messages.dequeue(9)] == ["x", "y", "w"]


async def test_both_dialects_know_the_same_ids(queue: Topic) -> None:
    await queue.append({"data": "x", "dedupe_id": "a"})
    body = {"topic": queue.name, "payload": "x", "dedupe_id": "a"}
    assert done(await queue.http.post("/api/messages", json=body), 201)["duplicate"] is True


def keyed(http: httpx.AsyncClient, body: Body, key: str, *, in_body: bool = False) -> asyncio.Future[httpx.Response]:
    """A message, or several, with an idempotency key."""
    path = "/api/messages/batch" if "messages" in body else "/api/messages"
    fields, headers = ({"idempotency_key": key}, {}) if in_body else ({}, {"idempotency-key": key})
    return asyncio.ensure_future(http.post(path, json=body | fields, headers=headers))


@pytest.mark.parametrize("in_body", [False, True], ids=["header", "field"])
async def test_a_message_with_an_idempotency_key_is_enqueued_once(
    in_body: bool, http: httpx.AsyncClient, topic: str
) -> None:
    messages, body = Messages(http, topic), {"topic": topic, "payload": "x"}
    first = done(await keyed(http, body, "k", in_body=in_body), 201)
    assert set(first) == {"id"}
    again = done(await keyed(http, body | {"payload": "other"}, "k", in_body=in_body), 201)
    assert again == first | {"duplicate": True}
    assert done(await keyed(http, body, "k2", in_body=in_body), 201)["id"] != first["id"]
    assert (await messages.take())["id"] == first["id"]
    await messages.ack(first["id"])
    assert done(await keyed(http, body, "k", in_body=in_body), 201) == again  # done, and not done again
    assert [message["payload"] for message in await messages.dequeue(9)] == ["x"]


@pytest.mark.parametrize("in_body", [False, True], ids=["header", "field"])
async def test_a_batch_of_messages_with_one_is_enqueued_once(
    in_body: bool, http: httpx.AsyncClient, topic: str
) -> None:
    body: Body = {"topic": topic, "messages": [{"payload": "x"}, {"payload": "y", "dedupe_id": "a"}]}
    first = done(await keyed(http, body, "k", in_body=in_body), 201)
    assert set(first) == {"ids"}
    fewer = body | {"messages": [{"payload": "z"}]}
    assert done(await keyed(http, fewer, "k", in_body=in_body), 201) == first | {"deduped": True}
    # One message has the first of them.
    one = {"topic": topic, "payload": "z"}
    assert done(await keyed(http, one, "k", in_body=in_body), 201) == {"id": first["ids"][0], "duplicate": True}
    assert len(await Messages(http, topic).dequeue(9)) == 2


async def test_idempotency_keys_are_the_same_in_both_dialects(queue: Topic) -> None:
    await queue.append({"data": "x"}, idempotency_key="k")
    body = {"topic": queue.name, "payload": "x"}
    assert done(await keyed(queue.http, body, "k"), 201)["duplicate"] is True
    await keyed(queue.http, body, "m")
    assert (await queue.append({"data": "x"}, idempotency_key="m"))["deduped"] is True
    # Of two, the body's goes first.
    headers, both = {"idempotency-key": "new"}, body | {"idempotency_key": "k"}
    assert done(await queue.http.post("/api/messages", json=both, headers=headers), 201)["duplicate"] is True


async def test_fifty_messages_of_one_idempotency_key_at_once(http: httpx.AsyncClient, topic: str) -> None:
    await Messages(http, topic).put()
    body = {"topic": topic, "payload": "x"}
    answers = [done(answer, 201) for answer in await asyncio.gather(*(keyed(http, body, "k") for _ in range(50)))]
    assert len({answer["id"] for answer in answers}) == 1
    assert sum("duplicate" not in answer for answer in answers) == 1
    assert len(await Messages(http, topic).dequeue(9)) == 2


async def test_without_a_window_idempotency_keys_of_messages_mean_nothing(http: httpx.AsyncClient, topic: str) -> None:
    done(await http.put(f"/api/topic-configs/{topic}", json={"idempotency_window_ms": 0}))
    body = {"topic": topic, "payload": "x"}
    assert len({done(await keyed(http, body, "k"), 201)["id"] for _ in range(2)}) == 2


@pytest.mark.parametrize("key", ["", "a" * 257, 5, "\0"])
async def test_what_is_no_idempotency_key_of_messages(key: object, http: httpx.AsyncClient, topic: str) -> None:
    one: Body = {"topic": topic, "payload": "x", "idempotency_key": key}
    refused(await http.post("/api/messages", json=one), 400, "invalid_request")
    many: Body = {"topic": topic, "messages": [{"payload": "x"}], "idempotency_key": key}
    refused(await http.post("/api/messages/batch", json=many), 400, "invalid_request")
    if key in {"", "a" * 257}:
        refused(await keyed(http, {"topic": topic, "payload": "x"}, str(key)), 400, "invalid_request")


async def test_fifty_at_once_over_http(queue: Topic) -> None:
    answers = await asyncio.gather(*(queue.append({"data": n}, {"data": n, "dedupe_id": "a"}) for n in range(50)))
    assert len({answer["seqs"][1] for answer in answers}) == 1
    assert sum("duplicates" not in answer for answer in answers) == 1
    assert (await queue.counts())[0] == 51


@pytest.mark.parametrize("dedupe_id", ["", "a" * 257, 5, "\0"])
async def test_what_is_no_id(dedupe_id: object, queue: Topic) -> None:
    records = {"records": [{"data": 1, "dedupe_id": dedupe_id}]}
    refused(await queue.http.post(queue.path, json=records), 400, "invalid_request")
    message = {"topic": queue.name, "payload": "x", "dedupe_id": dedupe_id}
    refused(await queue.http.post("/api/messages", json=message), 400, "invalid_request")


@pytest.mark.parametrize("dedupe_id", ["é" * 256, "a b/c", "\U0001f600" * 256])
async def test_what_is_one(dedupe_id: str, queue: Topic) -> None:
    for duplicates in (None, [0]):
        assert (await queue.append({"data": 1, "dedupe_id": dedupe_id})).get("duplicates") == duplicates


@pytest.mark.parametrize("window", [-1, 604_800_001, "1", True])
async def test_what_is_no_window(window: object, http: httpx.AsyncClient, topic: str) -> None:
    body = {"type": "queue", "dedupe_window_ms": window}
    refused(await http.put(f"/v0/topics/{topic}", json=body), 400, "invalid_request")
    refused(await http.put(f"/api/topic-configs/{topic}", json={"dedupe_window_ms": window}), 400, "invalid_request")
