"""/api/topic-configs: one configuration for both dialects, by this one's names, and what it does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.api.configs import OPEN, V0_ALONE, Configs
from tests.api.dialect import Body, Topic, accepted, refused
from tests.api.keyring import bearer, client, make

if TYPE_CHECKING:
    from tests.conftest import Running


@pytest.fixture
def configs(http: httpx.AsyncClient, topic: str) -> Configs:
    return Configs(http, topic)


@pytest.fixture
def queue(http: httpx.AsyncClient, topic: str) -> Topic:
    """The same topic in v0's words; not made."""
    return Topic(http, topic)


async def test_the_seeds_line_makes_a_topic(configs: Configs, queue: Topic) -> None:
    asked = {"max_retries": 5, "message_ttl_seconds": 3600, "max_depth": 1000, "throughput_limit": 100}
    assert await configs.put(**asked) == OPEN | asked
    assert await configs.get() == OPEN | asked
    shown = (await queue.state())["config"]
    assert (shown["type"], shown["durable"], shown["lease_ms"]) == ("queue", True, 30_000)
    assert (shown["max_deliveries"], shown["on_exhausted"]) == (5, "dead_letter")
    assert (shown["dead_letter"], shown["ttl_ms"]) == (f"{queue.name}.dlq", 3_600_000)
    assert (shown["max_depth"], shown["throughput_limit"], shown["replayable"]) == (1000, 100, False)


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        ({}, {}),
        ({"max_retries": None, "dlq_threshold": None, "message_ttl_seconds": None, "max_depth": None}, {}),
        ({"throughput_limit": None, "replayable": None, "durable": None, "visibility_timeout_seconds": None}, {}),
        ({"max_retries": 0, "dlq_threshold": 0, "message_ttl_seconds": 0}, ...),
        ({"max_depth": 0, "throughput_limit": 0}, {}),
        ({"max_retries": 10_000, "dlq_threshold": 10_000}, ...),
        ({"message_ttl_seconds": 315_360_000}, ...),
        ({"visibility_timeout_seconds": 60}, ...),
        ({"visibility_timeout_seconds": 0}, {"lease_ms": 100}),
        ({"visibility_timeout_seconds": 2**63 - 1}, {"visibility_timeout_seconds": 86_400}),
        ({"replayable": True}, {"replayable": True, "replay_window_seconds": 604_800}),
        ({"replayable": True, "replay_window_seconds": 60}, ...),
        ({"replayable": True, "replay_window_seconds": 0}, ...),
        (
            {"replayable": True, "replay_window_seconds": 2**63 - 1},
            {"replayable": True, "replay_window_seconds": 315_360_000},
        ),
        ({"replayable": False, "replay_window_seconds": 60}, {}),
        ({"replay_window_seconds": 60}, {}),
        ({"durable": False}, ...),
        ({"durability": "memory"}, {"durable": False, "durability": "memory"}),
        ({"durability": "disk"}, {"durable": False}),
        ({"type": "queue"}, {}),
        ({"ttl_ms": 1500, "lease_ms": 150, "replayable": True, "replay_window_ms": 1}, ...),
        ({"ttl_ms": 2000, "lease_ms": 3000}, {"message_ttl_seconds": 2, "visibility_timeout_seconds": 3}),
        ({"claim_jitter_ms": 9_000, "cap_records": 7}, {"claim_jitter_ms": 5_000, "cap_records": 7}),
        ({"priority": -3, "discard": "reject", "idempotency_window_ms": 0, "dedupe_node": False}, ...),
        ({"priority_order": "lowest_first", "retry_order": "back", "aging_ms": 315_360_000_000}, ...),
        ({"priority_order": None, "retry_order": None, "aging_ms": None}, {}),
        ({"wait_goal_ms": 0}, ...),
        ({"wait_goal_ms": 315_360_000_000}, ...),
        ({"wait_goal_ms": None}, {}),
        ({"auto_priority": False, "auto_create": False, "leases_durable": True, "cap_bytes": 2**63 - 1}, ...),
        ({"dead_ttl_ms": 0}, ...),
        ({"dead_ttl_ms": None}, {}),
        ({"result_ttl_ms": 0}, ...),
        ({"event_ttl_ms": 0}, ...),
        ({"accepts": ["Image/PNG"], "ingest": "public"}, {"accepts": ["image/png"], "ingest": "public"}),
        ({"user_events": True}, ...),
        ({"accepts": None, "ingest": None}, {}),
        ({"max_deliveries": 7, "on_exhausted": "fail"}, ...),
        ({"max_deliveries": 0, "on_exhausted": "redeliver"}, ...),
        (
            {"max_deliveries": 7, "dead_letter": "grave"},
            {"max_deliveries": 7, "on_exhausted": "dead_letter", "dead_letter": "grave"},
        ),
        ({"dead_letter": "grave"}, ...),
    ],
)
async def test_a_setting_is_kept_and_shown_and_can_be_put_again(configs: Configs, asked: Body, kept: object) -> None:
    expected = OPEN | (asked if kept is ... else kept)  # type: ignore[operator]
    assert await configs.put(**asked) == expected
    assert await configs.get() == expected
    assert {"topic": configs.topic, **expected} in await configs.listed()
    before = (await Topic(configs.http, configs.topic).state())["config"]
    assert await configs.put(**expected) == expected
    assert (await Topic(configs.http, configs.topic).state())["config"] == before


