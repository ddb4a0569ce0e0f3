"""Records into a queue: each a job, all of them or none, and data byte for byte."""

from __future__ import annotations

import asyncio
import itertools
import json
import time
from datetime import UTC, datetime, timedelta, timezone

import httpx
import pytest

from tests.api.dialect import JSON, Body, Topic, eventually, refused


async def test_ten_thousand_records_are_one_batch(queue: Topic) -> None:
    answer = await queue.append(*({"data": {"i": i}} for i in range(10_000)))
    seqs = answer["seqs"]
    assert len(seqs) == answer["count"] == 10_000
    assert all(a < b for a, b in itertools.pairwise(seqs))
    assert (answer["first_seq"], answer["last_seq"], answer["head_seq"]) == (seqs[0], seqs[-1], seqs[-1])
    assert await queue.counts() == (10_000, 0)
    claimed = (await queue.claim(max=1000))["claimed"]
    assert [(job["$seq"], job["data"]["i"]) for job in claimed] == list(zip(seqs, range(1000), strict=False))


@pytest.mark.parametrize(("query", "shown"), [("false", False), ("true", True)])
async def test_seqs_are_left_out_on_demand(queue: Topic, query: str, shown: bool) -> None:
    answer = await queue.http.post(f"{queue.path}?return_seqs={query}", json={"records": [{"data": 1}, {"data": 2}]})
    assert answer.status_code == 200
    body = answer.json()
    assert ("seqs" in body) is shown
    assert (body["first_seq"], body["last_seq"], body["count"], body["created"], body["deduped"]) == (
        1,
        2,
        2,
        False,
        False,
    )


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


@pytest.mark.parametrize("data", VERBATIM, ids=lambda data: data[:20].decode(errors="replace"))
async def test_data_comes_back_byte_for_byte(queue: Topic, data: bytes) -> None:
    body = b'{"records":[{"data":  %b  ,"tag":"t"},{"data":2}]}' % data
    assert (await queue.http.post(queue.path, content=body, headers=JSON)).status_code == 200
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
    assert len(json.dumps(wide, separators=(",", ":"))) == 16 * 1024
    big = "x" * (1024 * 1024 - 2)
    await queue.append(
        {"data": 1, "tag": "ü" * 128, "node": "n" * 128, "meta": many}, {"data": 2, "meta": wide}, {"data": big}
    )
    jobs = (await queue.claim("ü" * 64, max=3))["claimed"]
    assert [jobs[0]["$tag"], jobs[0]["meta"], jobs[1]["meta"], jobs[2]["data"]] == ["ü" * 128, many, wide, big]


async def test_a_delayed_job_counts_in_neither_until_its_time_comes(queue: Topic) -> None:
    began = time.monotonic()
    await queue.append({"data": 1, "delay_ms": 700})
    assert await queue.counts() == (0, 0)
    assert (await queue.claim())["count"] == 0
    await queue.until_counts(1, 0)
    assert time.monotonic() - began >= 0.7
    assert (await queue.claim())["count"] == 1


def stamp(seconds: float, zone: timezone = UTC) -> str:
    return (datetime.now(UTC) + timedelta(seconds=seconds)).astimezone(zone).isoformat()


async def test_a_job_runs_at_its_time_in_whatever_zone(queue: Topic) -> None:
    east, west = timezone(timedelta(hours=5, minutes=45)), timezone(timedelta(hours=-11))
    await queue.append(
        {"data": "in an hour", "run_at": stamp(3600, east)},
        {"data": "an hour ago", "run_at": stamp(-3600, west)},
        {"data": "ages ago", "run_at": "0001-01-01T00:00:00Z"},
        {"data": "at the end of time", "run_at": "9999-12-31T23:59:59Z"},
        {"data": "soon", "run_at": stamp(1.0, west)},
    )
    now = (await queue.claim(max=10))["claimed"]
    assert [job["data"] for job in now] == ["an hour ago", "ages ago"]
    assert (await queue.take())["data"] == "soon"
    assert await queue.counts() == (0, 3)


