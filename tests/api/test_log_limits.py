"""What a log keeps: caps, age, deletion, and idempotency keys; and what a reader is told of what it missed."""

from __future__ import annotations

import asyncio
from collections import Counter

import httpx
import pytest

from tests.api.dialect import Body, Topic, accepted, eventually, refused
from tests.api.test_logs import data, log

__all__ = ["log"]


async def extent(log: Topic) -> tuple[int, int, int, int]:
    """earliest_seq, head_seq, count, bytes."""
    state = await log.state()
    return state["earliest_seq"], state["head_seq"], state["count"], state["bytes"]


async def test_a_cap_of_bytes_is_exact(log: Topic) -> None:
    await log.put(type="log", cap_bytes=100)
    for i in range(1, 12):
        await log.append({"data": "x" * 18})  # 20 bytes
        assert (await log.state())["bytes"] == min(20 * i, 100)
    await log.append({"data": "y" * 48, "meta": {"a": 1}})  # 57 bytes
    assert await extent(log) == (10, 12, 3, 97)


async def test_a_cap_of_records_is_exact(log: Topic) -> None:
    await log.put(type="log", cap_records=3)
    for i in range(5):
        await log.append({"data": i})
        assert (await log.state())["count"] == min(i + 1, 3)
    assert await extent(log) == (3, 5, 3, 3)
    answer = await log.append(*({"data": i} for i in range(10)))
    assert answer["seqs"] == list(range(6, 16))
    read = await log.post("diff")
    assert data(read) == [7, 8, 9]
    assert read["tombstone"] == {
        "gap_from": 1,
        "gap_to": 12,
        "reason": "cap",
        "missed_estimate": 12,
        "earliest_seq": 13,
        "head_seq": 15,
    }
    told = {at: (await log.post("diff", from_seq=at))["tombstone"] is not None for at in range(10, 16)}
    assert told == {10: True, 11: True, 12: False, 13: False, 14: False, 15: False}, "who missed something"


async def test_a_full_log_that_refuses_takes_nothing(log: Topic) -> None:
    await log.put(type="log", cap_records=3, discard="reject")
    await log.append({"data": 1}, {"data": 2})
    answer = await log.http.post(log.path, json={"records": [{"data": 3}, {"data": 4}], "idempotency_key": "k"})
    detail = refused(answer, 422, "topic_full")["detail"]
    assert detail == {"cap_records": 3, "cap_bytes": 0, "head_seq": 2, "earliest_seq": 1}
    assert await extent(log) == (1, 2, 2, 2)
    await log.post("delete", before_seq=2)
    assert (await log.append({"data": 3}, {"data": 4}, idempotency_key="k"))["seqs"] == [3, 4]


@pytest.mark.parametrize("extra", [{}, {"idempotency_key": "k"}, {"key": "k"}], ids=["plain", "once", "keyed"])
async def test_a_full_queue_that_refuses_says_as_much(http: httpx.AsyncClient, topic: str, extra: Body) -> None:
    queue = Topic(http, topic)
    await queue.put(cap_records=2, discard="reject")
    await queue.add(2)
    await queue.ack("n", [(await queue.take("n"))["$seq"]])
    await queue.add(1)
    record = {"data": 1} | ({"key": "k"} if "key" in extra else {})
    body = {"records": [record]} | ({} if "key" in extra else extra)
    detail = refused(await http.post(queue.path, json=body), 422, "topic_full")["detail"]
    assert detail.pop("head_seq") >= 3  # one that was refused may have drawn a seq
    assert detail == {"cap_records": 2, "cap_bytes": 0, "earliest_seq": 2}


@pytest.mark.parametrize("kind", ["log", "queue"])
@pytest.mark.parametrize(("settings", "records"), [({"cap_records": 2}, 3), ({"cap_bytes": 5}, 6)])
async def test_a_batch_that_can_never_fit_is_refused_as_too_large(
    log: Topic, kind: str, settings: Body, records: int
) -> None:
    topic = Topic(log.http, f"{log.name}.other")
    await topic.put(type=kind, discard="reject", **settings)
    body = {"records": [{"data": 1}] * records}
    refused(await topic.http.post(topic.path, json=body), 400, "record_too_large")
    assert (await topic.append(*body["records"][1:]))["count"] == records - 1


async def test_of_many_at_once_a_full_log_takes_what_fits(log: Topic) -> None:
    await log.put(type="log", cap_records=10, discard="reject")
    answers = await asyncio.gather(
        *(log.http.post(log.path, json={"records": [{"data": i}, {"data": i}]}) for i in range(20))
    )
    taken = [i for i, answer in enumerate(answers) if answer.status_code == 200]
    assert len(taken) == 5
    assert {answer.status_code for answer in answers} == {200, 422}
    assert sorted(seq for i in taken for seq in accepted(answers[i])["seqs"]) == list(range(1, 11))
    read = await log.post("diff")
    assert Counter(data(read)) == dict.fromkeys(taken, 2)
    for i in taken:
        first, last = accepted(answers[i])["seqs"]
        assert data(read)[first - 1] == data(read)[last - 1] == i


