"""What readers of a queue are told of jobs that they missed: what age and caps took, once, and nothing else."""

from __future__ import annotations

import asyncio

import pytest

from app.base.db.pool import Pools
from app.kernel.counts import inspector
from app.kernel.settle import exit_rows as exits
from tests.api.dialect import Body, Topic, eventually
from tests.conftest import Running

Lost = tuple[str, int, int, int] | None  # reason, gap_from, gap_to, missed_estimate


async def read(queue: Topic, after: int = 0, **fields: object) -> tuple[list[int], Lost, int]:
    """Seqs of what comes after, what was lost, and the next cursor."""
    answer = await queue.post("diff", from_seq=after, **fields)
    lost = answer["tombstone"]
    told = lost and (lost["reason"], lost["gap_from"], lost["gap_to"], lost["missed_estimate"])
    return [record["$seq"] for record in answer["records"]], told, answer["next_from_seq"]


async def pages(queue: Topic) -> list[tuple[list[int], Lost]]:
    """What a reader of one job at a time is told from the start on."""
    found: list[tuple[list[int], Lost]] = []
    after, head = 0, (await queue.state())["head_seq"]
    while after < head:
        seqs, lost, after = await read(queue, after, limit=1)
        found.append((seqs, lost))
    return found


async def outlived(queue: Topic, left: int) -> None:
    """Wait until so many have not outlived their time."""

    async def fact() -> bool:
        return bool((await queue.state())["count"] == left)

    await eventually(fact)


async def mark(pools: Pools, queue: Topic) -> None:
    """What a sweep does, unless the service's own was sooner."""
    await exits.expire(pools.rest, queue.name, 100)


async def test_what_a_cap_took(queue: Topic) -> None:
    await queue.put(cap_records=3)
    await queue.add(5)
    lost = (await queue.post("diff"))["tombstone"]
    seqs = {"gap_from": 1, "gap_to": 2, "earliest_seq": 3, "head_seq": 5}
    assert lost == {"reason": "cap", "missed_estimate": 2, **seqs}
    assert (await read(queue, 1))[:2] == ([3, 4, 5], ("cap", 2, 2, 1))
    assert [(await read(queue, at))[1] for at in (2, 3, 4, 5)] == [None] * 4


async def test_a_page_tells_of_what_age_took_on_its_way_before_and_after_that_is_marked(
    queue: Topic, pools: Pools
) -> None:
    await queue.append(*({"data": i, "ttl_ms": 1} if i in {2, 4} else {"data": i} for i in range(1, 7)))
    await outlived(queue, 4)
    told = [([1], None), ([3], ("ttl", 2, 2, 1)), ([5], ("ttl", 4, 4, 1)), ([6], None)]
    for _ in range(2):
        assert await pages(queue) == told
        assert (await read(queue))[:2] == ([1, 3, 5, 6], ("ttl", 1, 4, 2))
        assert (await read(queue, 5))[1] is None, "nobody is told twice"
        await mark(pools, queue)


async def test_both(queue: Topic, pools: Pools) -> None:
    await queue.put(cap_records=2)
    await queue.append({"data": 1}, {"data": 2, "ttl_ms": 1_500})
    assert (await read(queue))[::2] == ([1, 2], 2)
    await outlived(queue, 1)
    await mark(pools, queue)
    await queue.add(2)  # evicts the first
    assert (await read(queue))[:2] == ([3, 4], ("mixed", 1, 2, 2))
    assert (await read(queue, 1))[:2] == ([3, 4], ("ttl", 2, 2, 1))
    assert await read(queue, 2) == ([3, 4], None, 4), "who has it has not missed it"


async def test_what_somebody_ended_is_not_lost(queue: Topic, pools: Pools) -> None:
    await queue.append(*({"data": i, "tag": f"t{i}", "ttl_ms": 60_000} for i in range(1, 6)))
    acked, failed, cancelled = [(await queue.take())["$seq"] for _ in range(3)]
    await queue.ack("n", [acked])
    await queue.fail("n", [failed])
    await queue.extend("n", [cancelled], 300)
    assert (await queue.post("delete", match="t3"))["marked"] == 1
    assert (await queue.post("delete", match="t4"))["deleted"] == 1
    assert (await read(queue, 3))[:2] == ([5], None)
    await queue.ack("n", [(await queue.take())["$seq"]])
    await outlived(queue, 0)
    for _ in range(2):  # also the one that was cancelled under its lease
        assert (await read(queue))[:2] == ([], None)
        await mark(pools, queue)


async def test_a_pending_one_that_a_later_one_found_too_old(queue: Topic) -> None:
    await queue.append({"data": 1, "key": "k", "ttl_ms": 1})
    await outlived(queue, 0)
    await queue.append({"data": 2, "key": "k"})
    [seq], lost, _ = await read(queue)
    assert lost is not None
    assert (lost[:2], lost[2] < seq) == (("ttl", 1), True)


async def test_it_is_known_after_the_tallies_were_folded(queue: Topic, service: Running, pools: Pools) -> None:
    await queue.put(cap_records=1)
    await queue.add(2)
    await queue.append({"data": 3, "delay_ms": 60_000, "ttl_ms": 1})
    await outlived(queue, 0)
    await mark(pools, queue)
    before = await read(queue)
    assert before[:2] == ([], ("mixed", 1, 3, 3))
    topic = (await service.context.policies.get(queue.name)).topic
    for _ in range(2):
        await inspector.fold(pools.rest, [(topic, 0)], 2**62)
        assert await read(queue) == before
    assert await pools.rest.fetchval("SELECT count(*) FROM holdfast.tallies WHERE topic_id = $1", topic.id) == 1


async def test_a_queue_made_anew(queue: Topic) -> None:
    await queue.put(cap_records=2)
    await queue.add(4)
    await queue.drop()
    await queue.put(cap_records=2)
    assert await read(queue) == ([], None, 0)
    await queue.add(3)
    assert await read(queue, 4) == ([2, 3], ("recreated", 1, 1, 1), 3)


@pytest.mark.parametrize("limit", [3, 256])
async def test_whoever_reads_on_has_each_or_is_told(queue: Topic, pools: Pools, limit: int) -> None:
    """While jobs come, go for their age and are evicted."""
    await queue.put(cap_records=4)
    going, after, known = True, 0, list[int]()

    async def write(lane: int) -> None:
        for i in range(20):
            await queue.append({"data": i, "priority": lane}, {"data": i, "ttl_ms": 1 + i}, {"data": i, "priority": 1})

    async def sweep() -> None:
        while going:
            await mark(pools, queue)

    async def follow() -> None:
        nonlocal after
        answer: Body = await queue.post("diff", from_seq=after, limit=limit)
        seqs, lost = [record["$seq"] for record in answer["records"]], answer["tombstone"]
        gap = range(lost["gap_from"], lost["gap_to"] + 1) if lost else range(0)
        assert not lost or (after < lost["gap_from"] and lost["gap_to"] <= answer["next_from_seq"])
        assert not lost or lost["missed_estimate"] == len(set(gap) - set(seqs)) > 0
        assert set(seqs) | set(gap) >= set(range(after + 1, answer["next_from_seq"] + 1))
        known.extend(seqs)
        after = answer["next_from_seq"]

    async def follow_on() -> None:
        while going:
            await follow()

    async with asyncio.TaskGroup() as others:
        others.create_task(sweep())
        others.create_task(follow_on())
        try:
            await asyncio.gather(*(write(lane) for lane in range(3)))
        finally:
            going = False
    while after < (await queue.state())["head_seq"]:
        await follow()
    assert len(known) == len(set(known)) < after, "some were lost"
