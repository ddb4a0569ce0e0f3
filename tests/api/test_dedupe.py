"""dedupe_id in both dialects, and what the answers say. docs/semantics.md, section 8."""

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
