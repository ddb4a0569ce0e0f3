"""Each row of the contract: what the routes take, answer and refuse."""

from __future__ import annotations

import asyncio
import uuid
from datetime import UTC, datetime, timedelta

import httpx
import pytest

from app.kernel.model import id_of
from tests.api.conftest import Serve
from tests.api.dialect import Topic, eventually, until_waiting
from tests.api.messages.client import Body, Messages, done, refused
from tests.api.test_metrics import scrape
from tests.conftest import Running


async def test_version_and_whether_a_key_is_needed(http: httpx.AsyncClient) -> None:
    assert set(done(await http.get("/api/version"))) == {"version"}
    assert done(await http.get("/api/auth/status")) == {"auth_required": False}
    assert done(await http.get("/healthz"))["status"] == "ok"


async def test_an_enqueue_answers_an_id(messages: Messages) -> None:
    shown = await messages.put()
    assert uuid.UUID(shown).version == 8
    assert (await messages.get(shown.upper()))["id"] == shown


BAD: list[Body] = [
    {"payload": "x"},
    {"topic": "t"},
    {"topic": "t", "payload": ""},
    {"topic": "t", "payload": None},
    {"topic": "t", "payload": 1},
    {"topic": "", "payload": "x"},
    {"topic": "a/b", "payload": "x"},
    {"topic": "t.dlq", "payload": "x"},
    {"topic": "t" * 252, "payload": "x"},
    {"topic": "t", "payload": "x", "metadata": {"a": 1}},
    {"topic": "t", "payload": "x", "metadata": {str(n): "" for n in range(65)}},
    {"topic": "t", "payload": "x", "metadata": {"a": "b" * 16_384}},
    {"topic": "t", "payload": "x", "priority": 10},
    {"topic": "t", "payload": "x", "priority": -1},
    {"topic": "t", "payload": "x", "delay_seconds": -1},
    {"topic": "t", "payload": "x", "run_at": "tomorrow"},
    {"topic": "t", "payload": "x", "run_at": "2030-01-01T00:00:00"},
    {"topic": "t", "payload": "x", "ttl_seconds": -1},
    {"topic": "t", "payload": "x", "max_deliveries": 10_001},
    {"topic": "t", "payload": "x", "tenant": ""},
    {"topic": "t", "payload": "x", "tenant": "a" * 129},
    {"topic": "t", "payload": "x", "group": ""},
    {"topic": "t.fifo", "payload": "x"},
    {"topic": "t", "payload": "x", "dedupe_id": ""},
    {"topic": "t", "payload": "x", "dedupe_id": "a" * 257},
    {"topic": "t", "payload": "x", "dedupe_id": "\0"},
]


@pytest.mark.parametrize("body", BAD)
async def test_what_is_no_message_is_a_400(http: httpx.AsyncClient, body: Body) -> None:
    refused(await http.post("/api/messages", json=body), 400, "invalid_request")


async def test_what_is_no_body(http: httpx.AsyncClient) -> None:
    for path in ("/api/messages", "/api/messages/batch", "/api/messages/dequeue", "/api/messages/ack"):
        refused(await http.post(path), 415, "unsupported_media_type")
        refused(
            await http.post(path, content="x", headers={"content-type": "text/plain"}), 415, "unsupported_media_type"
        )
        refused(
            await http.post(path, content="{", headers={"content-type": "application/json"}), 400, "invalid_request"
        )
        refused(await http.post(path, json=[]), 400, "invalid_request")


async def test_nothing_is_made_in_vain(http: httpx.AsyncClient, messages: Messages) -> None:
    """A refused enqueue makes no topic, and neither does anything but an enqueue."""
    await http.post("/api/messages", json={"topic": messages.topic, "payload": "x", "priority": 10})
    assert await messages.dequeue() == []
    page = await messages.page()
    assert (page["items"], page["total"]) == ([], 0)
    assert await messages.purge() == 0
    assert (await http.get(f"/v0/topics/{messages.topic}")).status_code == 404


