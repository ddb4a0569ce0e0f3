"""Leases: claimed, completed, returned, extended, run out."""

from __future__ import annotations

import asyncio

import pytest

from tests.api.dialect import Body, Topic, eventually


def seqs(answer: Body) -> list[int]:
    return [job["$seq"] for job in answer["claimed"]]


async def test_a_claim_leases_and_counts(queue: Topic) -> None:
    await queue.add(5)
    first = await queue.claim("a", max=2)
    assert (seqs(first), first["count"], first["ready"]) == ([1, 2], 2, 3)
    assert [job["deliveries"] for job in first["claimed"]] == [1, 1]
    ids = {job["lease_id"] for job in first["claimed"]}
    assert len(ids) == 2
    assert all(lease.startswith("lease_") and int(lease.removeprefix("lease_"), 16) for lease in ids)
    second = await queue.claim("b", max=10)
    assert (seqs(second), second["count"], second["ready"]) == ([3, 4, 5], 3, 0)
    third = await queue.claim("c")
    assert (third["claimed"], third["count"], third["ready"]) == ([], 0, 0)
    assert await queue.counts() == (0, 5)


async def test_a_token_names_topic_job_and_lease(queue: Topic) -> None:
    await queue.add(1)
    job = await queue.take()
    assert job["token"] == f"{queue.name}:1:{job['lease_id']}"


async def test_only_the_holder_completes(queue: Topic) -> None:
    await queue.add(2)
    await queue.claim("a", max=1)
    answer = await queue.ack("b", [1, 2, 3])
    assert (answer["acked"], answer["skipped"], answer["ready"], answer["in_flight"]) == (0, [1, 2, 3], 1, 1)
    answer = await queue.ack("a", [1, 2, 3])
    assert (answer["acked"], answer["skipped"], answer["ready"], answer["in_flight"]) == (1, [2, 3], 1, 0)
    assert (await queue.state())["count"] == 1


async def test_the_same_ack_twice_is_skipped(queue: Topic) -> None:
    await queue.add(1)
    await queue.claim("a")
    assert (await queue.ack("a", [1]))["acked"] == 1
    again = await queue.ack("a", [1])
    assert (again["acked"], again["skipped"], again["ready"], again["in_flight"]) == (0, [1], 0, 0)


@pytest.mark.parametrize(("verb", "done"), [("ack", "acked"), ("nack", "nacked")])
async def test_a_seq_named_twice_is_settled_once(queue: Topic, verb: str, done: str) -> None:
    await queue.add(2)
    await queue.claim("a", max=2)
    answer = await queue.post(verb, node="a", seqs=[2, 1, 2, 2])
    assert (answer[done], answer["skipped"]) == (2, [2, 2])


async def test_a_seq_named_twice_is_extended_once(queue: Topic) -> None:
    await queue.add(1)
    await queue.claim("a", lease_ms=1_000)
    answer = await queue.extend("a", [1, 1], 60_000)
    assert (answer["extended"], answer["skipped"], set(answer["deadlines"])) == (1, [1], {"1"})


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


def needed(verb: str) -> Body:
    """What an extend has to say beside the others."""
    return {"lease_ms": 60_000} if verb == "extend" else {}


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
async def test_no_seqs_are_no_error(queue: Topic, verb: str) -> None:
    await queue.add(1)
    answer = await queue.post(verb, node="a", seqs=[], lease_ids=[], **needed(verb))
    assert answer["skipped"] == []
    assert await queue.counts() == (1, 0)


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
async def test_a_lease_that_was_superseded_is_fenced_off(queue: Topic, verb: str) -> None:
    """By the same node: only the lease id tells the two apart."""
    await queue.add(1)
    stale = (await queue.take("a", lease_ms=100))["lease_id"]
    held = await queue.take("a")
    assert held["deliveries"] == 2
    assert held["lease_id"] != stale
    answer = await queue.post(verb, node="a", seqs=[1], lease_ids=[stale], **needed(verb))
    assert answer["skipped"] == [1]
    state = await queue.state()
    assert state["queue"] == {"ready": 0, "in_flight": 1, "dead_lettered": 0}
    assert (await queue.ack("a", [1], lease_ids=[held["lease_id"].replace("lease_", "lease_00")]))["skipped"] == [1]
    assert (await queue.ack("a", [1], lease_ids=[held["lease_id"].upper().replace("LEASE", "lease")]))["acked"] == 1


@pytest.mark.parametrize("verb", ["ack", "nack", "extend"])
async def test_a_lease_that_has_run_out_is_gone_though_nobody_took_the_job(queue: Topic, verb: str) -> None:
    await queue.add(1)
    lease = (await queue.take("a", lease_ms=100))["lease_id"]
    await queue.until_counts(1, 0)
    for ids in ({}, {"lease_ids": [lease]}):
        answer = await queue.post(verb, node="a", seqs=[1], **ids, **needed(verb))
        assert answer["skipped"] == [1]
    assert (await queue.take("b"))["deliveries"] == 2


