"""Topics: named, created, configured, deleted."""

from __future__ import annotations

import json
import re
import time
from urllib.parse import quote

import httpx
import pytest

from holdfast import AsyncClient, errors
from tests.api.dialect import Body, Topic, accepted, refused
from tests.conftest import Running
from tests.settings import defaults

DEFAULTS: Body = json.loads(json.dumps(defaults(but={"webhook"}))) | {"type": "queue", "durable": False}
TEN_YEARS = 315_360_000_000


@pytest.mark.parametrize(
    "name",
    ["x" * 256, "it's", 'a"b', "a\0b", "a\n", "a b", "a/b", ".a", "a>b", "schlange-ü", "٣", "a%b", "a\\b", ""],
)
async def test_a_name_that_no_topic_can_have_is_refused(http: httpx.AsyncClient, name: str) -> None:
    path = f"/v0/topics/{quote(name, safe='')}"
    for method, body in (("PUT", {"type": "queue"}), ("GET", None), ("POST", {"records": [{"data": 1}]})):
        refused(await http.request(method, path, json=body), 400, "invalid_request")
    for verb in ("claim", "ack", "extend"):
        answer = await http.post(f"{path}/{verb}", json={"node": "n", "seqs": [1], "lease_ms": 1000})
        refused(answer, 400, "invalid_request")
    refused(await http.get(f"{path}/work?node=n"), 400, "invalid_request")


async def test_a_slash_in_a_name_never_reaches_another_route(queue: Topic) -> None:
    """a%2Fclaim is a topic's name, and none that a topic can have; it is no claim on topic a."""
    await queue.add(1)
    path = f"/v0/topics/{queue.name}%2Fclaim"
    refused(await queue.http.post(path, json={"node": "n", "records": [{"data": 1}]}), 400, "invalid_request")
    refused(await queue.http.get("/v0/keys/a%2Fb"), 404, "not_found")  # which speaks of no topic
    assert await queue.counts() == (1, 0)


@pytest.mark.parametrize("name", ["x", "X.y_z:0-9", "0", "y" * 255, "a%2Eb"])
async def test_a_name_that_a_topic_can_have(http: httpx.AsyncClient, topic: str, name: str) -> None:
    queue = Topic(http, f"{topic}.{name}"[:255])
    await queue.put()
    await queue.add(1)
    assert (await queue.ack("n", [(await queue.take())["$seq"]]))["acked"] == 1
    assert (await queue.drop())["deleted"] is True


@pytest.mark.parametrize("body", [b'{"type":"queue"}', b"", b"{}", b" { } "])
async def test_defaults_are_echoed_in_full(http: httpx.AsyncClient, topic: str, body: bytes) -> None:
    """What asks for nothing is a log."""
    headers = {"content-type": "application/json"} if body else {}
    kind = "queue" if b"queue" in body else "log"
    answer = await http.put(f"/v0/topics/{topic}", content=body, headers=headers)
    assert (answer.status_code, answer.json()["created"]) == (201, True)
    state = await Topic(http, topic).state()
    assert answer.json()["config"] == state["config"] == DEFAULTS | {"type": kind}
    assert (state["type"], "queue" in state) == (kind, kind == "queue")