async def test_too_much_is_refused(serve: Serve, http: httpx.AsyncClient, messages: Messages) -> None:
    body = {"topic": messages.topic, "payload": "x" * (1024 * 1024 + 1)}
    refused(await http.post("/api/messages", json=body), 400, "record_too_large")
    await messages.put("x" * 1024 * 1024)
    small = await serve(max_body_bytes=1_024)
    async with httpx.AsyncClient(base_url=small.url) as other:
        refused(await other.post("/api/messages", json=body), 413, "payload_too_large")
    many = {"topic": messages.topic, "messages": [{"payload": "x"}] * 10_001}
    refused(await http.post("/api/messages/batch", json=many), 400, "batch_too_large")


async def test_a_batch_is_enqueued_whole_or_not_at_all(http: httpx.AsyncClient, messages: Messages) -> None:
    ids = await messages.batch(*({"payload": str(n), "priority": n % 2} for n in range(4)))
    assert [(await messages.get(one))["payload"] for one in ids] == ["0", "1", "2", "3"]
    assert [one["payload"] for one in await messages.dequeue(9)] == ["1", "3", "0", "2"]
    bad = {"topic": messages.topic, "messages": [{"payload": "x"}, {"payload": "y", "encoding": "base64"}]}
    assert refused(await http.post("/api/messages/batch", json=bad), 400, "invalid_request").startswith("Message 1: ")
    bad["messages"] = []
    refused(await http.post("/api/messages/batch", json=bad), 400, "invalid_request")
    assert await messages.counts() == {"processing": 4}


async def test_a_delay_hides_a_message_until_its_time(messages: Messages) -> None:
    soon, late = await messages.put("soon", delay_seconds=0.2), await messages.put("late", delay_seconds=3_600)
    at = (datetime.now(UTC) + timedelta(hours=1)).isoformat()
    at_once = await messages.put("at once", run_at="2020-01-01T00:00:00Z")
    later = await messages.put("later", run_at=at)
    assert [one["id"] for one in await messages.dequeue(9)] == [at_once]
    assert (await messages.take())["id"] == soon
    assert [(await messages.get(one))["status"] for one in (late, later)] == ["pending", "pending"]


async def test_a_message_has_its_own_time_to_live_and_deliveries(messages: Messages) -> None:
    for_ever, once = await messages.batch({"payload": "x", "ttl_seconds": 0}, {"payload": "y", "max_deliveries": 1})
    assert "expires_at" not in await messages.get(for_ever)
    assert [one["max_retries"] for one in await messages.dequeue(2)] == [3, 1]
    await messages.nack(once)
    assert (await messages.get(once))["original_topic"] == messages.topic


@pytest.mark.parametrize(
    ("asked", "seconds"), [(None, 30), (0, 30), (-5, 30), (60, 60), (0.001, 0.1), (1e300, 86_400), (1.5, 1.5)]
)
async def test_the_visibility_timeout_is_what_was_asked_for(
    messages: Messages, asked: float | None, seconds: float
) -> None:
    await messages.put()
    (one,) = await messages.dequeue(visibility_timeout_seconds=asked)
    created, until = (datetime.fromisoformat(one[name]) for name in ("created_at", "visibility_timeout"))
    assert timedelta(seconds=seconds) <= until - created < timedelta(seconds=seconds + 15)


@pytest.mark.parametrize(
    "body",
    [
        *({}, {"topic": "a b"}, {"count": 0}, {"count": 1_001}, {"wait_seconds": -1}, {"wait_seconds": 30.1}),
        *({"encoding": "x"}, {"consumer_group": "g"}, {"count": "1"}),
    ],
)
async def test_what_is_no_dequeue_is_a_400(http: httpx.AsyncClient, body: Body) -> None:
    whole = {"topic": "t", **body} if body else {}
    refused(await http.post("/api/messages/dequeue", json=whole), 400, "invalid_request")