async def test_age_hides_a_record_at_once_and_says_so(log: Topic) -> None:
    await log.put(type="log", ttl_ms=1_000)
    await log.append({"data": 1}, {"data": 2})

    async def hidden() -> Body | None:
        read = await log.post("diff")
        return None if read["records"] else read

    read = await eventually(hidden)
    assert read is not None
    assert (read["tombstone"]["reason"], read["tombstone"]["gap_to"], read["earliest_seq"]) == ("ttl", 2, 3)
    assert (read["next_from_seq"], read["caught_up"]) == (2, True)
    accepted(await log.http.delete(f"{log.path}?if_empty=true"))


async def test_what_was_deleted_is_not_told_as_lost_to_age(log: Topic) -> None:
    """And what was too old already is not deleted, before any sweep or append has taken it out."""
    await log.put(type="log", ttl_ms=2_000)
    await log.append({"data": 1, "tag": "y"}, {"data": 2, "tag": "x"})
    assert (await log.post("delete", match="x"))["deleted"] == 1

    async def too_old() -> bool:
        return bool((await log.state())["count"] == 0)

    await eventually(too_old)
    for how in ({"before_seq": 3}, {"match": "y"}):
        assert (await log.post("delete", **how))["deleted"] == 0
    lost = (await log.post("diff"))["tombstone"]
    assert (lost["reason"], lost["gap_from"], lost["gap_to"]) == ("ttl", 1, 1)
    assert (await log.post("diff", from_seq=1))["tombstone"] is None
    await log.put(type="log", ttl_ms=2_000, cap_records=1, discard="reject")
    await log.append({"data": 3})  # a full log makes room of what is too old


async def test_a_gap_of_both_kinds_is_mixed(log: Topic) -> None:
    await log.put(type="log", cap_records=2)
    await log.append(*({"data": i} for i in range(3)))
    await log.put(type="log", cap_records=2, ttl_ms=200)

    async def reason() -> bool:
        lost = (await log.post("diff"))["tombstone"]
        return bool(lost and lost["reason"] == "mixed")

    await eventually(reason)
    assert (await log.post("diff", from_seq=1))["tombstone"]["reason"] == "ttl"


async def test_what_is_deleted_leaves_no_trace(log: Topic) -> None:
    await log.append(*({"data": i} for i in range(10)))
    answer = await log.post("delete", before_seq=4)
    assert (answer["deleted"], answer["earliest_seq"], answer["head_seq"]) == (3, 4, 10)
    assert (answer["count"], answer["bytes"]) == (7, 7)
    read = await log.post("diff")
    assert (data(read), read["tombstone"], read["earliest_seq"]) == ([3, 4, 5, 6, 7, 8, 9], None, 4)
    assert (await log.post("delete", before_seq=4))["deleted"] == 0
    assert (await log.post("delete", before_seq=10**12))["deleted"] == 7
    assert await extent(log) == (11, 10, 0, 0)
    read = await log.post("diff")
    assert (read["records"], read["caught_up"], read["tombstone"]) == ([], True, None)
    assert (await log.append({"data": 1}))["seqs"] == [11]


@pytest.mark.parametrize(
    ("match", "left"),
    [
        (["tag", "Eq", "a"], [1, 2, 3, 4]),
        ("a", [1, 2, 3, 4]),
        (["tag", "Glob", "a*"], [2, 3, 4]),
        ("a*", [2, 3, 4]),
        (["tag", "Eq", "b*"], [0, 1, 2, 3]),
        ("*", [3]),
        ("é*", [0, 1, 3, 4]),
        ("none", [0, 1, 2, 3, 4]),
    ],
)
async def test_tags_say_what_is_deleted(log: Topic, match: object, left: list[int]) -> None:
    for i, tag in enumerate(["a", "ab", "éa", None, "b*"]):
        await log.append({"data": i, "tag": tag})
    answer = await log.post("delete", match=match)
    assert (answer["deleted"], answer["count"]) == (5 - len(left), len(left))
    assert data(await log.post("diff")) == left
    await log.append({"data": "later", "tag": "a"})  # a deletion is of a moment
    assert data(await log.post("diff"))[-1] == "later"
    await log.append({"data": "last", "tag": "a"})
    both = await log.post("delete", match="a", before_seq=7)
    assert both["deleted"] == (2 if 0 in left else 1), "both count together"


