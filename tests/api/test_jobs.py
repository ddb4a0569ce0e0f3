"""Leases on the wire: claimed, completed, returned, extended. What becomes of them is the kernel's: tests/engine and
tests/races."""

from __future__ import annotations

import pytest

from tests.api.dialect import Body, Topic


def seqs(answer: Body) -> list[int]:
    return [job["$seq"] for job in answer["claimed"]]


def needed(verb: str) -> Body:
    """What an extend has to say beside the others."""
    return {"lease_ms": 60_000} if verb == "extend" else {}


async def test_a_claim_leases_and_counts(queue: Topic) -> None:
    await queue.add(5)
    first = await queue.claim("a", max=2)
    assert (seqs(first), first["count"], first["ready"]) == ([1, 2], 2, 3)
    one, two = first["claimed"]
    assert (one["deliveries"], two["deliveries"]) == (1, 1)
    assert one["lease_id"] != two["lease_id"]
    assert int(one["lease_id"].removeprefix("lease_"), 16)
    assert one["token"] == f"{queue.name}:1:{one['lease_id']}"
    second = await queue.claim("b", max=10)
    assert (seqs(second), second["ready"]) == ([3, 4, 5], 0)
    third = await queue.claim("c")
    assert (third["claimed"], third["count"], third["ready"]) == ([], 0, 0)
    assert await queue.counts() == (0, 5)


@pytest.mark.parametrize(
    ("verb", "done", "left"), [("ack", "acked", (1, 0)), ("nack", "nacked", (3, 0)), ("extend", "extended", (1, 2))]
)
async def test_only_the_holder_does_anything_and_once(
    queue: Topic, verb: str, done: str, left: tuple[int, int]
) -> None:
    await queue.add(3)
    await queue.claim("a", max=2)
    answer = await queue.post(verb, node="b", seqs=[1, 2, 3], **needed(verb))
    assert (answer[done], answer["skipped"]) == (0, [1, 2, 3])
    answer = await queue.post(verb, node="a", seqs=[], lease_ids=[], **needed(verb))
    assert (answer[done], answer["skipped"]) == (0, [])
    assert await queue.counts() == (1, 2)
    answer = await queue.post(verb, node="a", seqs=[2, 1, 2, 9, 2], **needed(verb))
    assert (answer[done], answer["skipped"]) == (2, [2, 9, 2])
    assert await queue.counts() == left
    if verb != "extend":
        assert (answer["ready"], answer["in_flight"]) == left
        again = await queue.post(verb, node="a", seqs=[1, 2])
        assert (again[done], again["skipped"]) == (0, [1, 2])


async def test_of_an_unsorted_list_each_seq_is_settled(queue: Topic) -> None:
    await queue.add(6)
    ids = {job["$seq"]: job["lease_id"] for job in (await queue.claim("a", max=6))["claimed"]}
    stale = "lease_" + "0" * 31 + "1"
    answer = await queue.ack("a", [5, 9, 1, 3], lease_ids=[ids[5], ids[1], stale, ""])
    assert (answer["acked"], answer["skipped"], answer["in_flight"]) == (2, [9, 1], 4)
    answer = await queue.nack("a", [6, 2], lease_ids=[ids[2], ids[2]])
    assert (answer["nacked"], answer["skipped"], answer["ready"], answer["in_flight"]) == (1, [6], 1, 3)
    answer = await queue.extend("a", [4, 1], 60_000, lease_ids=[ids[4], ids[1]])
    assert (answer["extended"], answer["skipped"], set(answer["deadlines"])) == (2, [], {"4", "1"})


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
async def test_a_lease_that_was_superseded_is_fenced_off(queue: Topic, verb: str) -> None:
    """By the same node: only the lease id tells the two apart."""
    await queue.add(1)
    stale = (await queue.take("a", lease_ms=100))["lease_id"]
    await queue.until_counts(1, 0)
    for ids in ({}, {"lease_ids": [stale]}):  # it is gone though nobody took the job
        assert (await queue.post(verb, node="a", seqs=[1], **ids, **needed(verb)))["skipped"] == [1]
    held = await queue.take("a")
    assert held["deliveries"] == 2
    assert (await queue.post(verb, node="a", seqs=[1], lease_ids=[stale], **needed(verb)))["skipped"] == [1]
    assert (await queue.ack("a", [1], lease_ids=[held["lease_id"].replace("lease_", "lease_00")]))["skipped"] == [1]
    assert (await queue.ack("a", [1], lease_ids=[held["lease_id"].upper().replace("LEASE", "lease")]))["acked"] == 1


async def test_a_delayed_nack_is_ready_when_it_is_due_and_not_before(queue: Topic) -> None:
    await queue.add(2)
    first = await queue.take("a", lease_ms=60_000)
    answer = await queue.nack("a", [1], delay_ms=1_000)
    assert (answer["nacked"], answer["ready"], answer["in_flight"]) == (1, 1, 0)
    assert seqs(await queue.claim("b", max=5)) == [2]
    assert await queue.counts() == (0, 1)
    again = await queue.take("b", lease_ms=60_000)
    assert (again["$seq"], again["deliveries"]) == (1, 2)
    # Both leases are as long: their deadlines are as far apart as their claims.
    assert again["deadline"] - first["deadline"] >= 1_000
    assert (await queue.nack("b", [1], delay_ms=10**18))["nacked"] == 1, "clamped to a day"
    assert await queue.counts() == (0, 1)


async def test_extend_sets_and_never_adds(queue: Topic) -> None:
    await queue.add(1)
    job = await queue.take("a", lease_ms=3_600_000)
    first = (await queue.extend("a", [1], 60_000))["deadlines"]["1"]
    assert first < job["deadline"] - 3_000_000
    second = (await queue.extend("a", [1], 60_000, lease_ids=[job["lease_id"]]))["deadlines"]["1"]
    assert first <= second < first + 30_000
    third = (await queue.extend("a", [1], 1))["deadlines"]["1"]  # clamped to 100 ms
    assert third < second - 30_000
    assert (await queue.take("b"))["deliveries"] == 2


@pytest.mark.parametrize(("asked", "length"), [(0, 100), (99, 100), (5_000, 5_000), (10**30, 86_400_000)])
async def test_the_length_of_a_lease_is_clamped(queue: Topic, asked: int, length: int) -> None:
    """Against a lease of a day, taken just before: both by the database's clock."""
    await queue.put(lease_ms=3_600_000)
    await queue.add(3)
    day = (await queue.take("a", lease_ms=86_400_000))["deadline"] - 86_400_000
    assert 0 <= (await queue.take("a"))["deadline"] - 3_600_000 - day < 20_000, "the topic's"
    assert length <= (await queue.take("b", lease_ms=asked))["deadline"] - day < length + 20_000
    if length > 100:
        extended = (await queue.extend("b", [3], asked))["deadlines"]["3"]
        assert length <= extended - day < length + 20_000


@pytest.mark.parametrize(("most", "count"), [(None, 1), (0, 1), (1_001, 1_000), (10**30, 1_000)])
async def test_the_size_of_a_claim_is_clamped(queue: Topic, most: int | None, count: int) -> None:
    await queue.append(*([{"data": None}] * 1_010))
    answer = await queue.claim(max=most)
    assert (answer["count"], len(answer["claimed"]), answer["ready"]) == (count, count, 1_010 - count)
    settled = await queue.ack("n", seqs(answer))
    assert (settled["acked"], settled["ready"], settled["in_flight"]) == (count, 1_010 - count, 0)
