"""Claims that name tags: only jobs with one of these, in the usual order, found without a walk over the others."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Collection
from typing import TYPE_CHECKING

import httpx
import pytest

from app.kernel.claim.waiters import POLL_SECONDS
from tests.api.dialect import Body, Topic, accepted, eventually, until_waiting
from tests.conftest import Running

if TYPE_CHECKING:
    from tests.api.conftest import Serve


def seqs(answer: Body) -> list[int]:
    return [job["$seq"] for job in answer["claimed"]]


async def test_a_claim_takes_jobs_with_one_of_its_tags(queue: Topic) -> None:
    await queue.append(
        {"data": 1, "tag": "a"}, {"data": 2}, {"data": 3, "tag": "b"}, {"data": 4, "tag": "c"}, {"data": 5, "tag": "a"}
    )
    answer = await queue.claim(max=9, tags=["a"])
    assert (seqs(answer), answer["ready"]) == ([1, 5], 3)
    assert {job["$tag"] for job in answer["claimed"]} == {"a"}
    assert seqs(await queue.claim(max=9, tags=["a", "c", "b"])) == [3, 4]
    assert seqs(await queue.claim(max=9, tags=["a", "none"])) == []
    assert seqs(await queue.claim(max=9)) == [2]
    await queue.nack("n", [2, 3])
    assert seqs(await queue.claim(max=9, tags=["b"])) == [3]


async def test_they_come_in_claim_order(queue: Topic) -> None:
    """One at a time: by priority, then what is due, then by place, whatever the tag."""
    await queue.append(*({"data": 1, "tag": tag, "priority": p} for tag, p in (("a", 0), ("b", 5), ("a", 5), ("c", 9))))
    await queue.append({"data": 1, "tag": "b", "delay_ms": 1}, {"data": 1, "tag": "b"}, {"data": 1, "tag": "a"})
    await queue.until_counts(7, 0)
    assert [(await queue.take(tags=["a", "b"]))["$seq"] for _ in range(6)] == [2, 3, 5, 1, 6, 7]
    assert seqs(await queue.claim(max=9)) == [4]


async def test_ended_leases_and_spent_jobs(queue: Topic) -> None:
    await queue.put(max_deliveries=2, on_exhausted="fail")
    await queue.append({"data": 1, "tag": "a"}, {"data": 2, "tag": "b"}, {"data": 3, "tag": "a", "ttl_ms": 1})
    for deliveries in (1, 2):
        job = await queue.take(tags=["a"], lease_ms=100)
        assert (job["$seq"], job["deliveries"]) == (1, deliveries)

    async def has_failed() -> bool:
        assert (await queue.claim(tags=["a"]))["claimed"] == []
        return bool(accepted(await queue.http.get(f"{queue.path}/jobs", params={"state": "failed"}))["jobs"])

    await eventually(has_failed)
    assert seqs(await queue.claim(max=9)) == [2]


async def test_tenants_take_turns_and_may_be_named(queue: Topic) -> None:
    for tenant in ("a", "b", "c"):
        await queue.add(20, tenant=tenant, tag="x")
        await queue.add(20, tenant=tenant, tag="y")
    shares = [job["tenant"] for job in (await queue.claim(max=9, tags=["x"]))["claimed"]]
    assert sorted(shares) == ["a"] * 3 + ["b"] * 3 + ["c"] * 3
    claimed = (await queue.claim(max=50, tags=["y"], tenants=["b"]))["claimed"]
    assert [(job["tenant"], job["$tag"]) for job in claimed] == [("b", "y")] * 20
    # Other claims' turns are as they were: nothing is remembered of a tenant without such jobs.
    assert (await queue.claim(max=100))["count"] == 120 - 29


async def test_pauses_limits_groups_and_the_rate_hold(queue: Topic) -> None:
    await queue.put(tenant_limits={"a": 2}, priority_order="lowest_first")
    await queue.append(*({"data": 1, "tag": "x", "tenant": "a", "priority": p} for p in (5, 1, 3)))
    assert seqs(await queue.claim(max=9, tags=["x"])) == [2, 3]
    await queue.put()
    await queue.post("pause")
    assert seqs(await queue.claim(tags=["x"])) == []
    await queue.post("resume")
    assert seqs(await queue.claim(tags=["x"])) == [1]
    await queue.append({"data": 1, "group": "g", "tag": "a"}, {"data": 2, "group": "g", "tag": "b"})
    assert seqs(await queue.claim(tags=["b"])) == []
    first = await queue.take(tags=["a"])
    await queue.ack("n", [first["$seq"]])
    assert (await queue.take(tags=["b"]))["$seq"] == first["$seq"] + 1
    await queue.put(throughput_limit=5)
    await queue.add(9, tag="x")
    assert (await queue.claim(max=9, tags=["x"]))["count"] == 5


async def test_jobs_with_other_tags_neither_end_a_wait_nor_keep_asking(
    service: Running, queue: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A waiter looks again for a job with its tag, and twice a second by the poll: not for each job of others. Those
    wake who waits for any."""
    waiters, looks = service.context.engine.waiters, 0
    mark = waiters.mark

    def counted(topic_id: int, tenants: Collection[str] | None = None, tags: Collection[str] | None = None) -> int:
        nonlocal looks
        looks += tags is not None and "x" in tags  # a claim takes its mark before it looks
        return mark(topic_id, tenants, tags)

    waiting = asyncio.create_task(queue.claim("a", max=5, wait_ms=30_000, tags=["x", "y"]))
    await until_waiting(service, queue.name, 1)
    for_any = asyncio.create_task(queue.claim("b", wait_ms=20_000))
    await until_waiting(service, queue.name, 2)
    await queue.add(1)
    assert (await for_any)["count"] == 1
    began = time.monotonic()
    monkeypatch.setattr(waiters, "mark", counted)
    for _ in range(50):
        await queue.add(1, tag="z")
        await queue.claim("b", tags=["z"])
    await queue.add(1)
    polls = (time.monotonic() - began) / POLL_SECONDS + 2
    assert looks <= 2 * polls, "asked for jobs of others"  # park looks at the mark once more
    assert not waiting.done()
    await queue.add(2, tag="y")
    assert (await waiting)["count"] == 2


async def test_claimers_of_two_processes_share_a_tag_without_a_job_twice(
    service: Running, serve: Serve, queue: Topic
) -> None:
    """Each finds something for as long as there is something, though both look for the same jobs first."""
    other = await serve()
    waiting = asyncio.create_task(queue.claim("a", wait_ms=20_000, tags=["w"]))
    await until_waiting(service, queue.name, 1)
    async with httpx.AsyncClient(base_url=other.url) as http:
        ways = (queue, queue.through(http))
        await ways[1].add(1, tag="w")
        assert (await waiting)["count"] == 1
        for tag in ("x", "y"):
            await queue.add(300, tag=tag)
        found: list[int] = []

        async def work(way: Topic, node: str) -> None:
            while claimed := seqs(await way.claim(node, max=20, tags=["x", "y"])):
                found.extend(claimed)

        await asyncio.gather(*(work(way, f"w{i}{j}") for i, way in enumerate(ways) for j in range(3)))
    assert sorted(found) == list(range(2, 602))
    await other.stop()
