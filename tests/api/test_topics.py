"""Topics: created, configured, deleted."""

from __future__ import annotations

import re
import time

import httpx
import pytest

from holdfast import AsyncClient, errors
from tests.api.dialect import Topic, accepted, refused
from tests.conftest import Running
from tests.settings import defaults

DEFAULTS = {
    **defaults(but={"webhook"}),
    "type": "queue",
    "durable": False,
    "durability": "disk",
    "lease_ms": 30_000,
    "claim_jitter_ms": 0,
    "max_deliveries": 0,
    "dead_letter": None,
    "on_exhausted": "redeliver",
    "ttl_ms": 0,
    "cap_records": 0,
    "cap_bytes": 0,
    "discard": "old",
    "idempotency_window_ms": 120_000,
    "dedupe_window_ms": 300_000,
    "priority": None,
    "auto_priority": True,
    "max_depth": 0,
    "throughput_limit": 0,
    "priority_order": "highest_first",
    "retry_order": "front",
    "aging_ms": 0,
    "wait_goal_ms": 60_000,
    "tenant_weights": {},
    "tenant_limits": {},
    "replayable": False,
    "replay_window_ms": 604_800_000,
    "result_ttl_ms": 86_400_000,
    "event_ttl_ms": 604_800_000,
    "dead_ttl_ms": 1_209_600_000,
    "accepts": ["application/json", "application/x-www-form-urlencoded", "multipart/form-data", "text/plain"],
    "ingest": "key",
    "user_events": False,
    "auto_create": True,
    "dedupe_node": True,
    "leases_durable": True,
    "backoff": None,
}


async def test_defaults_are_echoed_in_full(http: httpx.AsyncClient, topic: str) -> None:
    answer = await http.put(f"/v0/topics/{topic}", json={"type": "queue"})
    assert answer.status_code == 201
    assert answer.json()["created"] is True
    assert answer.json()["config"] == DEFAULTS
    assert (await http.get(f"/v0/topics/{topic}")).json()["config"] == DEFAULTS


@pytest.mark.parametrize("body", [b"", b"{}", b" { } "])
async def test_a_topic_that_is_asked_nothing_is_a_log(http: httpx.AsyncClient, topic: str, body: bytes) -> None:
    headers = {"content-type": "application/json"} if body else {}
    answer = await http.put(f"/v0/topics/{topic}", content=body, headers=headers)
    assert answer.status_code == 201
    assert answer.json()["config"] == DEFAULTS | {"type": "log"}
    state = (await http.get(f"/v0/topics/{topic}")).json()
    assert state["type"] == "log"
    assert "queue" not in state


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        ({"lease_ms": 0}, {"lease_ms": 100}),
        ({"lease_ms": 99}, {"lease_ms": 100}),
        ({"lease_ms": 101}, {"lease_ms": 101}),
        ({"lease_ms": 86_400_001}, {"lease_ms": 86_400_000}),
        ({"lease_ms": 2**63}, {"lease_ms": 86_400_000}),
        ({"claim_jitter_ms": 2**64}, {"claim_jitter_ms": 5_000}),
        ({"cap_records": 2**63, "cap_bytes": 10**30}, {"cap_records": 2**63 - 1, "cap_bytes": 2**63 - 1}),
        ({"claim_jitter_ms": 5_000}, {"claim_jitter_ms": 5_000}),
        ({"claim_jitter_ms": 5_001}, {"claim_jitter_ms": 5_000}),
        ({"durable": True}, {"durable": True, "durability": "fsync"}),
        ({"durable": True, "durability": "disk"}, {"durable": False, "durability": "disk"}),
        ({"durability": "fsync"}, {"durable": True, "durability": "fsync"}),
        ({"durability": "memory"}, {"durable": False, "durability": "memory"}),
        ({"durable": True, "durability": "ephemeral"}, {"durable": False, "durability": "ephemeral"}),
        (
            {"leases_durable": True, "auto_priority": False, "auto_create": False, "dedupe_node": False},
            {"leases_durable": True, "auto_priority": False, "auto_create": False, "dedupe_node": False},
        ),
        ({"discard": "reject", "idempotency_window_ms": 0}, {"discard": "reject", "idempotency_window_ms": 0}),
        ({"priority": -(2**31)}, {"priority": -(2**31)}),
        (
            {"max_depth": 2**63 - 1, "throughput_limit": 2**31 - 1},
            {"max_depth": 2**63 - 1, "throughput_limit": 2**31 - 1},
        ),
        ({"replayable": True, "replay_window_ms": 0}, {"replayable": True, "replay_window_ms": 0}),
        ({"replay_window_ms": 2**63 - 1}, {"replay_window_ms": 315_360_000_000}),
        (
            {"lease_ms": None, "dead_letter": None, "priority": None, "max_depth": None, "replay_window_ms": None},
            {"lease_ms": 30_000},
        ),
        ({"dead_ttl_ms": 0}, {"dead_ttl_ms": 0}),
        ({"result_ttl_ms": 0}, {"result_ttl_ms": 0}),
        ({"event_ttl_ms": 0}, {"event_ttl_ms": 0}),
        ({"dead_ttl_ms": 315_360_000_000}, {"dead_ttl_ms": 315_360_000_000}),
        ({"on_exhausted": "fail"}, {"on_exhausted": "fail"}),
        ({"accepts": ["Text/CSV", "image/png", "text/csv"]}, {"accepts": ["text/csv", "image/png"]}),
        ({"ingest": "public", "user_events": True}, {"ingest": "public", "user_events": True}),
        ({"accepts": None, "ingest": None, "user_events": None}, {}),
        ({"priority_order": "lowest_first"}, {"priority_order": "lowest_first"}),
        ({"retry_order": "back", "aging_ms": 315_360_000_000}, {"retry_order": "back", "aging_ms": 315_360_000_000}),
        ({"priority_order": None, "retry_order": None, "aging_ms": None}, {}),
        ({"wait_goal_ms": 0}, {"wait_goal_ms": 0}),
        ({"wait_goal_ms": 315_360_000_000}, {"wait_goal_ms": 315_360_000_000}),
        ({"wait_goal_ms": None}, {}),
    ],
)
async def test_a_setting_is_clamped_and_kept(
    http: httpx.AsyncClient, topic: str, asked: dict[str, object], kept: dict[str, object]
) -> None:
    answer = await Topic(http, topic).put(**asked)
    assert answer["config"] == DEFAULTS | kept
    assert (await Topic(http, topic).state())["config"] == DEFAULTS | kept


