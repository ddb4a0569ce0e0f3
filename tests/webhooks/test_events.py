"""Who is told of what, by its cause."""

from __future__ import annotations

import base64

import httpx
import pytest

from tests.api.dialect import JSON, Topic, accepted, eventually, refused
from tests.webhooks.conftest import complete_next
from tests.webhooks.receiver import SECRET, Receiver

OWN = "a secret of the topic's own"


async def test_a_topics_webhook_is_told_of_a_job_that_is_completed(queue: Topic, receiver: Receiver) -> None:
    await queue.put(webhook={"url": receiver.url("/a?b=c"), "secret": OWN})
    # No jsonb has that number.
    text = '{"records": [{"data": 1, "tag": "t", "meta": {"n": 1e999999, "who": "\u00e9"}}]}'
    [seq] = accepted(await queue.http.post(queue.path, content=text.encode(), headers=JSON))["seqs"]
    await complete_next(queue)

    [told] = await receiver.get()
    assert told.path == "/a?b=c"
    body = told.body
    assert body.pop("at").endswith("Z")
    assert body.pop("id")
    assert body.pop("meta")["who"] == "\u00e9"
    assert body == {"event": "completed", "topic": queue.name, "seq": seq, "deliveries": 1, "tag": "t"}
    assert told.headers["content-type"] == "application/json"
    assert told.is_signed_with(OWN.encode())
    assert not told.is_signed_with(SECRET.encode())


async def test_it_is_told_of_jobs_that_fail_and_of_dead_letters(queue: Topic, receiver: Receiver) -> None:
    async def ended(verb: str, error: str, **settings: object) -> dict[str, object]:
        """What is told of a job that ends by this verb."""
        await queue.put(webhook={"url": receiver.url()}, max_deliveries=1, **settings)
        await queue.add(1)
        job = await queue.take()
        await queue.post(verb, node="n", seqs=[job["$seq"]], errors=[error])
        told = (await receiver.get(job["$seq"]))[-1]
        assert told.is_signed_with(SECRET.encode()), "the service's, as the topic has none"
        return {name: told.body[name] for name in ("event", "topic", "seq", "error")}

    failed = await ended("nack", "no luck", on_exhausted="fail")
    assert failed == {"event": "failed", "topic": queue.name, "seq": 1, "error": "no luck"}
    dead = await ended("fail", "worse", dead_letter=f"{queue.name}.dead")
    assert dead == {"event": "dead_lettered", "topic": queue.name, "seq": 2, "error": "worse"}
    await Topic(queue.http, f"{queue.name}.log").put(type="log")
    assert (await ended("nack", "to a log", dead_letter=f"{queue.name}.log"))["event"] == "dead_lettered"


async def test_it_is_told_of_a_job_whose_last_lease_ends_in_silence(queue: Topic, receiver: Receiver) -> None:
    await queue.put(webhook={"url": receiver.url()}, max_deliveries=1, on_exhausted="fail")
    await queue.add(1)
    await queue.take(lease_ms=100)

    async def told() -> bool:
        await queue.claim()
        return bool(receiver.requests)

    await eventually(told)
    assert receiver.requests[0].body["event"] == "failed"


async def test_only_events_that_are_asked_for_are_told(queue: Topic, receiver: Receiver) -> None:
    await queue.put(webhook={"url": receiver.url(), "on": ["failed"]}, on_exhausted="fail", replayable=True)
    await queue.add(2)
    await complete_next(queue)
    await queue.take()
    await queue.fail("n", [2])
    [told] = await receiver.get()
    assert (told.body["event"], told.body["seq"]) == ("failed", 2)


@pytest.mark.parametrize("settings", [{}, {"replayable": True}, {"max_depth": 10}, {"durable": True}])
async def test_a_records_own_webhook_is_told_in_place_of_the_topics(
    queue: Topic, receiver: Receiver, settings: dict[str, object]
) -> None:
    await queue.put(webhook={"url": receiver.url("/topic"), "on": ["completed"], "secret": OWN}, **settings)
    await queue.append({"data": 1, "webhook": receiver.url("/one")}, {"data": 2}, {"data": 3, "key": "k"})
    await queue.append({"data": 4, "key": "k", "webhook": receiver.url("/keyed")})
    for url in (receiver.url("/first"), receiver.url("/second")):
        await queue.append({"data": 5, "dedupe_id": "d", "webhook": url})
    for _ in range(4):
        await complete_next(queue)
    told = {request.path: request for request in await receiver.get(4)}
    seqs = {path: one.body["seq"] for path, one in told.items()}
    assert seqs == {"/one": 1, "/topic": 2, "/keyed": 3, "/first": 4}, "a duplicate does not change who is told"
    assert all(one.is_signed_with(OWN.encode()) for one in told.values())