async def test_a_dequeue_takes_up_to_its_count_in_order(messages: Messages) -> None:
    ids = await messages.batch(*({"payload": str(n)} for n in range(5)))
    assert [one["id"] for one in await messages.dequeue(3)] == ids[:3]
    assert [one["id"] for one in await messages.dequeue(1_000, consumer_group="")] == ids[3:]
    assert await messages.dequeue() == []


async def test_a_dequeue_waits_for_the_first_message(service: Running, messages: Messages) -> None:
    await messages.put("first")
    await messages.dequeue()
    waiting = asyncio.create_task(messages.take())
    await until_waiting(service, messages.topic, 1)
    two = await messages.put("second")
    assert (await waiting)["id"] == two


async def test_a_dequeue_waits_for_a_topic_that_is_yet_to_be_made(
    monkeypatch: pytest.MonkeyPatch, messages: Messages
) -> None:
    monkeypatch.setattr("app.features.queue.messages_leases.ABSENT_SECONDS", 0.01)
    assert await messages.dequeue(wait_seconds=0.05) == []
    waiting = asyncio.create_task(messages.take())
    one = await messages.put()
    assert (await waiting)["id"] == one


async def test_who_waits_hears_of_a_topic_that_is_made(monkeypatch: pytest.MonkeyPatch, messages: Messages) -> None:
    monkeypatch.setattr("app.features.queue.messages_leases.ABSENT_SECONDS", 3_600)
    waiting = [asyncio.create_task(messages.take()) for _ in range(3)]
    await asyncio.sleep(0.3)
    ids = await messages.batch(*[{"payload": "x"}] * 3)
    async with asyncio.timeout(5):
        assert sorted([(await one)["id"] for one in waiting]) == sorted(ids)


async def test_who_leaves_gives_back_what_was_taken_for_them(
    service: Running, http: httpx.AsyncClient, messages: Messages
) -> None:
    await messages.put()
    await messages.ack((await messages.take())["id"])
    async with httpx.AsyncClient(base_url=service.url) as other:
        leaving = asyncio.create_task(Messages(other, messages.topic).take())
        await until_waiting(service, messages.topic, 1)
        leaving.cancel()
    await until_waiting(service, messages.topic, 0)
    one = await messages.put()
    assert (await messages.get(one))["retry_count"] == 0
    assert (await messages.take())["id"] == one


FOREIGN = ["6c4836cc-0f55-4b9e-b9db-f721bc642d01", id_of(2**31 - 1, 1), "x", "abc123", "%20", "a" * 300]


@pytest.mark.parametrize("message_id", FOREIGN)
async def test_an_id_that_no_message_has_is_a_404(http: httpx.AsyncClient, message_id: str) -> None:
    refused(await http.get(f"/api/messages/{message_id}"), 404, "not_found")
    for verb in ("ack", "nack", "extend"):
        refused(await http.post(f"/api/messages/{message_id}/{verb}"), 404, "not_found")


async def test_an_id_of_a_topic_that_was_made_anew_is_a_404(http: httpx.AsyncClient, messages: Messages) -> None:
    one = await messages.put()
    await Topic(http, messages.topic).drop()
    assert await messages.gone(one)
    two = await messages.put()
    assert two != one
    await messages.dequeue()
    for verb in ("ack", "nack", "extend"):
        refused(await messages.verb(one, verb), 404, "not_found")
    assert await messages.gone(one)
    await messages.ack(two)


async def test_a_pending_message_is_nobodys_to_settle(messages: Messages) -> None:
    one = await messages.put()
    for verb in ("ack", "nack", "extend"):
        refused(await messages.verb(one, verb), 404, "not_found")
    assert (await messages.get(one))["status"] == "pending"