async def test_the_later_of_delay_and_time_counts(queue: Topic) -> None:
    await queue.append({"data": 1, "run_at": stamp(-5), "delay_ms": 3_600_000})
    await queue.append({"data": 2, "run_at": stamp(3600), "delay_ms": 1})
    assert await queue.counts() == (0, 0)


async def test_the_higher_priority_goes_first(queue: Topic) -> None:
    given = [0, 9, 5, None, 9, 1]
    await queue.append(*({"data": i, "priority": priority} for i, priority in enumerate(given)))
    assert [(await queue.take())["data"] for _ in given] == [1, 4, 2, 5, 0, 3]


async def test_a_job_has_its_own_end_of_deliveries(queue: Topic) -> None:
    await queue.put(max_deliveries=1, on_exhausted="fail")
    await queue.append({"data": "topic's"}, {"data": "own", "max_deliveries": 3}, {"data": "none", "max_deliveries": 0})
    for expected in (["topic's", "own", "none"], ["own", "none"], ["own", "none"], ["none"], ["none"]):
        jobs = (await queue.claim(max=10))["claimed"]
        assert [job["data"] for job in jobs] == expected
        await queue.nack("n", [job["$seq"] for job in jobs])


async def test_a_job_is_hidden_the_moment_its_time_to_live_has_passed(queue: Topic) -> None:
    """No sweep runs within this test: the claim itself must tell."""
    began = time.monotonic()
    await queue.append({"data": "short", "ttl_ms": 300}, {"data": "unending", "ttl_ms": 0}, {"data": "long"})

    async def short_is_gone() -> bool:
        claimed = (await queue.claim(max=10))["claimed"]
        await queue.nack("n", [job["$seq"] for job in claimed])
        return [job["data"] for job in claimed] == ["unending", "long"]

    await eventually(short_is_gone)
    assert time.monotonic() - began >= 0.3
    assert await queue.counts() == (2, 0)


async def test_the_time_to_live_of_the_topic_is_a_default(queue: Topic) -> None:
    await queue.put(ttl_ms=300)
    await queue.append({"data": "topic's"}, {"data": "own", "ttl_ms": 3_600_000}, {"data": "none", "ttl_ms": 0})

    async def first_is_gone() -> bool:
        claimed = (await queue.claim(max=10))["claimed"]
        await queue.nack("n", [job["$seq"] for job in claimed])
        return [job["data"] for job in claimed] == ["own", "none"]

    await eventually(first_is_gone)


async def test_a_job_that_is_past_its_time_is_not_ready_before_anybody_claims(queue: Topic) -> None:
    await queue.append({"data": 1, "ttl_ms": 200}, {"data": 2})
    await queue.until_counts(1, 0)
    claimed = await queue.claim(max=10)
    assert ([job["data"] for job in claimed["claimed"]], claimed["ready"]) == ([2], 0)
    assert (await queue.state())["count"] == 1


async def test_a_lease_shields_its_job_from_the_end_of_its_time(queue: Topic) -> None:
    await queue.append({"data": 1, "ttl_ms": 200}, {"data": 2, "ttl_ms": 200})
    held = await queue.take()

    async def other_is_gone() -> bool:
        claimed = await queue.claim()
        await queue.nack("n", [job["$seq"] for job in claimed["claimed"]])
        return (claimed["count"], claimed["ready"]) == (0, 0)

    await eventually(other_is_gone)
    assert (await queue.ack("n", [held["$seq"]]))["acked"] == 1


async def test_a_write_creates_the_queue_that_it_describes(http: httpx.AsyncClient, topic: str) -> None:
    queue = Topic(http, topic)
    body: Body = {"records": [{"data": 1}], "config": {"type": "queue", "lease_ms": 5_000, "durable": True}}
    made = await http.post(queue.path, json=body)
    assert made.status_code == 201
    assert made.json()["created"] is True
    assert made.json()["seqs"] == [1]
    config = (await queue.state())["config"]
    assert (config["type"], config["lease_ms"], config["durable"]) == ("queue", 5_000, True)

    body["config"]["lease_ms"] = 9_000  # counts only for a write that creates
    again = await http.post(queue.path, json=body)
    assert again.status_code == 200
    assert again.json()["created"] is False
    assert (await queue.state())["config"]["lease_ms"] == 5_000


