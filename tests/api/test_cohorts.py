"""claim_jitter_ms: callers of a window share what there is, one each in turn. The turns are tests/engine's."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from tests.api.dialect import Topic, until_waiting
from tests.api.events import working

if TYPE_CHECKING:
    from tests.conftest import Running


async def test_ten_claimers_of_ten_share_fifty_jobs(service: Running, queue: Topic) -> None:
    await queue.put(claim_jitter_ms=300)
    waiting = [asyncio.create_task(queue.claim(f"w{i}", max=10, wait_ms=20_000)) for i in range(10)]
    await until_waiting(service, queue.name, 10)
    await queue.add(50)
    answers = await asyncio.gather(*waiting)
    assert [answer["count"] for answer in answers] == [5] * 10
    for i, answer in enumerate(answers):
        seqs = [job["$seq"] for job in answer["claimed"]]
        assert (await queue.ack(f"w{i}", seqs))["acked"] == len(seqs)
    assert await queue.counts() == (0, 0)


async def test_streams_and_claimers_that_wait_share_what_comes(service: Running, queue: Topic) -> None:
    await queue.put(claim_jitter_ms=300)
    async with working(queue, "a", max=10) as a, working(queue, "b", max=10) as b:
        poll = asyncio.create_task(queue.claim("poll", max=10, wait_ms=20_000))
        await until_waiting(service, queue.name, 3)
        await queue.add(9)
        assert (await poll)["count"] == 3
        await asyncio.gather(a.jobs(3), b.jobs(3))
        assert await queue.counts() == (0, 9)


async def test_a_cohort_with_jobs_to_be_taken_out_shares_the_rest(queue: Topic) -> None:
    """Spent and expired jobs stand at the head; what is behind them is shared all the same."""
    await queue.put(claim_jitter_ms=200, max_deliveries=1, on_exhausted="fail")
    await queue.add(4)
    await queue.claim("silent", max=4, lease_ms=100)
    await queue.append(*([{"data": 1, "ttl_ms": 100}] * 4), *([{"data": 2}] * 10))
    await queue.until_counts(10, 0)
    answers = await asyncio.gather(*(queue.claim(f"w{n}", max=5) for n in range(2)))
    assert [answer["count"] for answer in answers] == [5, 5]
    assert all(job["data"] == 2 for answer in answers for job in answer["claimed"])