async def test_a_job_whose_lease_ran_out_goes_before_fresh_ones(queue: Topic) -> None:
    await queue.add(1)
    await queue.take("a", lease_ms=100)
    await queue.add(2)
    await queue.until_counts(3, 0)
    order = [await queue.take("b") for _ in range(3)]
    assert [(job["$seq"], job["deliveries"]) for job in order] == [(1, 2), (2, 1), (3, 1)]


async def test_so_does_one_that_was_returned_and_one_whose_delay_is_over(queue: Topic) -> None:
    await queue.append({"data": "fresh"}, {"data": "delayed", "delay_ms": 100}, {"data": "returned", "priority": 0})
    await queue.until_counts(3, 0)
    held = (await queue.claim("a", max=3))["claimed"]
    assert [job["data"] for job in held] == ["fresh", "delayed", "returned"]
    await queue.nack("a", [3])
    await queue.append({"data": "later"}, {"data": "delayed", "delay_ms": 100})
    await queue.until_counts(3, 2)
    assert [(await queue.take("b"))["data"] for _ in range(3)] == ["returned", "delayed", "later"]


async def test_a_priority_goes_before_a_lease_that_ran_out(queue: Topic) -> None:
    await queue.add(1)
    await queue.take("a", lease_ms=100)
    await queue.append({"data": "urgent", "priority": 1})
    await queue.until_counts(2, 0)
    assert [(await queue.take("b"))["data"] for _ in range(2)] == ["urgent", 1]


async def test_a_claim_answers_by_seq_whatever_the_order_of_claiming(queue: Topic) -> None:
    await queue.append({"data": "low"}, {"data": "high", "priority": 9}, {"data": "middle", "priority": 5})
    two = (await queue.claim(max=2))["claimed"]
    assert [job["data"] for job in two] == ["high", "middle"]
    await queue.nack("n", [3, 2])
    assert seqs(await queue.claim(max=3)) == [1, 2, 3]


async def test_a_nack_returns_at_once_and_the_next_claim_counts(queue: Topic) -> None:
    await queue.add(1)
    for delivery in (1, 2, 3, 4):
        job = await queue.take("a")
        assert job["deliveries"] == delivery
        answer = await queue.nack("a", [1])
        assert (answer["nacked"], answer["skipped"], answer["ready"], answer["in_flight"]) == (1, [], 1, 0)
    assert (await queue.ack("a", [1]))["skipped"] == [1]


async def test_only_the_holder_returns(queue: Topic) -> None:
    await queue.add(1)
    await queue.take("a")
    answer = await queue.nack("b", [1])
    assert (answer["nacked"], answer["skipped"], answer["ready"], answer["in_flight"]) == (0, [1], 0, 1)


async def test_a_delayed_nack_is_ready_when_it_is_due_and_not_before(queue: Topic) -> None:
    await queue.add(2)
    first = await queue.take("a")
    answer = await queue.nack("a", [1], delay_ms=500)
    assert (answer["nacked"], answer["ready"], answer["in_flight"]) == (1, 1, 0)
    assert seqs(await queue.claim("b", max=5)) == [2]
    assert await queue.counts() == (0, 1)
    assert (await queue.claim("b"))["count"] == 0
    again = await queue.take("b", lease_ms=30_000)
    assert (again["$seq"], again["deliveries"]) == (1, 2)
    # Both leases are 30 s: their deadlines are as far apart as their claims.
    assert again["deadline"] - first["deadline"] >= 500


async def test_a_delay_is_clamped_to_a_day(queue: Topic) -> None:
    await queue.add(1)
    await queue.take("a")
    assert (await queue.nack("a", [1], delay_ms=10**18))["nacked"] == 1
    assert await queue.counts() == (0, 0)


async def test_extend_sets_and_never_adds(queue: Topic) -> None:
    await queue.add(1)
    job = await queue.take("a", lease_ms=3_600_000)
    first = (await queue.extend("a", [1], 60_000))["deadlines"]["1"]
    assert first < job["deadline"] - 3_000_000
    second = (await queue.extend("a", [1], 60_000))["deadlines"]["1"]
    assert first <= second < first + 30_000
    third = (await queue.extend("a", [1], 1))["deadlines"]["1"]  # clamped to 100 ms
    assert third < second - 30_000
    assert (await queue.take("b"))["deliveries"] == 2


async def test_an_extended_lease_outlives_one_that_was_not(queue: Topic) -> None:
    await queue.add(2)
    jobs = (await queue.claim("a", max=2, lease_ms=500))["claimed"]
    lease = jobs[0]["lease_id"]
    answer = await queue.extend("a", [1], 60_000, lease_ids=[lease])
    assert (answer["extended"], answer["skipped"]) == (1, [])
    taken = await queue.take("b")
    assert (taken["$seq"], taken["deliveries"]) == (2, 2)
    assert await queue.counts() == (0, 2)
    # The lease id stays, and it was no delivery.
    assert (await queue.ack("a", [1], lease_ids=[lease]))["acked"] == 1


