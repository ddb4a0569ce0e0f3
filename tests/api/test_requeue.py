"""Requeues over HTTP, in both dialects; and a service that is killed in the middle of one."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.api.dialect import Body, Topic, accepted, refused
from tests.api.keyring import bearer, client, make
from tests.api.messages.client import Messages, done
from tests.processes import until

if TYPE_CHECKING:
    from tests.api.process import Process
    from tests.conftest import Running


@pytest.fixture
def messages(http: httpx.AsyncClient, topic: str) -> Messages:
    return Messages(http, topic)


@pytest.fixture
async def dead(queue: Topic) -> Topic:
    """The dead letters of the test's queue, which gives each job one delivery."""
    name = f"{queue.name}.dead"
    await queue.put(max_deliveries=1, dead_letter=name)
    return Topic(queue.http, name)


async def kill(queue: Topic, count: int, error: str = "boom", **fields: object) -> list[int]:
    """So many jobs die: their seqs."""
    await queue.add(count, **fields)
    seqs: list[int] = []
    while len(seqs) < count:
        claimed = [job["$seq"] for job in (await queue.claim(max=1_000))["claimed"]]
        await queue.nack("n", claimed, errors=[error] * len(claimed))
        seqs += claimed
    return seqs


async def ended(http: httpx.AsyncClient, which: str, seconds: float = 30) -> Body:
    async with asyncio.timeout(seconds):
        while True:
            shown = done(await http.get(f"/v0/operations/{which}"))
            if shown["ended_at"] is not None:
                return shown
            await asyncio.sleep(0.02)


async def test_by_filter_with_a_dry_run_before(queue: Topic, dead: Topic) -> None:
    await kill(queue, 3, "Timeout after 30 s", tag="a")
    await kill(queue, 2, "no such host", tag="b")
    dry = await queue.post("requeue", filter={"error": "Timeout"}, dry_run=True)
    assert {**dry, "performance": 0} == {"id": None, "matched": 3, "exact": True, "performance": 0}
    assert (await dead.state())["queue"]["ready"] == 5
    begun = await queue.http.post(f"{queue.path}/requeue", json={"filter": {"error": "Timeout", "tag": "a"}})
    assert begun.status_code == 202
    shown = await ended(queue.http, begun.json()["id"])
    assert {name: shown[name] for name in ("topic", "state", "matched", "requeued", "skipped", "reason")} == {
        "topic": queue.name,
        "state": "done",
        "matched": 3,
        "requeued": 3,
        "skipped": 0,
        "reason": None,
    }
    jobs = (await queue.claim(max=9))["claimed"]
    assert sorted(job["$seq"] for job in jobs) == [1, 2, 3]
    assert all(job["deliveries"] == 1 and "meta" not in job for job in jobs)
    assert (await dead.state())["queue"]["ready"] == 2
    # The rest, by the topic that holds them.
    begun = await dead.http.post(f"{dead.path}/requeue", json={"filter": {}})
    assert (await ended(queue.http, begun.json()["id"]))["requeued"] == 2
    entries = accepted(await queue.http.get("/v0/admin/audit", params={"subject": queue.name}))["entries"]
    assert [one["action"] for one in entries][:2] == ["requeue.ended", "requeue.started"]


async def test_a_topic_lists_its_own_and_first_what_is_under_way(queue: Topic, dead: Topic) -> None:
    await kill(queue, 2, tag="a")
    await kill(queue, 2, tag="b")
    ids = []
    for body in ({"filter": {"tag": "a"}, "canary": {"first": 1}}, {"filter": {"tag": "b"}}):
        begun = await queue.http.post(f"{queue.path}/requeue", json=body)
        ids.append(begun.json()["id"])
    await ended(queue.http, ids[1])
    await dead.http.post(f"{dead.path}/requeue", json={"filter": {"tag": "c"}})
    found = accepted(await queue.http.get(f"{queue.path}/operations"))
    assert (found["topic"], [one["id"] for one in found["operations"]]) == (queue.name, ids)
    shown = accepted(await queue.http.get(f"/v0/operations/{ids[1]}"))
    assert found["operations"][1] == {name: shown[name] for name in shown if name != "performance"}
    await queue.http.post(f"/v0/operations/{ids[0]}/cancel")
    await ended(queue.http, ids[0])
    found = accepted(await queue.http.get(f"{queue.path}/operations"))
    assert [one["id"] for one in found["operations"]] == ids[::-1]  # the newest first


@pytest.mark.parametrize(
    "body",
    [
        {},
        {"filter": {}, "seqs": [1]},
        {"filter": {"cluster": "c"}},
        {"filter": {"cluster": "A" * 16}},
        {"filter": {"mistake": 1}},
        {"filter": {"error": ""}},
        {"filter": {"older_than_ms": -1}},
        {"filter": {}, "rate": -1},
        {"filter": {}, "canary": {"first": 0}},
        {"filter": {}, "canary": {"stop_at_percent": 101}},
        {"seqs": list(range(1_001))},
        {"seqs": None},
    ],
    ids=str,
)
async def test_what_makes_no_sense_is_refused(body: Body, queue: Topic) -> None:
    for path in (queue.path, f"/api/topics/{queue.name}"):
        assert (await queue.http.post(f"{path}/requeue", json=body)).status_code == 400


async def test_other_refusals(queue: Topic, topic: str) -> None:
    http = queue.http
    refused(await http.post("/v0/topics/nowhere/requeue", json={"filter": {}}), 404, "topic_not_found")
    await Topic(http, f"{topic}.log").put(type="log")
    refused(await http.post(f"/v0/topics/{topic}.log/requeue", json={"filter": {}}), 409, "not_a_queue")
    for which in ("x", "00000000-0000-0000-0000-000000000000"):
        refused(await http.get(f"/v0/operations/{which}"), 404, "not_found")
        refused(await http.post(f"/v0/operations/{which}/cancel"), 404, "not_found")