@pytest.mark.parametrize(
    "more",
    [{"create": False}, {"create": False, "config": {"type": "queue"}}, {"config": {"auto_create": False}}],
    ids=["no", "no, but how", "not by itself"],
)
async def test_a_write_that_is_not_to_create_creates_nothing(
    http: httpx.AsyncClient, topic: str, more: dict[str, object]
) -> None:
    refused(await http.post(f"/v0/topics/{topic}", json={"records": [{"data": 1}], **more}), 404, "topic_not_found")
    refused(await http.get(f"/v0/topics/{topic}"), 404, "topic_not_found")


async def test_a_write_creates_nothing_when_its_records_are_refused(http: httpx.AsyncClient, topic: str) -> None:
    for config in ({"type": "queue"}, {"type": "queue", "dead_letter": topic}):
        body = {"records": [{"data": 1}, {"data": 2, "tag": "x" * 257}], "config": config}
        refused(await http.post(f"/v0/topics/{topic}", json=body), 400, "invalid_request")
    body = {"records": [{"data": 1}], "config": {"type": "queue", "dead_letter": topic}}
    refused(await http.post(f"/v0/topics/{topic}", json=body), 400, "invalid_request")
    refused(await http.get(f"/v0/topics/{topic}"), 404, "topic_not_found")


async def test_the_times_of_a_durable_write_are_told(queue: Topic) -> None:
    await queue.put(durable=True)
    answer = await queue.append({"data": 1})
    assert answer["performance"]["fsync_ms"] > 0
    assert answer["performance"]["server_total_ms"] >= answer["performance"]["fsync_ms"]
    await queue.put(durable=False)
    assert "fsync_ms" not in (await queue.append({"data": 1}))["performance"]


async def test_a_record_with_a_key_updates_the_job_that_waits(queue: Topic) -> None:
    first = await queue.append({"data": 1, "key": "a"}, {"data": 2}, {"data": 3, "key": "b"})
    assert first["seqs"] == [1, 2, 3]
    again = await queue.append({"data": 4, "key": "a", "meta": {"n": 1}}, {"data": 5, "key": "a"})
    assert (again["seqs"], again["first_seq"], again["last_seq"], again["head_seq"], again["count"]) == (
        [1, 1],
        1,
        1,
        3,
        2,
    )
    claimed = (await queue.claim(max=10))["claimed"]
    assert [(job["$seq"], job["data"], job.get("key")) for job in claimed] == [(1, 5, "a"), (2, 2, None), (3, 3, "b")]
    assert (await queue.append({"data": 6, "key": "a"}, {"data": 7}))["seqs"] == [4, 5]
    assert (await queue.nack("n", [1]))["nacked"] == 1  # a newer one waits
    assert [job["$seq"] for job in (await queue.claim(max=10))["claimed"]] == [4, 5]


async def test_a_batch_with_keys_is_written_once(queue: Topic) -> None:
    for deduped in (False, True):
        answer = await queue.append({"data": 1, "key": "b"}, {"data": 2, "key": "a"}, idempotency_key="once")
        assert (answer["seqs"], answer["deduped"], answer["head_seq"]) == ([1, 2], deduped, 2)


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
    await queue.append({"data": 0})
    firsts = [await queue.append({"data": i}, idempotency_key=f"k{i}") for i in range(5)]
    assert [first["head_seq"] for first in firsts] == [2, 3, 4, 5, 6]
    keys = [key for i in range(5) for key in (f"k{i}", f"new{i}")]
    answers = await asyncio.gather(*(queue.append({"data": 9}, idempotency_key=key) for key in keys))
    assert [answer["head_seq"] for answer in answers[::2]] == [2, 3, 4, 5, 6]
    assert all(answer["head_seq"] >= answer["last_seq"] > 6 for answer in answers[1::2])


@pytest.mark.parametrize("key", [5, "", "a\0", "x" * 257])
async def test_what_is_no_key_is_refused(queue: Topic, key: object) -> None:
    answer = await queue.http.post(queue.path, json={"records": [{"data": 1, "key": key}]})
    refused(answer, 400, "invalid_request")
    assert (await queue.append({"data": 1, "key": "\U0001f680" * 256}))["seqs"] == [1]