@pytest.mark.parametrize(
    ("asked", "kept"),
    [
        ({"lease_ms": 0}, {"lease_ms": 100}),
        ({"lease_ms": 101}, ...),
        ({"lease_ms": 2**63}, {"lease_ms": 86_400_000}),
        ({"claim_jitter_ms": 5_000, "cap_records": 2**63 - 1}, ...),
        ({"claim_jitter_ms": 2**64, "cap_records": 2**63}, {"claim_jitter_ms": 5_000, "cap_records": 2**63 - 1}),
        ({"replay_window_ms": 2**63 - 1}, {"replay_window_ms": TEN_YEARS}),
        ({"durable": True}, {"durable": True, "durability": "fsync"}),
        ({"durable": True, "durability": "disk"}, {"durable": False, "durability": "disk"}),
        ({"durability": "fsync"}, {"durable": True, "durability": "fsync"}),
        ({"durable": True, "durability": "ephemeral"}, {"durable": False, "durability": "ephemeral"}),
        ({"auto_priority": False, "auto_create": False, "dedupe_node": False, "user_events": True}, ...),
        ({"discard": "reject", "idempotency_window_ms": 0, "ingest": "public", "on_exhausted": "fail"}, ...),
        ({"priority": -(2**31), "max_depth": 2**63 - 1, "throughput_limit": 2**31 - 1}, ...),
        ({"replayable": True, "replay_window_ms": 0, "dead_ttl_ms": 0, "result_ttl_ms": 0, "event_ttl_ms": 0}, ...),
        ({"dead_ttl_ms": TEN_YEARS, "aging_ms": TEN_YEARS, "wait_goal_ms": TEN_YEARS}, ...),
        ({"priority_order": "lowest_first", "retry_order": "back", "wait_goal_ms": 0}, ...),
        ({"accepts": ["Text/CSV", "image/png", "text/csv"]}, {"accepts": ["text/csv", "image/png"]}),
        (dict.fromkeys(set(DEFAULTS) - {"type", "durable"}), {}),
    ],
)
async def test_a_setting_is_clamped_and_kept(http: httpx.AsyncClient, topic: str, asked: Body, kept: object) -> None:
    expected = DEFAULTS | (asked if kept is ... else kept)  # type: ignore[operator]
    assert (await Topic(http, topic).put(**asked))["config"] == expected
    assert (await Topic(http, topic).state())["config"] == expected


@pytest.mark.parametrize(
    "asked",
    [
        *({"dead_letter": name} for name in ("", "a b", "a/b", "-a", "ä", "nul\0", "x" * 256, 5, False)),
        {"on_exhausted": "dead_letter"},
        *({"wait_goal_ms": goal} for goal in (-1, TEN_YEARS + 1, 1.5, "1 min", True)),
    ],
    ids=str,
)
async def test_a_setting_that_makes_no_sense_is_refused_every_time(
    http: httpx.AsyncClient, topic: str, asked: Body
) -> None:
    """Also by a write, for which a config counts only if it is the first."""
    queue = Topic(http, topic)
    body = {"type": "queue", **asked}
    refused(await http.put(queue.path, json=body), 400, "invalid_request")
    refused(await http.put(queue.path, json={"type": "queue", "dead_letter": topic}), 400, "invalid_request")
    refused(await http.get(queue.path), 404, "topic_not_found")
    await queue.put(wait_goal_ms=5)
    refused(await http.put(queue.path, json=body), 400, "invalid_request")
    refused(await http.post(queue.path, json={"records": [{"data": 1}], "config": body}), 400, "invalid_request")
    state = await queue.state()
    assert (state["config"], state["count"]) == (DEFAULTS | {"wait_goal_ms": 5}, 0)
    ignored = {"type": "log", "lease_ms": 5}
    accepted(await http.post(queue.path, json={"records": [{"data": 1}], "config": ignored}))


async def test_leases_that_end_with_the_service_are_refused(http: httpx.AsyncClient, topic: str) -> None:
    """Leases always survive a restart: who asks for others is not to believe that they don't."""
    config = {"type": "queue", "leases_durable": False}
    for answer in (
        await http.put(f"/v0/topics/{topic}", json=config),
        await http.post(f"/v0/topics/{topic}", json={"records": [{"data": 1}], "config": config}),
        await http.put(f"/api/topic-configs/{topic}", json={"leases_durable": False}),
    ):
        message = refused(answer, 400, "invalid_request")["message"]
        assert message.startswith("leases_durable can't be false, because leases always survive a restart.")
    assert (await http.get(f"/v0/topics/{topic}")).status_code == 404
    assert (await Topic(http, topic).put(leases_durable=True))["config"]["leases_durable"] is True


async def test_a_put_replaces_the_whole_configuration_from_the_next_claim_on(queue: Topic) -> None:
    config = (await queue.put(lease_ms=50_000, claim_jitter_ms=7, dead_letter="graveyard", durable=True))["config"]
    assert (config["dead_letter"], config["on_exhausted"]) == ("graveyard", "dead_letter")
    await queue.add(2)
    before = await queue.take()
    answer = await queue.http.put(queue.path, json={"type": "queue", "lease_ms": 1_000})
    assert (answer.status_code, answer.json()["created"]) == (200, False)
    assert answer.json()["config"] == (await queue.state())["config"] == DEFAULTS | {"lease_ms": 1_000}
    assert (await queue.take())["deadline"] < before["deadline"] - 20_000


