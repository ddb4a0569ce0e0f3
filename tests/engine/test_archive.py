"""The archive: of jobs with keys what a replay brings back, and its log, page by page."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime

import pytest

from app.base.db.pool import Pools
from app.features.archive import archive
from app.features.archive.archive import ArchivePart
from app.kernel.model import Batch
from app.kernel.topics.policy import Policy
from tests.engine.archives import archived, complete, counted, replay, sources
from tests.engine.machines import Machine, Make
from tests.queue.calls import outlived, until

EVER, END = datetime(2000, 1, 1, tzinfo=UTC), datetime(3000, 1, 1, tzinfo=UTC)


@pytest.fixture
async def queue(make: Make) -> Policy:
    """A replayable one."""
    return await make(replayable=True)


async def waiting(pools: Pools, queue: Policy) -> list[tuple[str | None, bytes]]:
    """The keys and payloads of its jobs."""
    rows = await pools.rest.fetch(
        "SELECT key, payload FROM holdfast.jobs WHERE topic = $1 ORDER BY seq", queue.topic.name
    )
    return [(row["key"], row["payload"]) for row in rows]


async def test_of_a_key_the_last_one_comes_back(machine: Machine, queue: Policy, pools: Pools) -> None:
    for n in range(3):
        for key in ("a", "b", None):
            await machine.enqueue(queue, Batch(payloads=[b"%d" % n], keys=[key]))
            await complete(machine, queue)
    done = await replay(machine, queue, 2)
    assert (done.enqueued, done.skipped) == (5, 4)
    assert await waiting(pools, queue) == [(None, b"0"), (None, b"1"), ("a", b"2"), ("b", b"2"), (None, b"2")]
    assert await counted(pools, queue) == 0
    assert len(await sources(pools, queue)) == 5


async def test_what_is_pending_goes_before_what_is_replayed_unless_it_has_outlived_its_time(
    machine: Machine, queue: Policy, pools: Pools
) -> None:
    await machine.enqueue(queue, Batch(payloads=[b"old"] * 3, keys=["a", "b", "c"]))
    await complete(machine, queue)
    await machine.enqueue(queue, Batch(payloads=[b"new", b"brief"], keys=["a", "b"], ttls_ms=[None, 1]))
    await outlived(pools.rest, queue)
    done = await replay(machine, queue)
    assert (done.enqueued, done.skipped) == (2, 1)
    assert [(job.key, job.payload) for job in await machine.claim(queue, 5)] == [
        ("a", b"new"),
        ("b", b"old"),
        ("c", b"old"),
    ]
    assert await counted(pools, queue) == 0


async def test_producers_of_the_same_keys_meanwhile(machine: Machine, queue: Policy, pools: Pools) -> None:
    keys: list[str | None] = [f"k{n}" for n in range(60)]
    await machine.enqueue(queue, Batch(payloads=[b"old"] * 60, keys=keys))
    await complete(machine, queue)

    async def produce() -> None:
        for n in range(0, 60, 3):
            await machine.enqueue(queue, Batch(payloads=[b"new"] * 3, keys=keys[::-1][n : n + 3]))

    done, *_ = await asyncio.gather(replay(machine, queue, 7), produce(), produce())
    assert done.enqueued + done.skipped == 60
    assert set(await waiting(pools, queue)) == {(key, b"new") for key in keys}
    assert len(await waiting(pools, queue)) == 60
    assert await counted(pools, queue) == 0


async def test_a_dead_letters_key_is_data(machine: Machine, make: Make, topic: str, pools: Pools) -> None:
    dead = await make(".dlq", replayable=True)
    source = await make(max_deliveries=1, dead_letter=dead.topic.name)
    for _ in range(2):
        await machine.enqueue(source, Batch(payloads=[b"1"], keys=["a"]))
        await machine.nack(source, await machine.claim(source))
    await complete(machine, dead)
    (one, other) = await archived(pools, dead)
    assert (one.key, one.original_topic, one.first_topic_id) == ("a", topic, source.topic.id)
    assert one.first_seq != other.first_seq
    done = await replay(machine, dead)
    assert (done.enqueued, done.skipped) == (2, 0)
    assert {job.original_topic for job in await machine.claim(dead, 5)} == {None}


async def test_the_log_is_paged_newest_first_and_purged_by_time(machine: Machine, queue: Policy, pools: Pools) -> None:
    seqs = [seq for _ in range(5) for seq in await complete(machine, queue, 4)][::-1]
    pages, before = [], None
    while page := await archive.page(pools.rest, queue.topic, ArchivePart(before=before), 3):
        pages += [row.seq for row in page]
        before = archive.ArchivePlace(page[-1].finished_at, page[-1].seq)
    assert pages == seqs
    assert [row.seq for row in await archive.page(pools.rest, queue.topic, ArchivePart(offset=5), 3)] == seqs[5:8]
    assert [await archive.count(pools.rest, queue.topic, 0, most) for most in (100, 7)] == [20, 7]
    middle = (await archived(pools, queue))[10].finished_at
    same = sum(row.finished_at >= middle for row in await archived(pools, queue))
    where = (queue.topic.name, queue.topic.id)
    gone = [await archive.delete(pools.rest, where, EVER, middle, 3) for _ in range(4)]
    assert (sum(gone), max(gone)) == (20 - same, 3)
    assert [row.seq for row in await archived(pools, queue)] == seqs[:same]


async def test_purges_at_once_delete_each_row_once(machine: Machine, queue: Policy, pools: Pools) -> None:
    await complete(machine, queue, 500)

    async def purge() -> int:
        count = 0
        while gone := await archive.delete(pools.rest, (queue.topic.name, queue.topic.id), EVER, END, 50):
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