async def test_only_the_holder_extends(queue: Topic) -> None:
    await queue.add(2)
    job = await queue.take("a", lease_ms=60_000)
    answer = await queue.extend("b", [1, 2], 3_600_000)
    assert (answer["extended"], answer["skipped"], answer["deadlines"]) == (0, [1, 2], {})
    assert (await queue.extend("a", [1], 60_000))["deadlines"]["1"] < job["deadline"] + 1_000_000


@pytest.mark.parametrize(("asked", "length"), [(0, 100), (99, 100), (5_000, 5_000), (10**30, 86_400_000)])
async def test_the_length_of_a_lease_is_clamped(queue: Topic, asked: int, length: int) -> None:
    """Against a lease of a day, taken in the same statement's second: both by the database's clock."""
    await queue.add(2)
    day = (await queue.take("a", lease_ms=86_400_000))["deadline"] - 86_400_000
    job = await queue.take("b", lease_ms=asked)
    assert length <= job["deadline"] - day < length + 20_000
    if length > 100:
        extended = (await queue.extend("b", [2], asked))["deadlines"]["2"]
        assert length <= extended - day < length + 20_000


async def test_a_claim_without_a_length_takes_the_topics(queue: Topic) -> None:
    await queue.put(lease_ms=3_600_000)
    await queue.add(2)
    own = (await queue.take("a", lease_ms=1_800_000))["deadline"] - 1_800_000
    topics = await queue.take("a")
    assert 0 <= topics["deadline"] - 3_600_000 - own < 20_000


@pytest.mark.parametrize(
    ("most", "count"), [(None, 1), (0, 1), (1, 1), (1_000, 1_000), (1_001, 1_000), (10**30, 1_000)]
)
async def test_the_size_of_a_claim_is_clamped(queue: Topic, most: int | None, count: int) -> None:
    await queue.append(*([{"data": None}] * 1_010))
    answer = await queue.claim(max=most)
    assert (answer["count"], len(answer["claimed"]), answer["ready"]) == (count, count, 1_010 - count)
    settled = await queue.ack("n", seqs(answer))
    assert (settled["acked"], settled["ready"], settled["in_flight"]) == (count, 1_010 - count, 0)


async def test_many_at_once_get_each_job_once(queue: Topic) -> None:
    await queue.append(*({"data": i} for i in range(500)))
    done: list[int] = []

    async def worker(node: str) -> None:
        while jobs := seqs(await queue.claim(node, max=7)):
            answer = await queue.ack(node, jobs)
            assert answer["skipped"] == []
            done.extend(jobs)

    await asyncio.gather(*(worker(f"w{i}") for i in range(20)))
    assert sorted(done) == list(range(1, 501))
    assert (await queue.state())["count"] == 0


async def test_the_same_lease_acked_by_two_at_once_counts_once(queue: Topic) -> None:
    await queue.add(50)
    jobs = seqs(await queue.claim("a", max=50))
    answers = await asyncio.gather(*(queue.ack("a", jobs[::step]) for step in (1, -1, 1, -1)))
    assert sum(answer["acked"] for answer in answers) == 50
    assert sum(len(answer["skipped"]) for answer in answers) == 150


async def test_a_job_settled_both_ways_at_once_goes_one_way(queue: Topic) -> None:
    await queue.add(100)
    jobs = seqs(await queue.claim("a", max=100))
    acked, nacked, _ = await asyncio.gather(
        queue.ack("a", jobs), queue.nack("a", jobs[::-1]), queue.extend("a", jobs, 60_000)
    )
    assert acked["acked"] + nacked["nacked"] == 100
    assert sorted(acked["skipped"] + nacked["skipped"]) == jobs
    assert await queue.counts() == (nacked["nacked"], 0)


async def test_a_claim_with_another_order_of_verbs_keeps_counts_exact(queue: Topic) -> None:
    await queue.append(*({"data": i, **({"delay_ms": 3_600_000} if i % 3 == 0 else {})} for i in range(30)))
    answer = await queue.claim("a", max=12)
    assert answer["ready"] == 8
    held = seqs(answer)
    acked = await queue.ack("a", held[:5])
    assert (acked["ready"], acked["in_flight"]) == (8, 7)
    nacked = await queue.nack("a", held[5:7])
    assert (nacked["ready"], nacked["in_flight"]) == (10, 5)
    nacked = await queue.nack("a", held[7:9], delay_ms=3_600_000)
    assert (nacked["ready"], nacked["in_flight"]) == (10, 3)
    await queue.extend("a", held[9:], 100)
    await queue.until_counts(13, 0)
    assert (await queue.state())["count"] == 25

    async def none_left() -> bool:
        return bool((await queue.claim("b", max=1000))["ready"] == 0)

    await eventually(none_left)
    assert await queue.counts() == (0, 13)