async def test_jobs_that_are_spent_go_to_the_topic_that_is_usual_here(configs: Configs) -> None:
    shown = await configs.put(max_deliveries=7)
    usual = {"max_deliveries": 7, "on_exhausted": "dead_letter", "dead_letter": f"{configs.topic}.dlq"}
    assert shown == OPEN | usual


@pytest.mark.parametrize(
    "asked",
    [
        {"max_retries": -1},
        {"dlq_threshold": -1},
        {"message_ttl_seconds": -1},
        {"max_depth": -1},
        {"dead_ttl_ms": -1},
        {"dead_ttl_ms": 315_360_000_001},
        {"result_ttl_ms": -1},
        {"result_ttl_ms": 315_360_000_001},
        {"event_ttl_ms": -1},
        {"event_ttl_ms": 315_360_000_001},
        {"throughput_limit": -1},
        {"replay_window_seconds": -1},
        {"visibility_timeout_seconds": -1},
        {"max_retries": 10_001},
        {"max_retries": 1.5},
        {"max_retries": "3"},
        {"throughput_limit": 2**31},
        {"message_ttl_seconds": 315_360_001},
        {"replayable": 1},
        {"durable": "yes"},
        {"claim_jitter_ms": -1},
        {"discard": "some"},
        {"ingest": "everybody"},
        {"accepts": []},
        {"accepts": ["text/*"]},
        {"priority_order": "some"},
        {"retry_order": "middle"},
        {"aging_ms": -1},
        {"aging_ms": 315_360_000_001},
        {"wait_goal_ms": -1},
        {"wait_goal_ms": 315_360_000_001},
        {"wait_goal_ms": "1 min"},
        {"type": "stack"},
        {"dead_letter": "a b"},
        {"dead_letter": ""},
        {"on_exhausted": "fail"},
        {"max_deliveries": 1, "max_retries": 1},
        {"max_deliveries": 1, "dlq_threshold": 0},
        {"ttl_ms": 1, "message_ttl_seconds": 1},
        {"lease_ms": 1, "visibility_timeout_seconds": 1},
        {"replay_window_ms": 1, "replay_window_seconds": 1},
    ],
)
async def test_nonsense_is_refused_and_leaves_nothing(configs: Configs, asked: Body) -> None:
    refused(await configs.http.put(configs.path, json=asked), 400, "invalid_request")
    refused(await configs.http.get(configs.path), 404, "topic_not_found")
    await configs.put(max_retries=9)
    refused(await configs.http.put(configs.path, json=asked), 400, "invalid_request")
    assert await configs.get() == OPEN | {"max_retries": 9}


@pytest.mark.parametrize("body", [b"", b"[]", b"null", b"{", b'{"max_retries": 1', b"[" * 5_000])
async def test_a_body_must_be_an_object(configs: Configs, body: bytes) -> None:
    answer = await configs.http.put(configs.path, content=body, headers={"content-type": "application/json"})
    refused(answer, 400, "invalid_request")


@pytest.mark.parametrize("name", ["orders.dlq", "-a", "a b", "x" * 252, "x" * 256])
async def test_a_name_that_it_can_not_have_is_refused(http: httpx.AsyncClient, name: str) -> None:
    for method in ("PUT", "DELETE"):
        answer = await http.request(method, f"/api/topic-configs/{name}", json={} if method == "PUT" else None)
        refused(answer, 400, "invalid_request")


async def test_its_own_dead_letter_topic_it_is_not(configs: Configs) -> None:
    answer = await configs.http.put(configs.path, json={"dead_letter": configs.topic})
    refused(answer, 400, "invalid_request")