async def test_a_dead_letter_keeps_its_webhook_for_when_it_is_requeued(queue: Topic, receiver: Receiver) -> None:
    dead = Topic(queue.http, f"{queue.name}.dead")
    await queue.put(dead_letter=dead.name, max_deliveries=1)
    await queue.append({"data": 1, "webhook": receiver.url()}, {"data": 2, "webhook": receiver.url("/never")})
    for _ in range(2):
        job = await queue.take()
        await queue.nack("n", [job["$seq"]])
    assert [one.body["event"] for one in await receiver.get(2)] == ["dead_lettered"] * 2
    assert (await queue.http.post(f"{dead.path}/requeue", json={"seqs": [1]})).status_code == 202
    await queue.take()
    await complete_next(dead)
    await queue.ack("n", [1])
    told = (await receiver.get(3))[2]
    assert (told.path, told.body["event"], told.body["topic"]) == ("/hook", "completed", queue.name)


async def test_the_messages_dialect_has_both(http: httpx.AsyncClient, topic: str, receiver: Receiver) -> None:
    secret = base64.b64encode(b"thirty bytes or somewhat less.").decode()
    path = f"/api/topic-configs/{topic}"
    hook = {"url": receiver.url("/topic"), "secret": f"whsec_{secret}"}
    shown = (await http.put(path, json={"webhook": hook, "max_retries": 0})).json()["webhook"]
    assert shown["secret"].startswith("********")
    ids: list[str] = []
    for extra, verb in (({}, "ack"), ({"webhook": receiver.url("/message")}, "nack")):
        made = await http.post("/api/messages", json={"topic": topic, "payload": "1", **extra})
        ids.append(made.json()["id"])
        await http.post("/api/messages/dequeue", json={"topic": topic})
        assert (await http.post(f"/api/messages/{ids[-1]}/{verb}", json={})).is_success
        await receiver.get(len(ids))
    told = await receiver.get(2)
    assert [(one.path, one.body["event"], one.body["id"]) for one in told] == [
        ("/topic", "completed", ids[0]),
        ("/message", "failed", ids[1]),
    ]
    assert all(one.is_signed_with(b"thirty bytes or somewhat less.") for one in told)


async def test_jobs_that_are_deleted_are_not_told_of(queue: Topic, receiver: Receiver) -> None:
    await queue.put(webhook={"url": receiver.url()})
    await queue.append({"data": 1}, {"data": 2, "webhook": receiver.url()}, {"data": 3})
    accepted(await queue.http.post(f"{queue.path}/delete", json={"before_seq": 3}))
    await complete_next(queue)
    assert [one.body["seq"] for one in await receiver.get()] == [3]


async def test_a_job_that_is_cancelled_is_not_told_of_unless_its_holder_completes_it(
    queue: Topic, receiver: Receiver
) -> None:
    await queue.put(webhook={"url": receiver.url()}, on_exhausted="fail")
    await queue.add(3)
    assert [job["$seq"] for job in (await queue.claim(max=2))["claimed"]] == [1, 2]
    accepted(await queue.http.post(f"{queue.path}/cancel", json={"seqs": [1, 2, 3]}))
    await queue.fail("n", [1])
    await queue.ack("n", [2])
    [told] = await receiver.get()
    assert (told.body["event"], told.body["seq"]) == ("completed", 2)
    await queue.add(1)
    await complete_next(queue)
    assert [one.body["seq"] for one in await receiver.get(2)] == [2, 4]


@pytest.mark.parametrize("of_topic", [True, False])
async def test_a_job_that_hands_in_a_result_is_told_of_once(queue: Topic, receiver: Receiver, of_topic: bool) -> None:
    hook = {"url": receiver.url()}
    await queue.put(**({"webhook": hook} if of_topic else {}))
    await queue.append({"data": 1} if of_topic else {"data": 1, "webhook": receiver.url()})
    job = await queue.take()
    for _ in range(2):
        await queue.ack("n", [1], lease_ids=[job["lease_id"]], results=[{"a": 1}])
    await queue.append({"data": 2, "webhook": receiver.url()})
    await complete_next(queue)
    told = await receiver.get(2)
    assert sorted((one.body["event"], one.body["seq"]) for one in told) == [("completed", 1), ("completed", 2)]
    assert not any("result" in one.body for one in told), "who may see it asks for it"


async def test_a_job_of_a_schedule_has_the_webhook_of_its_record(queue: Topic, receiver: Receiver) -> None:
    path = f"/v0/schedules/s-{queue.name}"
    record = {"data": 1, "webhook": receiver.url()}
    accepted(await queue.http.put(path, json={"topic": queue.name, "cron": "0 0 1 1 *", "record": record}))
    accepted(await queue.http.post(f"{path}/run"))
    await complete_next(queue)
    [told] = await receiver.get()
    assert (told.path, told.body["event"]) == ("/hook", "completed")


@pytest.mark.parametrize(
    "url", ["ftp://x/", "x", "http://", "http://a b/", "http://u:p@x/", "http://x/#f", "http://\u00e9/"]
)
async def test_what_is_no_url_is_refused(queue: Topic, url: str) -> None:
    config = {"type": "queue", "webhook": {"url": url}}
    refused(await queue.http.put(queue.path, json=config), 400, "invalid_request")
    beside = {"records": [{"data": 1}], "config": config}
    refused(await queue.http.post(queue.path, json=beside), 400, "invalid_request")
    record = {"data": 1, "webhook": url}
    refused(await queue.http.post(queue.path, json={"records": [record]}), 400, "invalid_request")