async def test_a_lease_id_fences(messages: Messages) -> None:
    one = await messages.put()
    (first,) = await messages.dequeue(visibility_timeout_seconds=0.1)
    second = await messages.take()
    assert second["id"] == one
    stale = first["lease_id"]
    for verb in ("ack", "nack", "extend"):
        refused(await messages.verb(one, verb, lease_id=stale), 404, "not_found")
        refused(await messages.verb(one, verb, lease_id="lease"), 400, "invalid_request")
    until = await messages.extend(one, lease_id=second["lease_id"], visibility_timeout_seconds=3_600)
    assert until["id"] == one
    assert until["visibility_timeout"] > second["visibility_timeout"]
    await messages.ack(one, lease_id=second["lease_id"])


async def test_a_nack_with_a_delay_hides_it_so_long(messages: Messages) -> None:
    one = await messages.put()
    await messages.dequeue()
    await messages.nack(one, delay_seconds=3_600)
    assert await messages.dequeue() == []
    assert (await messages.get(one))["status"] == "pending"
    refused(await messages.verb(one, "nack", error="x" * 8_193), 400, "invalid_request")
    refused(await messages.verb(one, "nack", delay_seconds=-1), 400, "invalid_request")


async def test_a_list_of_messages_is_acknowledged_each_for_itself(http: httpx.AsyncClient, messages: Messages) -> None:
    other = messages.of(f"{messages.topic}.b")
    ids = [*await messages.batch({"payload": "1"}, {"payload": "2"}), await other.put()]
    taken = [*await messages.dequeue(2), *await other.dequeue()]
    leases = [one["lease_id"] for one in taken]
    leases[1] = leases[0]
    answer = done(await http.post("/api/messages/ack", json={"ids": [*ids, "x"], "lease_ids": [*leases, ""]}))
    assert answer == {"acked": 2, "skipped": [ids[1], "x"]}
    assert done(await http.post("/api/messages/ack", json={"ids": [ids[1]]})) == {"acked": 1, "skipped": []}
    assert done(await http.post("/api/messages/ack", json={"ids": []})) == {"acked": 0, "skipped": []}
    bad = {"ids": ids, "lease_ids": leases[:1]}
    refused(await http.post("/api/messages/ack", json=bad), 400, "invalid_request")
    refused(await http.post("/api/messages/ack", json={"ids": ["x"] * 1_001}), 400, "batch_too_large")


async def test_a_list_has_pages(messages: Messages) -> None:
    ids = (await messages.batch(*({"payload": str(n)} for n in range(7))))[::-1]
    first = await messages.page(limit=3)
    assert ([one["id"] for one in first["items"]], first["total"]) == (ids[:3], 7)
    assert (first["limit"], first["offset"]) == (3, 0)
    second = await messages.page(limit=3, offset=3)
    assert [one["id"] for one in second["items"]] == ids[3:6]
    by_cursor = await messages.page(limit=3, cursor=first["next_cursor"])
    assert by_cursor["items"] == second["items"]
    last = await messages.page(limit=3, cursor=by_cursor["next_cursor"])
    assert [one["id"] for one in last["items"]] == ids[6:]
    assert "next_cursor" not in last
    assert [(await messages.page(limit=limit))["limit"] for limit in (0, -3, 201, 10**30)] == [1, 1, 200, 200]
    assert (await messages.page())["limit"] == 50
    created = [one["created_at"] for one in (await messages.page())["items"]]
    assert created == sorted(created, reverse=True)


@pytest.mark.parametrize(
    "query",
    [
        *("offset=-1", "offset=10001", "offset=x", "limit=x", "status=done", "cursor=x", "encoding=x", "topic=a/b"),
        *("cursor=eyJiZWxvdyI6LTF9", "cursor=eyJiZWxvdyI6IngifQ=="),
    ],
)
async def test_what_is_no_page_is_a_400(http: httpx.AsyncClient, topic: str, query: str) -> None:
    whole = query if "topic" in query else f"topic={topic}&{query}"
    await Messages(http, topic).put()
    refused(await http.get(f"/api/messages?{whole}"), 400, "invalid_request")