async def test_a_message_is_requeued_with_its_id(messages: Messages) -> None:
    message_id = await messages.put("hello", key="k")
    for _ in range(3):
        [message] = await messages.dequeue()
        await messages.nack(message["id"], error="boom")
    assert (await messages.get(message_id))["original_topic"] == messages.topic
    done(await messages.verb(message_id, "requeue"), 204)
    back = await messages.get(message_id)
    assert (back["topic"], back["status"], back["retry_count"], back["key"]) == (messages.topic, "pending", 0, "k")
    assert back["last_error"] == "boom"
    assert "original_topic" not in back
    assert "dlq_moved_at" not in back
    assert "expires_at" in back
    refuse = await messages.verb(message_id, "requeue")
    assert (refuse.status_code, refuse.json()["code"]) == (404, "not_found")
    for _ in range(3):
        [message] = await messages.dequeue()
        assert message["id"] == message_id
        await messages.nack(message_id)
    await messages.put("newer", key="k")
    refuse = await messages.verb(message_id, "requeue")
    assert (refuse.status_code, refuse.json()["code"]) == (409, "key_conflict")
    assert (await messages.get(message_id))["original_topic"] == messages.topic
    done(await messages.http.delete(f"/v0/topics/{messages.topic}"))
    refuse = await messages.verb(message_id, "requeue")
    assert (refuse.status_code, refuse.json()["code"]) == (404, "topic_not_found")


async def test_many_messages_with_a_canary(messages: Messages) -> None:
    http = messages.http
    ids = [await messages.put(str(n)) for n in range(4)]
    for _ in range(12):
        [message] = await messages.dequeue()
        await messages.nack(message["id"], error=f"no {message['payload']}")
    body = {"filter": {"error": "no "}, "canary": {"first": 2, "stop_at_percent": 0}, "rate": 100}
    begun = done(await http.post(f"/api/topics/{messages.topic}/requeue", json=body), 202)
    assert (begun["matched"], begun["exact"]) == (4, True)
    taken = []
    for _ in range(4):
        message = await messages.take()
        taken.append(message["id"])
        await messages.ack(message["id"])
    assert sorted(taken) == sorted(ids)
    shown = await ended(http, begun["id"])
    assert (shown["state"], shown["requeued"], shown["failed_again"]) == ("done", 4, 0)
    again = accepted(await http.post(f"/v0/operations/{begun['id']}/cancel"))
    assert again["state"] == "done", "it has ended"


async def test_a_key_requeues_only_into_topics_of_its_own(guarded: Running, topic: str) -> None:
    async with client(guarded, "root") as root:
        for name in (f"a.{topic}", f"b.{topic}"):
            queue = Topic(root, name)
            await queue.put(max_deliveries=1, dead_letter=f"a.dead.{topic}")
            await kill(queue, 2)
        made = await make(root, "mine", ["read", "write"], prefixes=["a."])
        dead = f"/v0/topics/a.dead.{topic}/requeue"
        theirs = bearer(made["secret"])
        dry = accepted(await root.post(dead, json={"filter": {}, "dry_run": True}, headers=theirs))
        assert dry["matched"] == 2
        begun = await root.post(dead, json={"filter": {}}, headers=theirs)
        assert (await ended(root, begun.json()["id"]))["requeued"] == 2
        assert (await Topic(root, f"b.{topic}").state())["queue"]["ready"] == 0
        # What it may not see, it does not.
        other = await make(root, "other", ["read", "write"], prefixes=["c."])
        refused(
            await root.get(f"/v0/operations/{begun.json()['id']}", headers=bearer(other["secret"])), 404, "not_found"
        )


async def test_purges_work_on_dead_letters(queue: Topic, dead: Topic) -> None:
    await kill(queue, 5, tag="a")
    await kill(queue, 2, tag="b")
    assert (await dead.post("delete", match="a"))["deleted"] == 5
    assert done(await queue.http.post(f"/api/topics/{dead.name}/purge"))["deleted"] == 2
    entries = accepted(await queue.http.get("/v0/admin/audit", params={"subject": dead.name}))["entries"]
    purged = [one["detail"] for one in entries if one["action"] == "topic.purged"]
    assert purged == [{"statuses": ["pending", "processing", "expired"]}]


async def test_a_service_that_is_killed_loses_and_doubles_nothing(process: Process, tmp_path: Path) -> None:
    url = process.url()
    async with httpx.AsyncClient(base_url=url, timeout=30) as http:
        queue = Topic(http, f"killed-{tmp_path.name}"[:60])
        await queue.put(max_deliveries=1, dead_letter=f"{queue.name}.dead", durable=True)
        await kill(queue, 300)
        begun = await http.post(f"{queue.path}/requeue", json={"filter": {}, "rate": 60})
        which = begun.json()["id"]
        while done(await http.get(f"/v0/operations/{which}"))["requeued"] < 30:
            await asyncio.sleep(0.02)
    server = process.server()
    server.kill()

    def answers() -> bool:
        try:
            return httpx.get(f"{url}/readyz").status_code == 200
        except httpx.TransportError:
            return False

    await asyncio.to_thread(until, answers, 30)
    async with httpx.AsyncClient(base_url=url, timeout=30) as http:
        queue = queue.through(http)
        shown = await ended(http, which)
        assert (shown["state"], shown["requeued"], shown["skipped"]) == ("done", 300, 0)
        jobs = (await queue.claim(max=1_000))["claimed"]
        assert sorted(job["$seq"] for job in jobs) == list(range(1, 301))
        assert (await Topic(http, f"{queue.name}.dead").state())["queue"]["ready"] == 0
