"""Records into a queue: each a job, all of them or none, and data byte for byte."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from datetime import UTC, datetime, timedelta, timezone

import httpx

from tests.api.dialect import JSON, Body, Topic, accepted, refused


async def test_ten_thousand_records_are_one_batch(queue: Topic) -> None:
    answer = await queue.append(*({"data": {"i": i}} for i in range(10_000)))
    seqs = answer["seqs"]
    assert len(seqs) == answer["count"] == 10_000
    assert all(a < b for a, b in itertools.pairwise(seqs))
    assert (answer["first_seq"], answer["last_seq"], answer["head_seq"]) == (seqs[0], seqs[-1], seqs[-1])
    assert await queue.counts() == (10_000, 0)
    claimed = (await queue.claim(max=1000))["claimed"]
    assert [(job["$seq"], job["data"]["i"]) for job in claimed] == list(zip(seqs, range(1000), strict=False))


async def test_seqs_are_left_out_on_demand(queue: Topic) -> None:
    for query, first in (("false", 1), ("true", 3)):
        body = {"records": [{"data": 1}, {"data": 2}]}
        told = accepted(await queue.http.post(f"{queue.path}?return_seqs={query}", json=body))
        assert ("seqs" in told) is (query == "true")
        assert (told["first_seq"], told["last_seq"], told["count"]) == (first, first + 1, 2)
        assert (told["created"], told["deduped"]) == (False, False)


VERBATIM = [
    b"null",
    b"true",
    b'""',
    b"0",
    b"-0",
    b"-0.0",
    b"1.0",
    b"1e400",
    b"1E-5",
    b"0.1000000000000000055511151231257827",
    b"123456789012345678901234567890123456789012345678901234567890",
    b"18446744073709551616",
    b"[ ]",
    b"{ }",
    b'{"b" : 1,\n\t"a":[ 1 ,2 ],  "b":2}',
    '"ünï¢öde \U0001f680 \u2028"'.encode(),
    rb'"\u00fc\ud83d\ude80\/\b\\u0000"',
    b'"' + b"x" * 100_000 + b'"',
    b"[" * 100 + b"]" * 100,
    b'"data: x\\n\\nevent: error"',
    b'"\\u007f\x7f"',
]


async def test_data_comes_back_byte_for_byte(queue: Topic) -> None:
    records = b",".join(b'{"data":  %b  ,"tag":"t"}' % data for data in VERBATIM)
    accepted(await queue.http.post(queue.path, content=b'{"records":[%b]}' % records, headers=JSON))
    for data in VERBATIM:
        answer = await queue.http.post(f"{queue.path}/claim", json={"node": "n"})
        assert b'"data":%b,"order":1}' % data in answer.content
        json.loads(answer.content)


async def test_tags_and_meta_come_back_and_are_absent_when_they_were(queue: Topic) -> None:
    meta = {"trace": "z9", "n": 1, "nested": {"ü": [None, True, 1.5]}, "": ""}
    await queue.append({"data": 1, "tag": "täg", "meta": meta}, {"data": 2, "meta": {}}, {"data": 3, "meta": None})
    first, second, third = (await queue.claim(max=3))["claimed"]
    assert (first["$tag"], first["meta"]) == ("täg", meta)
    assert second.get("meta", {}) == {}
    assert "meta" not in third
    assert "$tag" not in second
    assert not {"$node", "node"} & set(first)


async def test_limits_of_a_record_are_themselves_allowed(queue: Topic) -> None:
    many = {f"k{i}": i for i in range(64)}
    wide = {"k": "x" * (16 * 1024 - 8)}
    big = "x" * (1024 * 1024 - 2)
    await queue.append(
        {"data": 1, "tag": "ü" * 128, "node": "n" * 128, "meta": many}, {"data": 2, "meta": wide}, {"data": big}
    )
    jobs = (await queue.claim("ü" * 64, max=3))["claimed"]
    assert [jobs[0]["$tag"], jobs[0]["meta"], jobs[1]["meta"], jobs[2]["data"]] == ["ü" * 128, many, wide, big]


def stamp(seconds: float, zone: timezone = UTC) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).astimezone(zone).isoformat()


async def test_a_job_runs_at_its_time_in_whatever_zone(queue: Topic) -> None:
    east, west = timezone(timedelta(hours=5, minutes=45)), timezone(timedelta(hours=-11))
    began = time.monotonic()
    await queue.append(
        {"data": "in an hour", "run_at": stamp(3600, east)},
        {"data": "an hour ago", "run_at": stamp(-3600, west)},
        {"data": "ages ago", "run_at": "0001-01-01T00:00:00Z"},
        {"data": "at the end of time", "run_at": "9999-12-31T23:59:59Z"},
        {"data": "soon", "run_at": stamp(1.0, west), "delay_ms": 1_000},
        # The later of both counts.
        {"data": "delayed", "run_at": stamp(-5), "delay_ms": 3_600_000},
        {"data": "also", "run_at": stamp(3600), "delay_ms": 1},
    )
    now = (await queue.claim(max=10))["claimed"]
    assert [job["data"] for job in now] == ["an hour ago", "ages ago"]
    assert (await queue.take())["data"] == "soon"
    assert time.monotonic() - began >= 1
    assert await queue.counts() == (0, 3)


async def test_a_job_is_hidden_the_moment_its_time_to_live_has_passed_but_under_a_lease(queue: Topic) -> None:
    """No sweep runs within this test: the claim itself must tell. The topic's time is a default."""
    await queue.put(ttl_ms=1_500)
    began = time.monotonic()
    await queue.append(
        {"data": "held"},
        {"data": "topic's"},
        {"data": "own", "ttl_ms": 3_600_000},
        {"data": "short", "ttl_ms": 500},
        {"data": "unending", "ttl_ms": 0},
    )
    held = await queue.take("holder")
    assert held["data"] == "held"
    await queue.until_counts(2, 1)
    assert time.monotonic() - began >= 1.5
    answer = await queue.claim(max=10)
    assert ([job["data"] for job in answer["claimed"]], answer["ready"]) == (["own", "unending"], 0)
    assert (await queue.state())["count"] == 3
    assert (await queue.ack("holder", [held["$seq"]]))["acked"] == 1