async def test_a_log_is_none_of_this_dialect(configs: Configs, queue: Topic) -> None:
    refused(await configs.http.put(configs.path, json={"type": "log"}), 409, "not_a_queue")
    refused(await configs.http.get(configs.path), 404, "topic_not_found")
    await queue.put(type="log", ttl_ms=5)
    before = (await queue.state())["config"]
    refused(await configs.http.put(configs.path, json={}), 409, "not_a_queue")
    refused(await configs.http.get(configs.path), 409, "not_a_queue")
    refused(await configs.http.delete(configs.path), 409, "not_a_queue")
    assert (await queue.state())["config"] == before
    assert configs.topic not in [item["topic"] for item in await configs.listed()]


async def test_this_dialects_put_leaves_v0s_own_settings(configs: Configs, queue: Topic) -> None:
    of_v0 = {
        "claim_jitter_ms": 4,
        "cap_records": 1_000_000,
        "cap_bytes": 2_000_000,
        "discard": "reject",
        "idempotency_window_ms": 7,
        "dead_ttl_ms": 8,
        "result_ttl_ms": 9,
        "event_ttl_ms": 10,
        "accepts": ["image/png"],
        "ingest": "public",
        "user_events": True,
        "dedupe_window_ms": 8,
        "priority": 9,
        "auto_priority": False,
        "priority_order": "lowest_first",
        "retry_order": "back",
        "aging_ms": 5,
        "wait_goal_ms": 6,
        "auto_create": False,
        "dedupe_node": False,
        "leases_durable": True,
        "dead_letter": "grave",
    }
    await queue.put(**of_v0, lease_ms=1_234, ttl_ms=99, max_deliveries=8, max_depth=5, throughput_limit=6)
    before = (await queue.state())["config"]
    assert await configs.get() == V0_ALONE | of_v0 | {
        "durable": False,
        "replayable": False,
        "max_deliveries": 8,
        "on_exhausted": "dead_letter",
        "lease_ms": 1_234,
        "ttl_ms": 99,
        "max_depth": 5,
        "throughput_limit": 6,
    }
    await configs.put(max_retries=2)
    config = (await queue.state())["config"]
    assert config == before | {
        "durable": True,
        "durability": "fsync",
        "lease_ms": 30_000,
        "ttl_ms": 86_400_000,
        "max_deliveries": 2,
        "on_exhausted": "dead_letter",
        "max_depth": 0,
        "throughput_limit": 0,
    }
    # A v0 setting that is given is set, and null is its default.
    await configs.put(claim_jitter_ms=5, cap_records=None, priority=None, dead_letter=None)
    changed = {"claim_jitter_ms": 5, "cap_records": 0, "priority": None, "dead_letter": f"{queue.name}.dlq"}
    assert (await queue.state())["config"] == config | changed | {"max_deliveries": 3, "on_exhausted": "dead_letter"}


async def test_v0s_put_replaces_what_both_have(configs: Configs, queue: Topic) -> None:
    await configs.put(max_retries=9, dlq_threshold=4, message_ttl_seconds=5, max_depth=6, replayable=True)
    await queue.put(max_deliveries=5, on_exhausted="fail")
    assert await configs.get() == OPEN | {
        "durable": False,
        "message_ttl_seconds": 0,
        "visibility_timeout_seconds": 30,
        "max_deliveries": 5,
        "on_exhausted": "fail",
    }
    await configs.put()
    assert await configs.get() == OPEN, "a setting of before v0's PUT came back"


async def test_what_goes_on_with_spent_jobs_stays_as_it_was_until_it_is_given(configs: Configs, queue: Topic) -> None:
    await queue.put(max_deliveries=5, on_exhausted="fail")
    assert (await configs.put(max_deliveries=6))["on_exhausted"] == "fail"
    assert (await configs.put(max_deliveries=6, dead_letter="grave"))["on_exhausted"] == "dead_letter"
    assert (await configs.put(max_deliveries=6, on_exhausted="redeliver"))["dead_letter"] == "grave"
    assert (await configs.put(max_deliveries=6, on_exhausted=None))["on_exhausted"] == "dead_letter"


async def test_without_a_configuration_the_services_defaults_hold(configs: Configs, queue: Topic) -> None:
    refused(await configs.http.delete(configs.path), 404, "not_found")
    refused(await configs.http.get(configs.path), 404, "topic_not_found")
    await configs.put(max_retries=1, dlq_threshold=1, visibility_timeout_seconds=5, claim_jitter_ms=4, durable=False)
    await queue.add(3)
    held = await queue.take()
    await configs.drop()
    config = (await queue.state())["config"]
    assert (config["max_deliveries"], config["lease_ms"], config["durable"]) == (3, 30_000, True)
    assert (config["claim_jitter_ms"], config["dead_letter"]) == (0, f"{queue.name}.dlq")
    assert (await queue.ack("n", [held["$seq"]]))["acked"] == 1
    await queue.until_counts(2, 0)
    # It is there, and nobody has configured it.
    refused(await configs.http.get(configs.path), 404, "not_found")
    refused(await configs.http.delete(configs.path), 404, "not_found")
    assert configs.topic not in [item["topic"] for item in await configs.listed()]


