"""claim_jitter_ms: callers of a window share what there is, one each in turn."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING

import pytest

from tests.api.dialect import Body, Topic, until_waiting
from tests.api.events import working

if TYPE_CHECKING:
    from tests.conftest import Running


@pytest.fixture
async def shared(queue: Topic) -> Topic:
    """A queue with a window of 200 ms, and a client whose connections are open already."""
    await queue.put(claim_jitter_ms=200)
    await asyncio.gather(*(queue.state() for _ in range(20)))
    return queue


async def claims(queue: Topic, *wanted: int, **fields: object) -> list[Body]:
    return await asyncio.gather(*(queue.claim(f"w{i}", max=most, **fields) for i, most in enumerate(wanted)))


async def test_ten_claimers_of_ten_share_fifty_jobs(shared: Topic) -> None:
    await shared.add(50)
    began = time.monotonic()
    answers = await claims(shared, *[10] * 10)
    assert time.monotonic() - began >= 0.2
    assert [answer["count"] for answer in answers] == [5] * 10
    assert [answer["ready"] for answer in answers] == [0] * 10
    seqs = [job["$seq"] for answer in answers for job in answer["claimed"]]
    assert sorted(seqs) == list(range(1, 51))
    assert all(await asyncio.gather(*(holds(shared, i, answer) for i, answer in enumerate(answers))))


async def holds(queue: Topic, caller: int, answer: Body) -> bool:
    """Whether what the caller was given is leased to the caller."""
    seqs = [job["$seq"] for job in answer["claimed"]]
    return bool((await queue.ack(f"w{caller}", seqs))["acked"] == len(seqs))


@pytest.mark.parametrize(
    ("jobs", "wanted", "counts"),
    [
        (9, [1, 2, 10], [1, 2, 6]),
        (10, [10, 1, 10], [5, 1, 4]),
        (3, [5, 5, 5, 5, 5], [1, 1, 1, 0, 0]),
        (100, [1, 7, 3], [1, 7, 3]),
        (0, [5, 5], [0, 0]),
        (5, [1000, 1000], [3, 2]),
    ],
)
async def test_each_gets_one_in_turn_up_to_its_max(
    shared: Topic, jobs: int, wanted: list[int], counts: list[int]
) -> None:
    if jobs:
        await shared.add(jobs)
    answers = await claims(shared, *wanted)
    # In whatever order they arrived, those who asked for as much get as much, but for one job.
    assert sorted(answer["count"] for answer in answers) == sorted(counts)
    for answer, most in zip(answers, wanted, strict=True):
        assert answer["count"] <= most
        assert answer["ready"] == jobs - sum(counts)


async def test_without_a_window_the_first_takes_what_it_asks_for(queue: Topic) -> None:
    await queue.add(50)
    answers = await claims(queue, *[10] * 10)
    assert sorted(answer["count"] for answer in answers) == [0] * 5 + [10] * 5


async def test_each_of_a_cohort_gets_its_own_lease(shared: Topic) -> None:
    await shared.add(2)
    short, long = await asyncio.gather(shared.claim("short", lease_ms=1_000), shared.claim("long", lease_ms=3_600_000))
    assert long["claimed"][0]["deadline"] - short["claimed"][0]["deadline"] == pytest.approx(3_599_000, abs=100)
    assert long["claimed"][0]["lease_id"] != short["claimed"][0]["lease_id"]
    assert (await shared.ack("long", [1, 2]))["skipped"] == [short["claimed"][0]["$seq"]]


async def test_the_window_is_no_delay_for_the_next_cohort(shared: Topic) -> None:
    """Two cohorts one after the other, not a claim in each window."""
    await shared.add(40)
    began = time.monotonic()
    for _ in range(2):
        answers = await claims(shared, *[2] * 10)
        assert [answer["count"] for answer in answers] == [2] * 10
    assert time.monotonic() - began < 1.5


async def test_a_stream_that_opens_in_the_window_is_one_of_the_cohort(shared: Topic) -> None:
    await shared.put(claim_jitter_ms=1_000)
    await shared.add(9)

    async def stream() -> int:
        async with working(shared, "stream", max=9) as opened:
            return len(await opened.jobs(3))

    pushed = asyncio.create_task(stream())
    answers = await claims(shared, 9, 9)
    assert await pushed == 3
    assert [answer["count"] for answer in answers] == [3, 3]


async def test_streams_and_claimers_that_wait_share_what_comes(service: Running, shared: Topic) -> None:
    async with working(shared, "a", max=10) as a, working(shared, "b", max=10) as b:
        poll = asyncio.create_task(shared.claim("poll", max=10, wait_ms=5_000))
        await until_waiting(service, shared.name, 3)
        await shared.add(9)
        answer = await poll
        assert answer["count"] == 3
        await asyncio.gather(a.jobs(3), b.jobs(3))
        assert await shared.counts() == (0, 9)


async def test_streams_that_are_served_at_once_are_served_alike(service: Running, shared: Topic) -> None:
    async with working(shared, "a", max=50) as a, working(shared, "b", max=50) as b:
        await until_waiting(service, shared.name, 2)
        for _ in range(3):
            await shared.add(10)
            first, second = await asyncio.gather(a.jobs(5), b.jobs(5))
            assert (await shared.ack("a", [job["$seq"] for job in first]))["acked"] == 5
            assert (await shared.ack("b", [job["$seq"] for job in second]))["acked"] == 5


async def test_a_cohort_with_jobs_to_be_taken_out_shares_the_rest(shared: Topic) -> None:
    """Spent and expired jobs stand at the head; what is behind them is shared all the same."""
    await shared.put(claim_jitter_ms=200, max_deliveries=1, on_exhausted="fail")
    await shared.add(4)
    await shared.claim("silent", max=4, lease_ms=100)
    await shared.append(*([{"data": 1, "ttl_ms": 100}] * 4), *([{"data": 2}] * 10))

    await shared.until_counts(10, 0)
    answers = await claims(shared, 5, 5)
    assert [answer["count"] for answer in answers] == [5, 5]
    assert all(job["data"] == 2 for answer in answers for job in answer["claimed"])