async def test_leases_that_end_with_the_service_are_refused(http: httpx.AsyncClient, topic: str) -> None:
    """Leases always survive a restart: who asks for others is not to believe that they don't."""
    config = {"type": "queue", "leases_durable": False}
    for answer in (
        await http.put(f"/v0/topics/{topic}", json=config),
        await http.post(f"/v0/topics/{topic}", json={"records": [{"data": 1}], "config": config}),
    ):
        message = refused(answer, 400, "invalid_request")["message"]
        assert message.startswith("leases_durable can't be false: leases always survive a restart here.")
    other = await http.put(f"/api/topic-configs/{topic}", json={"leases_durable": False})
    assert (other.status_code, other.json()["code"]) == (400, "invalid_request")
    assert (await http.get(f"/v0/topics/{topic}")).status_code == 404
    for given in (True, None):
        assert (await Topic(http, topic).put(leases_durable=given))["config"]["leases_durable"] is True


async def test_a_dead_letter_topic_that_is_named_is_where_exhausted_jobs_go(queue: Topic) -> None:
    config = (await queue.put(dead_letter="graveyard"))["config"]
    assert (config["dead_letter"], config["on_exhausted"]) == ("graveyard", "dead_letter")


async def test_a_put_replaces_the_whole_configuration(queue: Topic) -> None:
    await queue.put(lease_ms=5_000, claim_jitter_ms=7, max_deliveries=3, dead_letter="dlq-of-it", durable=True)
    answer = await queue.http.put(queue.path, json={"type": "queue", "ttl_ms": 9})
    assert answer.status_code == 200
    assert answer.json()["created"] is False
    assert answer.json()["config"] == DEFAULTS | {"ttl_ms": 9}
    assert (await queue.state())["config"] == DEFAULTS | {"ttl_ms": 9}


async def test_a_new_configuration_counts_for_the_next_claim(queue: Topic) -> None:
    await queue.add(2)
    before = await queue.take()
    await queue.put(lease_ms=1_000)
    after = await queue.take()
    assert after["deadline"] < before["deadline"] - 20_000