async def test_a_queue_of_v0_can_be_left_to_the_defaults(configs: Configs, queue: Topic) -> None:
    await queue.put(cap_records=7)
    assert (await configs.get())["cap_records"] == 7
    await configs.drop()
    refused(await configs.http.get(configs.path), 404, "not_found")
    assert (await queue.state())["config"]["cap_records"] == 0


async def test_they_are_listed_by_topic_a_page_at_a_time(http: httpx.AsyncClient, topic: str) -> None:
    names = [f"{topic}.{end}" for end in ("b", "B", "a", "_", "c")]
    for name in names:
        await Configs(http, name).put()
    seen: list[str] = []
    query: Body = {"page_size": 2}
    while True:
        page = (await http.get("/api/topic-configs", params=query)).json()
        assert len(page["items"]) <= 2
        seen += [item["topic"] for item in page["items"]]
        if "next_cursor" not in page:
            break
        query["cursor"] = page["next_cursor"]
    assert [name for name in seen if name.startswith(f"{topic}.")] == sorted(names)
    assert seen == sorted(seen)
    for bad in ("page_size=x", "cursor=!", "cursor=e30="):
        refused(await http.get(f"/api/topic-configs?{bad}"), 400, "invalid_request")


async def test_changes_at_once_are_each_whole(configs: Configs, queue: Topic) -> None:
    """One of this dialect never undoes what one of v0's names was set to meanwhile."""
    settings: list[Body] = [{"cap_records": 7}, {"idempotency_window_ms": 8}, {"priority": 9}, {"claim_jitter_ms": 6}]
    for _ in range(10):
        await configs.put()
        await asyncio.gather(*(configs.put(max_retries=4, **one) for one in settings))
        assert await configs.get() == OPEN | {"max_retries": 4} | settings[0] | settings[1] | settings[2] | settings[3]
        await configs.drop()


@pytest.fixture
async def root(guarded: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with client(guarded, "root") as http:
        yield http


async def test_changes_are_in_the_audit_trail(root: httpx.AsyncClient, topic: str) -> None:
    configs = Configs(root, topic)
    await configs.put(max_retries=5)
    await configs.put(max_retries=5)  # nothing changes
    await configs.put(max_retries=6)
    await configs.drop()
    entries = accepted(await root.get("/v0/admin/audit", params={"subject": topic}))["entries"]
    assert [entry["action"] for entry in entries] == ["topic.changed", "topic.changed", "topic.created"]
    assert entries[0]["detail"] == {
        "max_retries": {"from": 6, "to": None},
        "configured": {"from": True, "to": False},
    }
    assert entries[1]["detail"] == {"max_retries": {"from": 5, "to": 6}}
    assert entries[2]["detail"]["config"]["max_retries"] == 5
    assert {entry["address"] for entry in entries} == {"127.0.0.1"}


async def test_a_key_sees_and_changes_its_own_topics(root: httpx.AsyncClient, topic: str) -> None:
    for name in (f"mail.{topic}", f"email.{topic}"):
        await Configs(root, name).put()
    key = bearer((await make(root, "admin of mail", ["admin"], prefixes=["mail."]))["secret"])
    listed = (await root.get("/api/topic-configs", headers=key)).json()["items"]
    assert [item["topic"] for item in listed] == [f"mail.{topic}"]
    for method in ("GET", "PUT", "DELETE"):
        answer = await root.request(method, f"/api/topic-configs/email.{topic}", headers=key, json={})
        refused(answer, 403, "forbidden")
    # Nor may it name a dead-letter topic that it may not write to.
    both = bearer((await make(root, "and writes", ["admin", "write"], prefixes=["mail."]))["secret"])
    mine = f"/api/topic-configs/mail.{topic}"
    refused(await root.put(mine, headers=key, json={"dead_letter": "mail.dead"}), 403, "forbidden")
    refused(await root.put(mine, headers=both, json={"dead_letter": "grave"}), 403, "forbidden")
    assert (await root.put(mine, headers=both, json={"dead_letter": "mail.dead"})).status_code == 200
