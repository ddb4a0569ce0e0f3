"""The archive: of jobs with keys what a replay brings back, and its log, page by page."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime

import pytest

from app.base.db.pool import Pools
from app.features.archive import archive
from app.features.archive.archive import ArchivePart
from app.features.archive.replays import Replays
from app.kernel.claim.consumer import Return
from app.kernel.model import Batch
from app.kernel.topics.policy import Policy
from tests.engine.archives import archived, complete, counted, drain, in_batches, sources
from tests.engine.machines import Machine
from tests.queue.calls import held, outlived, until

Make = Callable[..., Awaitable[Policy]]


@pytest.fixture
async def queue(topic: str, make_queue: Make) -> Policy:
    """A replayable one."""
    return await make_queue(topic, replayable=True)


async def test_of_a_key_the_last_one_comes_back(machine: Machine, queue: Policy, pools: Pools) -> None:
    for n in range(3):
        for key in ("a", "b", None):
            await machine.enqueue(queue, Batch(payloads=[b"%d" % n], keys=[key]))
            await drain(machine, queue)
    done = await in_batches(machine.engine, 2).replay(queue, None)
    assert (done.enqueued, done.skipped) == (5, 4)
    rows = await pools.rest.fetch(
        "SELECT key, payload FROM holdfast.jobs WHERE topic = $1 ORDER BY seq", queue.topic.name
    )
    assert list(map(tuple, rows)) == [(None, b"0"), (None, b"1"), ("a", b"2"), ("b", b"2"), (None, b"2")]
    assert await counted(pools, queue) == 0
    assert len(await sources(pools, queue)) == 5


async def test_what_is_pending_goes_before_what_is_replayed(machine: Machine, queue: Policy, pools: Pools) -> None:
    await machine.enqueue(queue, Batch(payloads=[b"old", b"old"], keys=["a", "b"]))
    await drain(machine, queue)
    (seq,) = await machine.enqueue(queue, Batch(payloads=[b"new"], keys=["a"]))
    done = await machine.engine.core(Replays).replay(queue, None)
    assert (done.enqueued, done.skipped) == (1, 1)
    first, second = await machine.claim(queue, 5)
    assert (first.seq, first.payload, second.payload) == (seq, b"new", b"old")
    assert await counted(pools, queue) == 0


async def test_what_has_outlived_its_time_does_not_keep_a_key(machine: Machine, queue: Policy, pools: Pools) -> None:
    await machine.enqueue(queue, Batch(payloads=[b"old"], keys=["a"]))
    await drain(machine, queue)
    await machine.enqueue(queue, Batch(payloads=[b"brief"], keys=["a"], ttls_ms=[1]))
    await outlived(pools.rest, queue)
    assert (await machine.engine.core(Replays).replay(queue, None)).enqueued == 1
    (job,) = await machine.claim(queue, 5)
    assert job.payload == b"old"
    assert await counted(pools, queue) == 0


async def test_producers_of_the_same_keys_meanwhile(machine: Machine, queue: Policy, pools: Pools) -> None:
    keys: list[str | None] = [f"k{n}" for n in range(60)]
    await machine.enqueue(queue, Batch(payloads=[b"old"] * 60, keys=keys))
    await drain(machine, queue)

    async def produce() -> None:
        for n in range(0, 60, 3):
            await machine.enqueue(queue, Batch(payloads=[b"new"] * 3, keys=keys[::-1][n : n + 3]))

    done, *_ = await asyncio.gather(in_batches(machine.engine, 7).replay(queue, None), produce(), produce())
    assert done.enqueued + done.skipped == 60
    rows = await pools.rest.fetch("SELECT key, payload FROM holdfast.jobs WHERE topic = $1", queue.topic.name)
    assert sorted(map(tuple, rows)) == sorted((key, b"new") for key in keys)
    assert await counted(pools, queue) == 0


async def test_a_dead_letters_key_is_data(machine: Machine, topic: str, make_queue: Make, pools: Pools) -> None:
    dead = await make_queue(f"{topic}.dlq", replayable=True)
    source = await make_queue(topic, max_deliveries=1, dead_letter=dead.topic.name)
    for _ in range(2):
        await machine.enqueue(source, Batch(payloads=[b"1"], keys=["a"]))
        (job,) = await machine.claim(source)
        await machine.engine.settlements.nack(source, [held(job)], [Return()])
    await drain(machine, dead)
    (one, other) = await archived(pools, dead)
    assert (one.key, one.original_topic, one.first_topic_id) == ("a", topic, source.topic.id)
    assert one.first_seq != other.first_seq
    done = await machine.engine.core(Replays).replay(dead, None)
    assert (done.enqueued, done.skipped) == (2, 0)
    assert {job.original_topic for job in await machine.claim(dead, 5)} == {None}


async def test_the_log_is_paged_newest_first_and_purged_by_time(machine: Machine, queue: Policy, pools: Pools) -> None:
    seqs = []
    for _ in range(5):
        seqs += await complete(machine, queue, 4)
    pages, before = [], None
    while page := await archive.page(pools.rest, queue.topic, ArchivePart(before=before), 3):
        pages += [row.seq for row in page]
        before = archive.ArchivePlace(page[-1].finished_at, page[-1].seq)
    assert pages == seqs[::-1]
    assert [row.seq for row in await archive.page(pools.rest, queue.topic, ArchivePart(offset=5), 3)] == seqs[::-1][5:8]
    assert await archive.count(pools.rest, queue.topic, 0, 100) == 20
    assert await archive.count(pools.rest, queue.topic, 0, 7) == 7
    middle = (await archived(pools, queue))[10].finished_at
    ever = datetime(2000, 1, 1, tzinfo=UTC)
    same = sum(row.finished_at >= middle for row in await archived(pools, queue))
    gone = [await archive.delete(pools.rest, (queue.topic.name, queue.topic.id), ever, middle, 3) for _ in range(4)]
    assert sum(gone) == 20 - same
    assert max(gone) == 3
    assert [row.seq for row in await archived(pools, queue)] == seqs[::-1][:same]


async def test_purges_at_once_delete_each_row_once(machine: Machine, queue: Policy, pools: Pools) -> None:
    await complete(machine, queue, 500)
    ever, end = datetime(2000, 1, 1, tzinfo=UTC), datetime(3000, 1, 1, tzinfo=UTC)

    async def purge() -> int:
        count = 0
        while gone := await archive.delete(pools.rest, (queue.topic.name, queue.topic.id), ever, end, 50):
            count += gone
        return count

    assert sum(await asyncio.gather(*(purge() for _ in range(4)))) == 500
    assert await archived(pools, queue) == []


async def test_what_lies_beyond_the_window_is_not_shown(machine: Machine, queue: Policy, pools: Pools) -> None:
    await complete(machine, queue, 2)

    async def over() -> bool:
        return await archive.page(pools.rest, queue.topic, ArchivePart(50), 10) == []

    await until(over, "they are older than 50 ms")
    assert await archive.count(pools.rest, queue.topic, 50, 10) == 0
    assert len(await archived(pools, queue)) == 2