@pytest.mark.parametrize(("first", "second"), [("queue", "log"), ("log", "queue")])
async def test_the_type_of_a_topic_stays(http: httpx.AsyncClient, topic: str, first: str, second: str) -> None:
    await Topic(http, topic).put(type=first, lease_ms=777)
    error = refused(await http.put(f"/v0/topics/{topic}", json={"type": second}), 409, "topic_exists_incompatible")
    assert error["detail"] == {"topic": topic, "existing_type": first, "requested_type": second}
    assert error["message"] == f"Topic {topic!r} is a {first}; a topic's type can't be changed."
    config = (await Topic(http, topic).state())["config"]
    assert (config["type"], config["lease_ms"]) == (first, 777)


@pytest.mark.parametrize("body", [b"", b"{}"])
async def test_a_put_of_nothing_on_a_queue_would_make_it_a_log(queue: Topic, body: bytes) -> None:
    answer = await queue.http.put(queue.path, content=body, headers={"content-type": "application/json"})
    error = refused(answer, 409, "topic_exists_incompatible")
    assert error["detail"] == {"topic": queue.name, "existing_type": "queue", "requested_type": "log"}


async def test_a_name_that_leaves_no_room_for_its_dead_letters(http: httpx.AsyncClient, service: Running) -> None:
    name = "n" * 252
    what = f"The name of the dead-letter topic, {name}.dlq, would have 256 characters, and 255 are the most. "
    fewer = ", or give the topic a name of 251 characters or fewer."
    v0 = await http.put(f"/v0/topics/{name}", json={"dead_letter": f"{name}.dlq"})
    assert refused(v0, 400, "invalid_request")["message"] == what + "Name another dead_letter" + fewer
    async with AsyncClient(service.url) as client:
        with pytest.raises(errors.InvalidRequest, match=re.escape(what + "Name another dead_letter" + fewer)):
            await client.topic(name).put()
    message = await http.post("/api/messages", json={"topic": name, "payload": "x"})
    remedy = "Make the topic with PUT /v0/topics/<topic> and another dead_letter"
    assert refused(message, 400, "invalid_request")["message"] == what + remedy + fewer
    accepted(await http.put(f"/v0/topics/{name}", json={"dead_letter": "t.dlq"}))


@pytest.mark.parametrize("dead_letter", ["", "a b", "a/b", "-a", "ä", "nul\0", "x" * 256, 5, ["a"], False])
async def test_a_dead_letter_topic_must_be_a_name(http: httpx.AsyncClient, topic: str, dead_letter: object) -> None:
    answer = await http.put(f"/v0/topics/{topic}", json={"type": "queue", "dead_letter": dead_letter})
    refused(answer, 400, "invalid_request")
    refused(await http.get(f"/v0/topics/{topic}"), 404, "topic_not_found")


@pytest.mark.parametrize("goal", [-1, 315_360_000_001, 1.5, "1 min", True])
async def test_how_long_jobs_may_wait_has_bounds(queue: Topic, goal: object) -> None:
    await queue.put(wait_goal_ms=5)
    refused(await queue.http.put(queue.path, json={"type": "queue", "wait_goal_ms": goal}), 400, "invalid_request")
    assert (await queue.state())["config"] == DEFAULTS | {"wait_goal_ms": 5}


async def test_a_topic_is_not_its_own_dead_letter_topic(http: httpx.AsyncClient, topic: str) -> None:
    answer = await http.put(f"/v0/topics/{topic}", json={"type": "queue", "dead_letter": topic})
    refused(answer, 400, "invalid_request")
    refused(await http.get(f"/v0/topics/{topic}"), 404, "topic_not_found")


async def test_dead_letters_without_a_topic_for_them_are_refused(http: httpx.AsyncClient, topic: str) -> None:
    answer = await http.put(f"/v0/topics/{topic}", json={"type": "queue", "on_exhausted": "dead_letter"})
    refused(answer, 400, "invalid_request")


async def test_deleting_what_is_not_there_deletes_nothing(http: httpx.AsyncClient, topic: str) -> None:
    answer = await Topic(http, topic).drop()
    assert (answer["topic"], answer["deleted"], answer["routers_removed"]) == (topic, False, [])


