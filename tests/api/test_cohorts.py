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