async def test_a_write_creates_the_queue_that_it_describes(http: httpx.AsyncClient, topic: str) -> None:
    queue = Topic(http, topic)
    body: Body = {"records": [{"data": 1}], "config": {"type": "queue", "lease_ms": 5_000, "durable": True}}
    for status in (201, 200):
        answer = await http.post(queue.path, json=body)
        assert (answer.status_code, answer.json()["created"]) == (status, status == 201)
        config = (await queue.state())["config"]
        assert (config["type"], config["lease_ms"], config["durable"]) == ("queue", 5_000, True)
        body["config"]["lease_ms"] = 9_000  # counts only for a write that creates


async def test_a_write_that_is_refused_or_not_to_create_creates_nothing(http: httpx.AsyncClient, topic: str) -> None:
    path, one = f"/v0/topics/{topic}", {"records": [{"data": 1}]}
    for more in ({"create": False}, {"create": False, "config": {"type": "queue"}}, {"config": {"auto_create": False}}):
        refused(await http.post(path, json=one | more), 404, "topic_not_found")
    bad = {"records": [{"data": 1}, {"data": 2, "tag": "x" * 257}]}
    itself = {"config": {"type": "queue", "dead_letter": topic}}
    for body in (bad | {"config": {"type": "queue"}}, bad | itself, one | itself):
        refused(await http.post(path, json=body), 400, "invalid_request")
    refused(await http.get(path), 404, "topic_not_found")


async def test_the_times_of_a_durable_write_are_told(queue: Topic) -> None:
    await queue.put(durable=True)
    told = (await queue.append({"data": 1}))["performance"]
    assert told["server_total_ms"] >= told["fsync_ms"] > 0
    await queue.put(durable=False)
    assert "fsync_ms" not in (await queue.append({"data": 1}))["performance"]


async def test_a_record_with_a_key_updates_the_job_that_waits(queue: Topic) -> None:
    first = await queue.append({"data": 1, "key": "a"}, {"data": 2}, {"data": 3, "key": "b"})
    assert first["seqs"] == [1, 2, 3]
    again = await queue.append({"data": 4, "key": "a", "meta": {"n": 1}}, {"data": 5, "key": "a"})
    assert (again["seqs"], again["first_seq"], again["last_seq"]) == ([1, 1], 1, 1)
    assert (again["head_seq"], again["count"]) == (3, 2)
    claimed = (await queue.claim(max=10))["claimed"]
    assert [(job["$seq"], job["data"], job.get("key")) for job in claimed] == [(1, 5, "a"), (2, 2, None), (3, 3, "b")]
    assert (await queue.append({"data": 6, "key": "a"}, {"data": 7}))["seqs"] == [4, 5]
    assert (await queue.nack("n", [1]))["nacked"] == 1  # a newer one waits
    assert [job["$seq"] for job in (await queue.claim(max=10))["claimed"]] == [4, 5]


async def test_a_repeated_batch_answers_the_head_that_the_first_did(queue: Topic) -> None:
    await queue.append({"data": 1, "key": "a"}, {"data": 2})
    only_updates = {"data": 3, "key": "a"}
    first = await queue.append(only_updates, idempotency_key="once")
    assert (first["seqs"], first["head_seq"]) == ([1], 2), "the topic's, not the updated job's"
    await queue.append({"data": 4})
    again = await queue.append(only_updates, idempotency_key="once")
    assert (again["seqs"], again["head_seq"], again["deduped"]) == ([1], 2, True)
    other = await queue.append(only_updates, idempotency_key="another")
    assert (other["seqs"], other["head_seq"]) == ([1], 3), "what others have drawn since"


async def test_heads_of_callers_that_share_a_statement_are_their_own(queue: Topic) -> None:
    """Repeated batches and new ones at once: each answers its own head, whichever of them are written together."""
    firsts = [await queue.append({"data": i}, idempotency_key=f"k{i}") for i in range(5)]
    assert [first["head_seq"] for first in firsts] == [1, 2, 3, 4, 5]
    keys = [key for i in range(5) for key in (f"k{i}", f"new{i}")]
    answers = await asyncio.gather(*(queue.append({"data": 9}, idempotency_key=key) for key in keys))
    assert [answer["head_seq"] for answer in answers[::2]] == [1, 2, 3, 4, 5]
    assert all(answer["head_seq"] >= answer["last_seq"] > 5 for answer in answers[1::2])