async def test_a_deleted_topic_is_gone_with_its_jobs(queue: Topic) -> None:
    await queue.add(2)
    await queue.take()
    assert (await queue.drop())["deleted"] is True
    refused(await queue.http.get(queue.path), 404, "topic_not_found")
    refused(await queue.http.post(f"{queue.path}/claim", json={"node": "n"}), 404, "topic_not_found")
    assert (await queue.drop())["deleted"] is False


async def test_a_queue_is_deleted_if_empty_only_once_it_is(queue: Topic) -> None:
    [seq] = await queue.add(1)
    asked = f"{queue.path}?if_empty=true"
    refused(await queue.http.delete(asked), 409, "topic_not_empty")
    await queue.take()
    refused(await queue.http.delete(asked), 409, "topic_not_empty")  # a leased job is one as well
    await queue.ack("n", [seq])
    assert accepted(await queue.http.delete(asked))["deleted"] is True


async def test_a_topic_made_anew_starts_from_nothing(queue: Topic) -> None:
    dead = f"{queue.name}.dead"
    await queue.put(max_deliveries=1, dead_letter=dead)
    await queue.add(3)
    old = await queue.take()
    await queue.nack("n", [old["$seq"]])
    held = await queue.take()
    state = await queue.state()
    assert (state["head_seq"], state["next_seq"], state["queue"]["dead_lettered"]) == (3, 4, 1)

    await queue.drop()
    await queue.put()
    state = await queue.state()
    assert (state["head_seq"], state["earliest_seq"], state["next_seq"], state["count"]) == (0, 1, 1, 0)
    assert state["queue"] == {"ready": 0, "in_flight": 0, "dead_lettered": 0}
    assert (state["last_write_ts"], state["bytes"]) == (None, 0)
    assert await queue.add(3) == [1, 2, 3]
    # Leases of the earlier topic are none of this one's.
    assert (await queue.ack("n", [held["$seq"]]))["skipped"] == [held["$seq"]]
    assert (await queue.take())["deliveries"] == 1


async def test_the_state_tells_what_a_queue_holds(queue: Topic) -> None:
    await queue.append({"data": "four"}, {"data": 1}, {"data": None})
    job = await queue.take()
    await queue.ack("n", [job["$seq"]])
    state = await queue.state()
    assert (state["head_seq"], state["earliest_seq"], state["next_seq"]) == (3, 2, 4)
    assert (state["count"], state["bytes"], state["type"]) == (2, 5, "queue")
    assert job["$ts"] <= state["last_write_ts"] <= time.time() * 1000
    assert state["queue"] == {"ready": 2, "in_flight": 0, "dead_lettered": 0}


LOG_REFUSES = {
    "claim": {"node": "n"},
    "ack": {"node": "n", "seqs": [1]},
    "nack": {"node": "n", "seqs": [1]},
    "extend": {"node": "n", "seqs": [1], "lease_ms": 1000},
}


@pytest.mark.parametrize("verb", LOG_REFUSES)
async def test_a_log_refuses_the_verbs_of_a_queue(http: httpx.AsyncClient, topic: str, verb: str) -> None:
    await Topic(http, topic).put(type="log")
    error = refused(await http.post(f"/v0/topics/{topic}/{verb}", json=LOG_REFUSES[verb]), 409, "not_a_queue")
    assert error["detail"] == {"topic": topic}


async def test_a_log_refuses_work(http: httpx.AsyncClient, topic: str) -> None:
    log = Topic(http, topic)
    await log.put(type="log")
    refused(await http.get(f"{log.path}/work", params={"node": "n"}), 409, "not_a_queue")


@pytest.mark.parametrize("verb", LOG_REFUSES)
async def test_no_verb_creates_a_topic(http: httpx.AsyncClient, topic: str, verb: str) -> None:
    error = refused(await http.post(f"/v0/topics/{topic}/{verb}", json=LOG_REFUSES[verb]), 404, "topic_not_found")
    assert error["detail"] == {"topic": topic}
    refused(await http.get(f"/v0/topics/{topic}"), 404, "topic_not_found")


async def test_neither_does_a_stream(http: httpx.AsyncClient, topic: str) -> None:
    refused(await http.get(f"/v0/topics/{topic}/work", params={"node": "n"}), 404, "topic_not_found")
    refused(await http.get(f"/v0/topics/{topic}"), 404, "topic_not_found")
