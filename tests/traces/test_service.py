"""From an enqueue to an ack: what a collector is told of it."""

from __future__ import annotations

import json
from typing import Any

import httpx
import pytest

from tests.api.dialect import Topic, accepted, refused
from tests.traces.collector import Collector

PARENT = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01"
PARENT_IDS = (PARENT[3:35], PARENT[36:52])
SECRET = "what-the-job-is-about"


@pytest.fixture
async def queue(asked: httpx.AsyncClient, topic: str) -> Topic:
    made = Topic(asked, topic)
    await made.put()
    return made


async def enqueue(queue: Topic, *records: dict[str, Any], **headers: str) -> None:
    """Put records in, of which one is secret where none are given, in a request with these headers."""
    body = {"records": records or ({"data": SECRET},)}
    accepted(await queue.http.post(queue.path, json=body, headers=headers))


async def settle(queue: Topic, verb: str, job: dict[str, Any], **headers: str) -> None:
    body = {"node": "n", "seqs": [job["$seq"]], "lease_ids": [job["lease_id"]]}
    accepted(await queue.http.post(f"{queue.path}/{verb}", json=body, headers=headers))


def carried(meta: dict[str, Any]) -> tuple[str, str]:
    """The trace and the span that metadata name."""
    _, of, span, flags = meta["traceparent"].split("-")
    assert int(flags, 16) & 1, "sampled"
    return of, span


async def test_a_job_is_seen_from_its_enqueue_to_its_ack(queue: Topic, collector: Collector, topic: str) -> None:
    await enqueue(queue, {"data": SECRET, "tenant": "acme"}, traceparent=PARENT, tracestate="a=b")
    job = await queue.take()
    work = "00-11111111111111111111111111111111-2222222222222222-01"
    await settle(queue, "ack", job, traceparent=work)

    [sent] = await collector.named(f"send {topic}")
    [received] = await collector.named(f"receive {topic}")
    [settled] = await collector.named(f"settle {topic}")
    assert (sent.trace, sent.parent) == PARENT_IDS, "its producer's trace goes on"
    assert (carried(job["meta"]), job["meta"]["tracestate"]) == (sent.ids, "a=b")
    assert (received.links, received.parent) == ([sent.ids], ""), "a link, and no child"
    assert received.trace != sent.trace
    assert (settled.trace, settled.parent) == (work[3:35], work[36:52])
    assert {span.kind for span in (sent, received, settled)} == {"SERVER"}
    known: dict[str, Any] = {"messaging.system": "holdfast", "messaging.destination.name": topic}
    known["messaging.message.id"] = str(job["$seq"])
    known["messaging.batch.message_count"] = 1
    for span, kind, verb in (sent, "send", "enqueue"), (received, "receive", "claim"), (settled, "settle", "ack"):
        assert (
            span.about.items() >= (known | {"messaging.operation.type": kind, "messaging.operation.name": verb}).items()
        )
        assert not span.failed
    assert (sent.about["holdfast.tenant"], received.about["holdfast.tenant"]) == ("acme", "acme")
    assert settled.about["holdfast.settled_count"] == 1
    assert sent.resource["service.name"] == "holdfast"
    assert not any(SECRET.encode() in body for body in collector.bodies), "never what is in a job"


async def test_a_job_that_comes_again_links_to_the_same(queue: Topic, collector: Collector, topic: str) -> None:
    dead = Topic(queue.http, f"{topic}-dead")
    await dead.put()
    await queue.put(max_deliveries=2, dead_letter=dead.name)
    await enqueue(queue, {"data": 1, "meta": {"traceparent": PARENT, "b": 2}})
    for _ in range(2):
        await settle(queue, "nack", await queue.take())
    job = await dead.take()
    assert job["meta"].items() >= {"traceparent": PARENT, "b": 2, "$dead_letter_from": topic}.items()
    received = [*await collector.named(f"receive {topic}", 2), *await collector.named(f"receive {dead.name}")]
    assert [span.links for span in received] == [[PARENT_IDS]] * 3
    assert len({span.trace for span in received} | {PARENT_IDS[0]}) == 4, "each is a trace of its own"


async def test_links_are_bounded_and_each_is_there_once(queue: Topic, collector: Collector, topic: str) -> None:
    parents = [f"00-{1 + i // 2:032x}-{1:016x}-01" for i in range(400)]
    await enqueue(queue, *({"data": i, "meta": {"traceparent": one}} for i, one in enumerate(parents)))
    assert (await queue.claim(max=400))["count"] == 400
    [received] = await collector.named(f"receive {topic}")
    assert received.links == [(f"{1 + i:032x}", f"{1:016x}") for i in range(128)]
    assert received.about["messaging.batch.message_count"] == 400


