"""The audit trail: who changed what, kept with the change itself."""

from __future__ import annotations

from collections.abc import AsyncIterator
from datetime import UTC, datetime
from hashlib import sha256
from typing import TYPE_CHECKING

import asyncpg
import httpx
import pytest

from app.kernel.audit import trail
from app.kernel.audit.trail import Action
from app.kernel.topics import store
from app.kernel.topics.settings import Config, TopicType
from tests.api.dialect import Body, Topic, accepted, eventually, every_page, refused
from tests.api.keyring import Services, bearer, client, make

if TYPE_CHECKING:
    from tests.conftest import Running

ROOT = f"environment key {sha256(b'root').hexdigest()[:6]}"


@pytest.fixture
async def http(guarded: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with client(guarded, "root") as http:
        yield http


async def entries(http: httpx.AsyncClient, **query: str) -> list[Body]:
    found: list[Body] = accepted(await http.get("/v0/admin/audit", params=query))["entries"]
    return found


async def test_a_topics_life_is_in_it(http: httpx.AsyncClient, topic: str) -> None:
    queue = Topic(http, topic)
    await queue.put(lease_ms=1_000)
    await queue.put(lease_ms=1_000)  # nothing changes
    await queue.put(lease_ms=2_000, durable=True)
    await queue.add(3)
    await queue.drop()
    await queue.drop()  # there is none
    deleted, changed, created = await entries(http, subject=topic)
    assert [e["action"] for e in (created, changed, deleted)] == ["topic.created", "topic.changed", "topic.deleted"]
    for entry in (created, changed, deleted):
        assert (entry["actor"], entry["actor_name"], entry["address"]) == (ROOT, None, "127.0.0.1")
        assert entry["subject"] == topic
    assert created["detail"]["config"]["lease_ms"] == 1_000
    assert changed["detail"] == {
        "lease_ms": {"from": 1_000, "to": 2_000},
        "durability": {"from": "disk", "to": "fsync"},
    }
    assert deleted["detail"]["config"]["lease_ms"] == 2_000
    assert deleted["detail"]["jobs"] == 3
    assert created["id"] < changed["id"] < deleted["id"]
    assert created["at"] <= changed["at"] <= deleted["at"]


async def test_a_topic_made_by_a_write_is_its_writers(http: httpx.AsyncClient, topic: str) -> None:
    made = await make(http, "producers")
    body = {"records": [{"data": 1}], "config": {"type": "queue"}}
    accepted(await http.post(f"/v0/topics/{topic}", json=body, headers=bearer(made["secret"])))
    (entry,) = await entries(http, subject=topic)
    assert (entry["action"], entry["actor"], entry["actor_name"]) == ("topic.created", made["id"], "producers")


async def test_purges_replays_cancellations_and_deletions_are_in_it(http: httpx.AsyncClient, topic: str) -> None:
    assert (await http.put(f"/api/topic-configs/{topic}", json={"replayable": True})).is_success
    message = {"topic": topic, "payload": "x"}
    assert (await http.post("/api/messages", json=message)).is_success
    (claimed,) = (await http.post("/api/messages/dequeue", json={"topic": topic})).json()["messages"]
    assert (await http.post(f"/api/messages/{claimed['id']}/ack")).is_success
    assert (await http.post(f"/api/topics/{topic}/replay", json={})).json()["enqueued"] == 1
    assert (await http.post(f"/api/topics/{topic}/purge", json={"statuses": ["pending"]})).json() == {"deleted": 1}
    before = "2026-01-01T00:00:00Z"
    assert (await http.delete(f"/api/topics/{topic}/message-log", params={"before": before})).is_success
    assert (await http.post(f"/v0/topics/{topic}/cancel", json={"filter": {"older_than_ms": 0}})).is_success
    accepted(await http.post(f"/v0/topics/{topic}/delete", json={"match": "order-*"}))
    refused(await http.post("/v0/topics/nowhere/delete", json={"match": "order-*"}), 404, "topic_not_found")
    deletion, cancel, log, purge, replay = (await entries(http, subject=topic))[:5]
    assert (deletion["action"], deletion["detail"]) == ("records.deleted", {"before_seq": None, "match": "order-*"})
    assert await entries(http, subject="nowhere") == []
    assert (cancel["action"], cancel["detail"]) == ("jobs.cancelled", {"filter": {"older_than_ms": 0}})
    assert (log["action"], log["detail"]) == ("log.purged", {"before": "2026-01-01T00:00:00+00:00"})
    assert (purge["action"], purge["detail"]) == ("topic.purged", {"statuses": ["pending"]})
    assert (replay["action"], sorted(replay["detail"])) == ("replay.started", ["from_time", "until_time"])
    assert {entry["actor"] for entry in (deletion, cancel, log, purge, replay)} == {ROOT}


async def test_a_dead_letter_topic_is_made_by_the_service(http: httpx.AsyncClient, topic: str) -> None:
    queue = Topic(http, topic)
    await queue.put(max_deliveries=1, dead_letter=f"{topic}.dead")
    await queue.add(1)
    await queue.nack("n", [(await queue.take("n"))["$seq"]])

    async def made() -> list[Body]:
        return await entries(http, subject=f"{topic}.dead")

    (entry,) = await eventually(made)
    assert (entry["action"], entry["actor"], entry["address"]) == ("topic.created", "holdfast", None)


async def test_a_keys_life_is_in_it_and_its_secrets_are_not(http: httpx.AsyncClient) -> None:
    made = await make(http, "worker", ["read"], prefixes=["mail."], expires_in_ms=60_000)
    path = f"/v0/keys/{made['id']}"
    rotated = accepted(await http.post(f"{path}/rotate", json={"grace_ms": 5}))
    accepted(await http.delete(path))
    accepted(await http.delete(path))  # it was revoked before
    answer = await http.get("/v0/admin/audit", params={"subject": made["id"]})
    assert [e["action"] for e in answer.json()["entries"]] == ["key.revoked", "key.rotated", "key.made"]
    assert [e["detail"] for e in answer.json()["entries"]] == [
        {"name": "worker"},
        {"name": "worker", "grace_ms": 5},
        {"name": "worker", "scopes": ["read"], "prefixes": ["mail."], "expires_in_ms": 60_000},
    ]
    assert made["secret"] not in answer.text
    assert rotated["secret"] not in answer.text


async def test_what_is_refused_leaves_no_entry(http: httpx.AsyncClient, topic: str) -> None:
    queue = Topic(http, topic)
    await queue.put()
    refused(await http.put(queue.path, json={"type": "log"}), 409, "topic_exists_incompatible")
    await queue.add(1)
    refused(await http.delete(f"{queue.path}?if_empty=true"), 409, "topic_not_empty")
    assert [e["action"] for e in await entries(http, subject=topic)] == ["topic.created"]


async def test_a_change_that_can_not_be_recorded_is_not_made(
    guarded: Running, services: Services, http: httpx.AsyncClient, topic: str
) -> None:
    """Both are one transaction: here the trail refuses, as it does when its disk is full."""
    await services.sql("ALTER TABLE holdfast.audit ADD CONSTRAINT refuse CHECK (id < 0) NOT VALID")
    try:
        with pytest.raises(asyncpg.CheckViolationError):
            await store.put(guarded.context.pools.rest, topic, Config(type=TopicType.QUEUE))
        before = await services.sql("SELECT count(*) FROM holdfast.api_keys")
        assert (await http.post("/v0/keys", json={"name": "k", "scopes": ["read"]})).status_code == 500
        assert await services.sql("SELECT count(*) FROM holdfast.api_keys") == before
    finally:
        await services.sql("ALTER TABLE holdfast.audit DROP CONSTRAINT refuse")
    refused(await http.get(f"/v0/topics/{topic}"), 404, "topic_not_found")


async def test_it_is_only_ever_added_to(services: Services) -> None:
    for statement in ("UPDATE holdfast.audit SET actor = 'x'", "DELETE FROM holdfast.audit", "TRUNCATE holdfast.audit"):
        with pytest.raises(asyncpg.InsufficientPrivilegeError, match="append-only"):
            await services.sql(statement)


async def test_it_is_paged_from_the_newest_and_filtered(http: httpx.AsyncClient, topic: str) -> None:
    made = await make(http, "filters")
    for lease_ms in range(1_000, 1_005):
        body = {"type": "queue", "lease_ms": lease_ms}
        accepted(await http.put(f"/v0/topics/{topic}", json=body, headers=bearer(made["secret"])))
    await Topic(http, topic).put(lease_ms=5_000)
    seen = await every_page(http, "/v0/admin/audit", "entries", actor=made["id"])
    assert [e["action"] for e in seen] == ["topic.changed"] * 4 + ["topic.created"]
    assert [e["id"] for e in seen] == sorted((e["id"] for e in seen), reverse=True)
    both = await entries(http, subject=topic, actor=ROOT)
    assert [e["detail"]["lease_ms"]["to"] for e in both] == [5_000]
    assert [e["subject"] for e in await entries(http, action="key.made", subject=made["id"])] == [made["id"]]
    third = datetime.fromtimestamp(seen[2]["at"] / 1000, UTC).isoformat()
    since = await entries(http, actor=made["id"], since=third)
    assert {e["id"] for e in since} >= {e["id"] for e in seen[:2]}
    assert all(e["at"] >= seen[2]["at"] for e in since)
    assert await entries(http, since="2999-01-01T00:00:00Z") == await entries(http, actor="nobody") == []
    for query in ("actr=x", "action=fly", "subject=%00", "since=now"):
        refused(await http.get(f"/v0/admin/audit?{query}"), 400, "invalid_request")


async def test_a_key_with_prefixes_sees_the_entries_of_its_topics(http: httpx.AsyncClient, topic: str) -> None:
    for name in (f"mail.{topic}", f"email.{topic}"):
        await Topic(http, name).put()
    made = await make(http, "admin of mail", ["admin"], prefixes=["mail."])
    seen = accepted(await http.get("/v0/admin/audit?page_size=1000", headers=bearer(made["secret"])))["entries"]
    assert f"mail.{topic}" in {e["subject"] for e in seen}
    assert all(e["subject"].startswith("mail.") for e in seen)


async def test_a_page_at_the_end_of_the_trail(guarded: Running, http: httpx.AsyncClient, topic: str) -> None:
    await Topic(http, topic).put()
    found = await trail.page(guarded.context.pools.rest, 2**63 - 1, 1, subject=topic, action=Action.TOPIC_CREATED.value)
    assert await trail.page(guarded.context.pools.rest, found[0].id, 1, subject=topic) == []
