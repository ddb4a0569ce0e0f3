"""Each row of the contract: what the routes take, answer and refuse."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta, timezone

import httpx
import pytest

from app.kernel.model import id_of
from tests.api.conftest import Serve
from tests.api.dialect import Body, Topic, eventually, until_waiting
from tests.api.messages.client import Messages, done, refused
from tests.api.test_metrics import scrape
from tests.conftest import Running


async def test_version_and_whether_a_key_is_needed(http: httpx.AsyncClient) -> None:
    assert set(done(await http.get("/api/version"))) == {"version"}
    assert done(await http.get("/api/auth/status")) == {"auth_required": False}


BAD: list[Body] = [
    *({"payload": text} for text in ("", None, 1)),
    *({"topic": name} for name in ("", "a/b", "t.dlq", "t" * 252, "t.fifo")),
    {"metadata": {str(n): "" for n in range(65)}},
    {"metadata": {"a": "b" * 16_384}},
    *({"run_at": at} for at in ("tomorrow", "2030-01-01T00:00:00", "", "2026-02-30T09:00:00Z")),
    {"run_at": "9999-12-31T23:59:59-23:00"},
    *({"delay_seconds": seconds} for seconds in (-0.001, 315_360_001, "5")),
    *({"priority": 10}, {"ttl_seconds": -1}, {"max_deliveries": 10_001}, {"tenant": "a" * 129}, {"group": ""}),
    *({"dedupe_id": one} for one in ("", "a" * 257, "\0")),
    *({"key": key} for key in ("", "x" * 257, "a\0", 5)),
]


async def test_what_is_no_message_is_a_400_and_makes_nothing(http: httpx.AsyncClient, messages: Messages) -> None:
    """A refused enqueue makes no topic, and neither does anything but an enqueue."""
    for body in BAD:
        answer = await http.post("/api/messages", json={"topic": messages.topic, "payload": "x", **body})
        refused(answer, 400, "invalid_request")
    for path in ("/api/messages", "/api/messages/batch", "/api/messages/dequeue", "/api/messages/ack"):
        refused(await http.post(path), 415, "unsupported_media_type")
        for content in ("{", "[]"):
            answer = await http.post(path, content=content, headers={"content-type": "application/json"})
            refused(answer, 400, "invalid_request")
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
    assert [(await messages.get(one.upper()))["payload"] for one in ids] == ["0", "1", "2", "3"]
    assert [one["payload"] for one in await messages.dequeue(3)] == ["1", "3", "0"]
    assert [one["payload"] for one in await messages.dequeue(1_000, consumer_group="")] == ["2"]
    bad = {"topic": messages.topic, "messages": [{"payload": "x"}, {"payload": "y", "encoding": "base64"}]}
    assert refused(await http.post("/api/messages/batch", json=bad), 400, "invalid_request").startswith("Message 1: ")
    bad["messages"] = []
    refused(await http.post("/api/messages/batch", json=bad), 400, "invalid_request")
    assert await messages.counts() == {"processing": 4}


async def test_a_message_comes_when_its_time_has_come(messages: Messages) -> None:
    """A time that is past is now, and of two the later counts."""

    def stamp(seconds: float) -> str:
        zone = timezone(timedelta(hours=-11))
        return (datetime.now(UTC) + timedelta(seconds=seconds)).astimezone(zone).isoformat()

    soon = await messages.batch(
        {"payload": "delayed", "delay_seconds": 3}, {"payload": "at a time", "run_at": stamp(3.5)}
    )
    ids = await messages.batch(
        {"payload": "past", "run_at": stamp(-3600)},
        {"payload": "none", "delay_seconds": 0},
        {"payload": "late", "run_at": stamp(-5), "delay_seconds": 3600},
        {"payload": "later", "run_at": stamp(3600), "delay_seconds": 0.001},
        {"payload": "far", "delay_seconds": 315_360_000},
    )
    assert [one["payload"] for one in await messages.dequeue(9)] == ["past", "none"]
    assert [(await messages.take())["id"] for _ in soon] == soon
    assert [(await messages.get(one))["status"] for one in ids[2:]] == ["pending"] * 3


async def test_a_message_has_its_own_time_to_live_and_deliveries(messages: Messages) -> None:
    for_ever, once = await messages.batch({"payload": "x", "ttl_seconds": 0}, {"payload": "y", "max_deliveries": 1})
    assert "expires_at" not in await messages.get(for_ever)
    assert [one["max_retries"] for one in await messages.dequeue(2)] == [3, 1]
    await messages.nack(once)
    assert (await messages.get(once))["original_topic"] == messages.topic


async def test_the_visibility_timeout_is_what_was_asked_for(messages: Messages) -> None:
    for asked, seconds in ((None, 30), (0, 30), (-5, 30), (60, 60), (0.001, 0.1), (1e300, 86_400), (1.5, 1.5)):
        await messages.put()
        (one,) = await messages.dequeue(visibility_timeout_seconds=asked)
        created, until = (datetime.fromisoformat(one[name]) for name in ("created_at", "visibility_timeout"))
        assert timedelta(seconds=seconds) <= until - created < timedelta(seconds=seconds + 15)
        await messages.verb(one["id"], "ack")


async def test_what_is_no_dequeue_is_a_400(http: httpx.AsyncClient) -> None:
    for body in (
        *({"topic": "a b"}, {"count": 0}, {"count": 1_001}, {"wait_seconds": -1}, {"wait_seconds": 30.1}),
        *({"encoding": "x"}, {"consumer_group": "g"}, {"count": "1"}),
    ):
        refused(await http.post("/api/messages/dequeue", json={"topic": "t", **body}), 400, "invalid_request")


async def test_a_dequeue_waits_for_the_first_message(service: Running, messages: Messages) -> None:
    """Who leaves meanwhile takes none along."""
    await messages.put("first")
    await messages.dequeue()
    async with httpx.AsyncClient(base_url=service.url) as other:
        leaving = asyncio.create_task(Messages(other, messages.topic).take())
        await until_waiting(service, messages.topic, 1)
        leaving.cancel()
    await until_waiting(service, messages.topic, 0)
    waiting = asyncio.create_task(messages.take())
    await until_waiting(service, messages.topic, 1)
    two = await messages.put("second")
    assert ((await waiting)["id"], (await messages.get(two))["retry_count"]) == (two, 0)


@pytest.mark.parametrize("looks_every", [0.01, 3_600])
async def test_a_dequeue_waits_for_a_topic_that_is_yet_to_be_made(
    monkeypatch: pytest.MonkeyPatch, messages: Messages, looks_every: float
) -> None:
    """And hears of it, or finds it."""
    monkeypatch.setattr("app.features.queue.messages_leases.ABSENT_SECONDS", looks_every)
    assert await messages.dequeue(wait_seconds=0.05) == []
    waiting = [asyncio.create_task(messages.take()) for _ in range(3)]
    await asyncio.sleep(0.3)
    ids = await messages.batch(*[{"payload": "x"}] * 3)
    assert sorted([(await one)["id"] for one in waiting]) == sorted(ids)


async def test_an_id_that_no_message_has_is_a_404(http: httpx.AsyncClient, messages: Messages) -> None:
    pending = await messages.put()  # which is nobody's to settle
    other = messages.of(f"{messages.topic}.b")
    gone = await other.put()
    await Topic(http, other.topic).drop()
    anew = await other.put()
    await other.dequeue()
    foreign = ("6c4836cc-0f55-4b9e-b9db-f721bc642d01", id_of(2**31 - 1, 1), "x", "%20", "a" * 300, gone)
    for one in (*foreign, pending):
        if one != pending:
            refused(await http.get(f"/api/messages/{one}"), 404, "not_found")
        for verb in ("ack", "nack", "extend"):
            refused(await http.post(f"/api/messages/{one}/{verb}"), 404, "not_found")
    assert (await messages.get(pending))["status"] == "pending"
    await other.ack(anew)


async def test_a_lease_id_fences(messages: Messages) -> None:
    one = await messages.put()
    (first,) = await messages.dequeue(visibility_timeout_seconds=0.1)
    second = await messages.take()
    assert second["id"] == one
    for verb in ("ack", "nack", "extend"):
        refused(await messages.verb(one, verb, lease_id=first["lease_id"]), 404, "not_found")
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


async def test_a_list_has_pages(http: httpx.AsyncClient, messages: Messages) -> None:
    ids = (await messages.batch(*({"payload": str(n)} for n in range(7))))[::-1]
    first = await messages.page(limit=3)
    assert ([one["id"] for one in first["items"]], first["total"]) == (ids[:3], 7)
    assert (first["limit"], first["offset"]) == (3, 0)
    second = await messages.page(limit=3, offset=3)
    assert [one["id"] for one in second["items"]] == ids[3:6]
    by_cursor = await messages.page(limit=3, cursor=first["next_cursor"])
    assert by_cursor["items"] == second["items"]
    last = await messages.page(limit=3, cursor=by_cursor["next_cursor"])
    assert ([one["id"] for one in last["items"]], "next_cursor" in last) == (ids[6:], False)
    assert [(await messages.page(limit=limit))["limit"] for limit in (0, -3, 201, 10**30)] == [1, 1, 200, 200]
    assert (await messages.page())["limit"] == 50
    for query in ("offset=-1", "offset=10001", "limit=x", "status=done", "cursor=x", "encoding=x", "topic=a/b"):
        answer = await http.get(f"/api/messages?{'' if 'topic' in query else f'topic={messages.topic}&'}{query}")
        refused(answer, 400, "invalid_request")


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


@pytest.mark.parametrize(
    ("statuses", "left"),
    [
        ((), {"failed"}),
        (("failed",), {"pending", "processing", "expired"}),
        (("pending", "expired"), {"failed", "processing"}),
        (("processing",), {"failed", "pending", "expired"}),
    ],
)
async def test_lists_counts_and_purges_go_by_status(
    messages: Messages, statuses: tuple[str, ...], left: set[str]
) -> None:
    found = await one_of_each(messages)
    assert (await messages.page())["total"] == 5
    for status, ids in found.items():
        page = await messages.page(status=status)
        assert ([one["id"] for one in page["items"]], page["total"]) == (ids, len(ids))
        assert {one["status"] for one in page["items"]} == {status}
    stats = [(one["topic"], one["status"]) for one in done(await messages.http.get("/api/stats"))["topics"]]
    assert stats == sorted(stats)
    answer = await messages.http.post(f"/api/topics/{messages.topic}/purge", json={"statuses": ["deleted"]})
    refused(answer, 400, "invalid_request")
    gone = [one for status, ids in found.items() if status not in left for one in ids]
    assert await messages.purge(*statuses) == len(gone)
    assert set(await messages.counts()) == left
    assert all([await messages.gone(one) for one in gone])
    assert (await messages.page())["total"] == 5 - len(gone)
    if "processing" not in left:
        refused(await messages.verb(found["processing"][0], "ack"), 404, "not_found")


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