async def test_what_is_malformed_is_as_good_as_none(queue: Topic, collector: Collector, topic: str) -> None:
    """W3C Trace Context: an invalid traceparent is ignored, and its tracestate with it."""
    bad = [PARENT.upper(), "ff" + PARENT[2:], f"{PARENT}-more", PARENT.replace(PARENT_IDS[0], "0" * 32), "x" * 9_000]
    for one in bad:
        await enqueue(queue, traceparent=one, tracestate="a=b")
    twice = httpx.Headers([("traceparent", PARENT), ("traceparent", PARENT.replace("00f0", "00f1"))])
    accepted(await queue.http.post(queue.path, json={"records": [{"data": 1}]}, headers=twice))
    sent = await collector.named(f"send {topic}", 6)
    assert [span.parent for span in sent] == [""] * 6
    jobs = (await queue.claim(max=6))["claimed"]
    assert [carried(job["meta"]) for job in jobs] == [span.ids for span in sent]
    assert [list(job["meta"]) for job in jobs] == [["traceparent"]] * 6

    mine = [{"data": 1, "meta": {"traceparent": one}} for one in (*bad, 7, None, ["a"])]
    await enqueue(queue, *mine)
    jobs = (await queue.claim(max=8))["claimed"]
    assert [job["meta"] for job in jobs] == [record["meta"] for record in mine], "it is left as it is"
    assert (await collector.named(f"receive {topic}", 2))[1].links == []


async def test_an_error_has_a_span_and_logs_lists_and_claims_that_find_nothing_have_none(
    queue: Topic, collector: Collector, topic: str
) -> None:
    log = Topic(queue.http, f"{topic}.log")
    await log.put(type="log")
    await enqueue(log)
    await queue.put(cap_records=1, discard="reject")
    assert (await queue.claim())["claimed"] == []
    await enqueue(queue)
    await queue.state()
    refused(await queue.http.post(queue.path, json={"records": [{"data": SECRET}]}), 422, "topic_full")
    sent = await collector.named(f"send {topic}", 2)  # and by then the others would be here, too
    assert [(span.failed, span.about.get("error.type")) for span in sent] == [(False, None), (True, "topic_full")]
    assert [span.name for span in collector.spans if topic in span.name] == [f"send {topic}"] * 2


async def test_the_other_dialect_and_the_stream_are_traced_alike(
    asked: httpx.AsyncClient, collector: Collector, topic: str
) -> None:
    headers = {"traceparent": PARENT}
    body = {"topic": topic, "messages": [{"payload": SECRET, "metadata": {"a": "b"}}, {"payload": SECRET}]}
    ids = (await asked.post("/api/messages/batch", json=body, headers=headers)).raise_for_status().json()["ids"]
    taken = await asked.post("/api/messages/dequeue", json={"topic": topic, "count": 1})
    [message] = taken.raise_for_status().json()["messages"]
    (await asked.post(f"/api/messages/{message['id']}/ack", json={})).raise_for_status()
    assert message["id"] == ids[0]
    [sent] = await collector.named(f"send {topic}")
    assert (message["metadata"]["a"], carried(message["metadata"])) == ("b", sent.ids)
    assert ((sent.trace, sent.parent), sent.about["messaging.batch.message_count"]) == (PARENT_IDS, 2)
    assert (await collector.named(f"receive {topic}"))[0].links == [sent.ids]
    assert (await collector.named(f"settle {topic}"))[0].about["messaging.message.id"] == "1"

    async with asked.stream("GET", f"/v0/topics/{topic}/work?node=w") as stream:
        lines = stream.aiter_lines()  # held, as the stream ends with it
        async for line in lines:
            if line.startswith("data: "):
                break
        job = json.loads(line.removeprefix("data: "))
        pushed = (await collector.named(f"receive {topic}", 2))[1]  # while the stream is open
    assert carried(job["meta"]) == sent.ids
    assert (pushed.links, pushed.seconds < 5) == ([sent.ids], True)


@pytest.mark.parametrize("public", [False, True])
async def test_what_comes_in_by_http_is_traced(queue: Topic, collector: Collector, topic: str, public: bool) -> None:
    await queue.put(ingest="public" if public else None)
    answer = await queue.http.post(f"/in/{topic}?x=1", json={"a": SECRET}, headers={"traceparent": PARENT})
    answer.raise_for_status()
    [sent] = await collector.named(f"send {topic}")
    job = await queue.take()
    assert (sent.parent, carried(job["meta"]), job["meta"]["params"]) == (PARENT_IDS[1], sent.ids, {"x": "1"})