async def test_a_large_deletion_goes_on_in_batches_and_its_hole_is_passed(log: Topic) -> None:
    await log.append(*({"data": i, "tag": f"t:{i % 7}" if 0 < i < 9_000 else None} for i in range(9_001)))
    await log.append(*({"data": i, "tag": "t:x"} for i in range(4_000)), {"data": "last"})
    answer = await log.post("delete", match="t:*")
    assert (answer["deleted"], answer["count"], answer["earliest_seq"]) == (12_999, 3, 1)
    seen, at = [], 0
    while True:
        read = await log.post("diff", from_seq=at)
        seen += data(read)
        assert read["next_from_seq"] > at
        at = read["next_from_seq"]
        if read["caught_up"]:
            break
    assert seen == [0, 9_000, "last"]
    assert (await log.post("delete", before_seq=9_001))["count"] == 2


async def test_on_a_queue_deletion_cancels_what_waits(queue: Topic) -> None:
    await queue.append(
        *({"data": i, "tag": f"order-{i}"} for i in range(5)), {"data": 5, "tag": "order-5", "delay_ms": 60_000}
    )
    leased = await queue.take()
    answer = await queue.post("delete", match="order-*")
    assert (answer["deleted"], answer["marked"], answer["count"], answer["head_seq"]) == (5, 1, 1, 6)
    assert await queue.counts() == (0, 1)
    assert (await queue.ack("n", [leased["$seq"]]))["acked"] == 1
    await queue.append({"data": 6}, {"data": 7})
    assert (await queue.post("delete", before_seq=8))["deleted"] == 1
    assert (await queue.take())["data"] == 7


async def test_on_a_queue_deletion_marks_what_is_leased_as_a_cancel_does(queue: Topic) -> None:
    await queue.append({"data": 1, "tag": "x"}, {"data": 2, "tag": "other"})
    await queue.claim(max=2, lease_ms=3_600_000)
    answer = await queue.post("delete", match="x*")
    assert (answer["deleted"], answer["marked"], answer["count"]) == (0, 1, 2)
    for how in ({"before_seq": 2}, {"match": "x"}, {"match": "x*"}):
        assert (await queue.post("delete", **how))["marked"] == 0  # once
    assert (await queue.extend("n", [1, 2], 60_000))["cancelled"] == [1]
    assert (await queue.nack("n", [1, 2]))["nacked"] == 2
    assert [job["$seq"] for job in (await queue.claim(max=2))["claimed"]] == [2]


@pytest.mark.parametrize("kind", ["log", "queue"])
async def test_a_key_makes_a_repetition_harmless(http: httpx.AsyncClient, topic: str, kind: str) -> None:
    there = Topic(http, topic)
    await there.put(type=kind)
    first = await there.append({"data": 1}, {"data": 2}, idempotency_key="k")
    await there.append({"data": 3})
    for body, headers in (({"idempotency_key": "k"}, {}), ({}, {"idempotency-key": "k"})):
        answer = accepted(await http.post(there.path, json={"records": [{"data": "other"}], **body}, headers=headers))
        del answer["performance"]
        assert answer == {name: first[name] for name in answer} | {"deduped": True}
    both = await http.post(
        there.path, json={"records": [{"data": 4}], "idempotency_key": "body"}, headers={"idempotency-key": "k"}
    )
    assert accepted(both)["deduped"] is False
    assert (await there.state())["count"] == 4


@pytest.mark.parametrize("kind", ["log", "queue"])
async def test_a_key_is_forgotten_after_its_window(http: httpx.AsyncClient, topic: str, kind: str) -> None:
    there = Topic(http, topic)
    await there.put(type=kind, idempotency_window_ms=2_000)
    assert (await there.append({"data": 1}, idempotency_key="k"))["deduped"] is False
    assert (await there.append({"data": 1}, idempotency_key="k"))["deduped"] is True

    async def again() -> bool:
        return not (await there.append({"data": 1}, idempotency_key="k"))["deduped"]

    await eventually(again)
    await there.put(type=kind, idempotency_window_ms=0)
    assert [(await there.append({"data": 1}, idempotency_key="n"))["deduped"] for _ in range(2)] == [False, False]


async def test_state_list_and_read_agree_at_once_on_what_is_too_old(log: Topic) -> None:
    """Before any sweep or append has taken it out."""
    await log.put(type="log", ttl_ms=2_500)
    await log.append({"data": 1, "meta": {"a": 1}}, {"data": 22})
    await asyncio.sleep(1.5)  # what is measured: ages
    await log.append({"data": 333})
    seen = set()

    async def one_is_left() -> bool:
        before = await log.state()
        read = await log.post("diff")
        after = await log.state()
        assert before["earliest_seq"] <= read["earliest_seq"] <= after["earliest_seq"]
        seen.add((before["earliest_seq"], before["count"], before["bytes"]))
        return bool(after["earliest_seq"] == 3 and len(read["records"]) == 1)

    await eventually(one_is_left)
    listed = (await log.http.get("/v0/topics", params={"prefix": log.name})).json()["topics"][0]
    assert (listed["earliest_seq"], listed["count"], listed["bytes"]) == (3, 1, 3)
    assert seen <= {(1, 3, 13), (3, 1, 3)}