async def test_the_list_of_all_topics_has_the_newest_first(http: httpx.AsyncClient, messages: Messages) -> None:
    other = messages.of(f"{messages.topic}.b")
    ids = [await one.put() for one in (messages, other, messages, other)][::-1]
    page = done(await http.get("/api/messages", params={"limit": 4}))
    assert [one["id"] for one in page["items"]] == ids
    assert page["total"] >= 4
    moved = done(await http.get("/api/messages", params={"limit": 2, "offset": 1}))
    assert [one["id"] for one in moved["items"]] == ids[1:3]
    for query in ("offset=801", "status=pending", f"cursor={(await messages.page(limit=1))['next_cursor']}"):
        refused(await http.get(f"/api/messages?{query}"), 400, "invalid_request")


async def one_of_each(messages: Messages) -> dict[str, list[str]]:
    """Messages of every status, by it; two that are pending, one of them since its lease has ended."""
    await Topic(messages.http, messages.topic).put(max_deliveries=2, on_exhausted="fail")
    failed, ended = await messages.batch({"payload": "f", "max_deliveries": 1}, {"payload": "e"})
    await messages.dequeue()
    await messages.nack(failed)
    await messages.dequeue(visibility_timeout_seconds=0.1)
    held = await messages.put("h", priority=9)
    await messages.dequeue()
    expired = await messages.put("x", ttl_seconds=0.1)
    delayed = await messages.put("d", delay_seconds=3_600)
    found = {"failed": [failed], "pending": [delayed, ended], "processing": [held], "expired": [expired]}

    async def fact() -> bool:
        return await messages.counts() == {status: len(ids) for status, ids in found.items()}

    await eventually(fact)
    return found


async def test_lists_and_counts_go_by_status(messages: Messages) -> None:
    found = await one_of_each(messages)
    assert (await messages.page())["total"] == 5
    for status, ids in found.items():
        page = await messages.page(status=status)
        assert ([one["id"] for one in page["items"]], page["total"]) == (ids, len(ids))
        assert {one["status"] for one in page["items"]} == {status}
    stats = done(await messages.http.get("/api/stats"))["topics"]
    assert [(one["topic"], one["status"]) for one in stats] == sorted((one["topic"], one["status"]) for one in stats)


@pytest.mark.parametrize(
    ("statuses", "left"),
    [
        ((), {"failed"}),
        (("failed",), {"pending", "processing", "expired"}),
        (("pending", "expired"), {"failed", "processing"}),
        (("processing",), {"failed", "pending", "expired"}),
    ],
)
async def test_a_purge_deletes_by_status(messages: Messages, statuses: tuple[str, ...], left: set[str]) -> None:
    found = await one_of_each(messages)
    gone = [one for status, ids in found.items() if status not in left for one in ids]
    assert await messages.purge(*statuses) == len(gone)
    assert set(await messages.counts()) == left
    assert all([await messages.gone(one) for one in gone])
    assert (await messages.page())["total"] == 5 - len(gone)
    if "processing" not in left:
        refused(await messages.verb(found["processing"][0], "ack"), 404, "not_found")


async def test_a_purge_refuses_what_is_no_status(http: httpx.AsyncClient, messages: Messages) -> None:
    await messages.put()
    for body in ({"statuses": ["deleted"]}, {"statuses": "pending"}):
        refused(await http.post(f"/api/topics/{messages.topic}/purge", json=body), 400, "invalid_request")
    assert await messages.counts() == {"pending": 1}


async def test_calls_are_counted_by_dialect(messages: Messages) -> None:
    calls = [("enqueue", "ok"), ("claim", "ok"), ("ack", "ok"), ("ack", "not_found"), ("extend", "not_found")]

    async def counted() -> list[float]:
        numbers = await scrape(messages.http)
        return [numbers.of("calls_total", dialect="messages", verb=verb, code=code) for verb, code in calls]

    before = await counted()
    one = await messages.put()
    await messages.dequeue()
    await messages.ack(one)
    await messages.verb(one, "ack")
    await messages.verb(one, "extend")
    assert await counted() == [number + 1 for number in before]
