"""/api/topic-configs: one configuration for both dialects, by this one's names, and what it does."""

from __future__ import annotations

import asyncio

import httpx
import pytest

from tests.api.configs import OPEN, V0_ALONE, Configs
from tests.api.dialect import Body, Topic, accepted, every_page, refused
from tests.api.keyring import bearer, make


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


TEN_YEARS = 315_360_000
USUAL = {"max_deliveries": 7, "on_exhausted": "dead_letter"}


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        (dict.fromkeys(("max_retries", "dlq_threshold", "message_ttl_seconds", "max_depth", "throughput_limit")), {}),
        (dict.fromkeys(("replayable", "durable", "visibility_timeout_seconds", "accepts", "wait_goal_ms")), {}),
        ({"max_retries": 0, "dlq_threshold": 0, "message_ttl_seconds": 0}, ...),
        ({"max_retries": 10_000, "dlq_threshold": 10_000, "message_ttl_seconds": TEN_YEARS}, ...),
        ({"max_depth": 0, "throughput_limit": 0}, {}),
        ({"visibility_timeout_seconds": 60}, ...),
        ({"visibility_timeout_seconds": 0}, {"lease_ms": 100}),
        ({"visibility_timeout_seconds": 2**63 - 1}, {"visibility_timeout_seconds": 86_400}),
        ({"replayable": True}, {"replayable": True, "replay_window_seconds": 604_800}),
        ({"replayable": True, "replay_window_seconds": 0}, ...),
        (
            {"replayable": True, "replay_window_seconds": 2**63 - 1},
            {"replayable": True, "replay_window_seconds": TEN_YEARS},
        ),
        ({"replayable": False, "replay_window_seconds": 60, "type": "queue"}, {}),
        ({"durable": False}, ...),
        ({"durability": "memory"}, {"durable": False, "durability": "memory"}),
        ({"durability": "disk"}, {"durable": False}),
        ({"ttl_ms": 1500, "lease_ms": 150, "replayable": True, "replay_window_ms": 1}, ...),
        ({"ttl_ms": 2000, "lease_ms": 3000}, {"message_ttl_seconds": 2, "visibility_timeout_seconds": 3}),
        ({"claim_jitter_ms": 9_000, "cap_records": 7}, {"claim_jitter_ms": 5_000, "cap_records": 7}),
        ({"accepts": ["Image/PNG"], "ingest": "public"}, {"accepts": ["image/png"], "ingest": "public"}),
        ({"max_deliveries": 7, "on_exhausted": "fail"}, ...),
        ({"max_deliveries": 0, "on_exhausted": "redeliver"}, ...),
        ({"max_deliveries": 7, "dead_letter": "grave"}, {**USUAL, "dead_letter": "grave"}),
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
    assert await configs.put(max_deliveries=7) == OPEN | USUAL | {"dead_letter": f"{configs.topic}.dlq"}


NONSENSE: list[Body] = [
    *({"max_retries": text} for text in (-1, 10_001, 1.5, "3")),
    *({"throughput_limit": 2**31}, {"message_ttl_seconds": TEN_YEARS + 1}, {"replayable": 1}, {"durable": "yes"}),
    *({"accepts": []}, {"accepts": ["text/*"]}, {"type": "stack"}, {"dead_letter": "a b"}, {"dead_letter": ""}),
    *({"on_exhausted": "fail"}, {"max_deliveries": 1, "max_retries": 1}, {"max_deliveries": 1, "dlq_threshold": 0}),
    *({"ttl_ms": 1, "message_ttl_seconds": 1}, {"lease_ms": 1, "visibility_timeout_seconds": 1}),
    {"replay_window_ms": 1, "replay_window_seconds": 1},
]


async def test_nonsense_is_refused_and_leaves_nothing(configs: Configs) -> None:
    own = {"dead_letter": configs.topic}
    for asked in (*NONSENSE, own):
        refused(await configs.http.put(configs.path, json=asked), 400, "invalid_request")
    refused(await configs.http.get(configs.path), 404, "topic_not_found")
    await configs.put(max_retries=9)
    for asked in (*NONSENSE, own):
        refused(await configs.http.put(configs.path, json=asked), 400, "invalid_request")
    assert await configs.get() == OPEN | {"max_retries": 9}
    for name in ("orders.dlq", "-a", "a b", "x" * 252):
        refused(await configs.http.put(f"/api/topic-configs/{name}", json={}), 400, "invalid_request")


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


async def test_they_are_listed_by_topic_a_page_at_a_time(http: httpx.AsyncClient, topic: str) -> None:
    names = [f"{topic}.{end}" for end in ("b", "B", "a", "_", "c")]
    for name in names:
        await Configs(http, name).put()
    seen = [item["topic"] for item in await every_page(http, "/api/topic-configs", "items")]
    assert [name for name in seen if name.startswith(f"{topic}.")] == sorted(names)
    assert seen == sorted(seen)


async def test_changes_at_once_are_each_whole(configs: Configs, queue: Topic) -> None:
    """One of this dialect never undoes what one of v0's names was set to meanwhile."""
    settings: list[Body] = [{"cap_records": 7}, {"idempotency_window_ms": 8}, {"priority": 9}, {"claim_jitter_ms": 6}]
    for _ in range(10):
        await configs.put()
        await asyncio.gather(*(configs.put(max_retries=4, **one) for one in settings))
        assert await configs.get() == OPEN | {"max_retries": 4} | settings[0] | settings[1] | settings[2] | settings[3]
        await configs.drop()


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