@pytest.mark.parametrize(("first", "second"), [("queue", "log"), ("log", "queue"), ("queue", None)])
async def test_the_type_of_a_topic_stays(http: httpx.AsyncClient, topic: str, first: str, second: str | None) -> None:
    """A PUT without a type means a log."""
    await Topic(http, topic).put(type=first, lease_ms=777)
    body = {"type": second} if second else {"durable": True}
    error = refused(await http.put(f"/v0/topics/{topic}", json=body), 409, "topic_exists_incompatible")
    assert error["detail"] == {"topic": topic, "existing_type": first, "requested_type": second or "log"}
    assert error["message"].startswith(f"Topic {topic!r} is a {first}")
    assert ('Send "type": "queue"' in error["message"]) == (second is None)
    config = (await Topic(http, topic).state())["config"]
    assert (config["type"], config["lease_ms"]) == (first, 777)


async def test_a_name_that_leaves_no_room_for_its_dead_letters(http: httpx.AsyncClient, service: Running) -> None:
    name = "n" * 252
    what = f"The name of the dead-letter topic, {name}.dlq, would have 256 characters; 255 are allowed. "
    fewer = ", or give the topic a name of 251 characters or fewer."
    v0 = await http.put(f"/v0/topics/{name}", json={"dead_letter": f"{name}.dlq"})
    assert refused(v0, 400, "invalid_request")["message"] == what + "Name another dead_letter" + fewer
    async with AsyncClient(service.url) as client:
        with pytest.raises(errors.InvalidRequest, match=re.escape(what + "Name another dead_letter" + fewer)):
            await client.topic(name).put()
    message = await http.post("/api/messages", json={"topic": name, "payload": "x"})
    remedy = "Create the topic with PUT /v0/topics/<topic> and another dead_letter"
    assert refused(message, 400, "invalid_request")["message"] == what + remedy + fewer
    accepted(await http.put(f"/v0/topics/{name}", json={"dead_letter": "t.dlq"}))


async def test_a_queue_is_deleted_if_empty_only_once_it_is(queue: Topic) -> None:
    [seq] = await queue.add(1)
    asked = f"{queue.path}?if_empty=true"
    refused(await queue.http.delete(asked), 409, "topic_not_empty")
    await queue.take()
    refused(await queue.http.delete(asked), 409, "topic_not_empty")  # a leased job is one as well
    await queue.ack("n", [seq])
    assert accepted(await queue.http.delete(asked))["deleted"] is True
    refused(await queue.http.post(f"{queue.path}/claim", json={"node": "n"}), 404, "topic_not_found")
    answer = await queue.drop()
    assert (answer["topic"], answer["deleted"], answer["routers_removed"]) == (queue.name, False, [])


async def test_a_topic_made_anew_starts_from_nothing(queue: Topic) -> None:
    await queue.put(max_deliveries=1, dead_letter=f"{queue.name}.dead")
    await queue.append({"data": "four"}, {"data": 1}, {"data": None})
    await queue.nack("n", [(await queue.take())["$seq"]])
    held = await queue.take()
    state = await queue.state()
    assert (state["head_seq"], state["earliest_seq"], state["next_seq"], state["count"]) == (3, 2, 4, 2)
    assert (state["bytes"], state["queue"]) == (5, {"ready": 1, "in_flight": 1, "dead_lettered": 1})
    assert held["$ts"] <= state["last_write_ts"] <= time.time() * 1000

    assert (await queue.drop())["deleted"] is True
    await queue.put()
    state = await queue.state()
    assert (state["head_seq"], state["earliest_seq"], state["next_seq"], state["count"]) == (0, 1, 1, 0)
    assert state["queue"] == {"ready": 0, "in_flight": 0, "dead_lettered": 0}
    assert (state["last_write_ts"], state["bytes"]) == (None, 0)
    assert await queue.add(3) == [1, 2, 3]
    # Leases of the earlier topic are none of this one's.
    assert (await queue.ack("n", [held["$seq"]]))["skipped"] == [held["$seq"]]
    assert (await queue.take())["deliveries"] == 1
