"""Queues with caps that discard what is old: what goes, what stays, and how exact that is."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

from app.base.db.pool import Pools
from app.kernel.model import Batch, Seq
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine, Make, Start
from tests.engine.test_depth import LIVE, TALLIED
from tests.queue.calls import Session, batch, events, lease_ended, outlived
from tests.queue.tallies import tallied

Connect = Callable[[], Awaitable[Session]]

STAYING = """
SELECT coalesce(array_agg(seq ORDER BY seq), '{}') FROM holdfast.jobs
WHERE topic = $1 AND state IN ('ready', 'leased', 'scheduled', 'blocked')
"""


async def staying(pools: Pools, policy: Policy) -> list[Seq]:
    """The seqs of all live jobs."""
    seqs: list[Seq] = await pools.rest.fetchval(STAYING, policy.topic.name)
    return seqs


async def test_the_oldest_goes_with_an_event_whatever_its_priority(
    machine: Machine, pools: Pools, make: Make, topic: str
) -> None:
    queue = await make(cap_records=3)
    assert await machine.enqueue(queue, batch(3, priorities=[9, 0, 5])) == [1, 2, 3]
    assert await machine.enqueue(queue, 2) == [4, 5]
    assert await staying(pools, queue) == [3, 4, 5]
    for seq in (1, 2):
        assert await events(pools.rest, queue, seq) == ["enqueued", "deleted"]
    said = "SELECT detail FROM holdfast.lease_events WHERE topic_id = $1 AND event = 'deleted'"
    assert {row["detail"] for row in await pools.rest.fetch(said, queue.topic.id)} == {"evicted"}
    assert machine.engine.metrics.topic(topic).evicted.value == 2
    assert await tallied(pools.rest, queue)
    assert await machine.enqueue(queue, 5) == [6, 7, 8, 9, 10]
    assert await staying(pools, queue) == [8, 9, 10], "of a batch that is too large the last ones"


async def test_as_many_go_as_their_bytes_need(machine: Machine, pools: Pools, make: Make) -> None:
    queue = await make(cap_bytes=100)
    await machine.enqueue(queue, Batch(payloads=[b"x" * 30] * 3))
    await machine.enqueue(queue, Batch(payloads=[b"x" * 50]))
    assert await staying(pools, queue) == [3, 4]
    assert await tallied(pools.rest, queue)
    await machine.enqueue(queue, Batch(payloads=[b"x" * 21]))
    assert await staying(pools, queue) == [4, 5]
    await machine.enqueue(queue, Batch(payloads=[b"x" * 101]))
    assert await staying(pools, queue) == []


async def test_what_is_leased_or_delayed_stays_and_what_came_back_goes_first(
    machine: Machine, pools: Pools, make: Make
) -> None:
    queue = await make(cap_records=4)
    await machine.enqueue(queue, batch(4, delays_ms=[3_600_000]))
    kept, returned = await machine.claim(queue, 2)
    await machine.nack(queue, [returned])
    assert (kept.seq, returned.seq) == (2, 3)
    await machine.enqueue(queue, 1)
    assert await staying(pools, queue) == [1, 2, 4, 5]
    await machine.enqueue(queue, 4)
    assert await staying(pools, queue) == [1, 2, 8, 9]
    rest = await machine.claim(queue, 2)
    await machine.enqueue(queue, 1)
    assert await staying(pools, queue) == [1, 2, 8, 9], "its own job was the oldest that could go"
    await machine.ack(queue, [kept, *rest])
    assert await tallied(pools.rest, queue)


async def test_a_lease_that_ended_shields_nothing_but_what_is_on_its_way_out(
    machine: Machine, pools: Pools, make: Make
) -> None:
    queue = await make(cap_records=2, max_deliveries=1, dead_letter="dead")
    await machine.enqueue(queue, Batch(payloads=[b"1"] * 2, max_deliveries=[None, 5]))
    for job in await machine.claim(queue, 2, lease_ms=100):
        await lease_ended(pools.rest, queue, job)
    await machine.enqueue(queue, 1)
    assert await staying(pools, queue) == [1, 3]
    assert await events(pools.rest, queue, 2) == ["enqueued", "claimed", "deleted"]
    assert [job.seq for job in await machine.claim(queue, 2)] == [3]
    assert await events(pools.rest, queue, 1) == ["enqueued", "claimed", "dead_lettered"]
    assert await tallied(pools.rest, queue)


async def test_what_has_outlived_its_time_expires_before_anything_is_evicted(
    machine: Machine, pools: Pools, make: Make
) -> None:
    queue = await make(cap_records=3)
    await machine.enqueue(queue, batch(3, ttls_ms=[None, 1, 1]))
    await outlived(pools.rest, queue)
    await machine.enqueue(queue, 2)
    assert await staying(pools, queue) == [1, 4, 5]
    assert await events(pools.rest, queue, 2) == ["enqueued", "expired"]


async def test_what_somebody_is_leasing_at_this_moment_stays(
    start: Start, pools: Pools, make: Make, connect: Connect
) -> None:
    """Its claim is not committed yet, so that it looks as if it waited."""
    queue = await make(cap_records=3)
    claimer, producer = start(), start()
    await producer.enqueue(queue, 3)
    rival = await connect()
    async with rival.transaction():
        await rival.fetchval(
            "SELECT count(*) FROM (SELECT FROM holdfast.jobs WHERE topic = $1 AND seq IN (1, 2) FOR UPDATE) j",
            queue.topic.name,
        )
        await asyncio.wait_for(producer.enqueue(queue, 2), 5)
        assert await staying(pools, queue) == [1, 2, 5]
    assert [job.seq for job in await claimer.claim(queue, 5)] == [1, 2, 5]


async def test_updates_of_waiting_keys_evict_nothing_and_new_keys_do(
    machine: Machine, pools: Pools, topic: str, make: Make
) -> None:
    queue = await make(cap_records=2)
    await machine.enqueue(queue, batch(2, keys=["a", "b"]))
    await machine.enqueue(queue, batch(2, keys=["a", "b"]))
    assert await staying(pools, queue) == [1, 2]
    await machine.enqueue(queue, batch(2, keys=["b", "c"]))
    assert len(await staying(pools, queue)) == 2
    assert {job.key for job in await machine.claim(queue, 3)} == {"b", "c"}
    assert machine.engine.metrics.topic(topic).evicted.value == 1
    assert await tallied(pools.rest, queue)


async def test_max_depth_comes_first(machine: Machine, pools: Pools, topic: str, make: Make) -> None:
    queue = await make(cap_records=2, max_depth=3)
    await machine.enqueue(queue, batch(3, delays_ms=[3_600_000] * 3))
    [refused] = await asyncio.gather(machine.enqueue(queue, 1), return_exceptions=True)
    assert getattr(refused, "detail", None) == {"topic": topic, "limit": "max_depth", "max": 3}
    assert await staying(pools, queue) == [1, 2, 3]


async def test_it_is_exact_for_producers_and_workers_in_four_processes(
    start: Start, pools: Pools, make: Make, connect: Connect
) -> None:
    """Never above the cap as far as anybody sees, and whatever was acknowledged was evicted or handed out once."""
    most = 20
    queue = await make(cap_records=most, durable=True)
    processes = [start() for _ in range(4)]
    watcher = await connect()
    running, seen = True, [0]

    async def watch() -> None:
        while running:
            seen.append(await watcher.fetchval(TALLIED, queue.topic.id))

    async def produce(n: int) -> list[Seq]:
        return [seq for i in range(25) for seq in await processes[n % 4].enqueue(queue, i % 3 + 1)]

    async def work(n: int) -> list[Seq]:
        """Complete what is claimed: all of it, since none of it is evicted meanwhile."""
        done: list[Seq] = []
        while running:
            jobs = await processes[n].claim(queue, 3)
            await processes[n].ack(queue, jobs)
            done += [job.seq for job in jobs]
        return done

    watching, working = asyncio.create_task(watch()), [asyncio.create_task(work(n)) for n in range(2)]
    enqueued = [seq for seqs in await asyncio.gather(*(produce(n) for n in range(16))) for seq in seqs]
    running = False
    await watching
    done = [seq for seqs in await asyncio.gather(*working) for seq in seqs]
    gone = await pools.rest.fetch(
        "SELECT seq FROM holdfast.lease_events WHERE topic_id = $1 AND detail = 'evicted'", queue.topic.id
    )
    assert max(seen) <= most
    assert await pools.rest.fetchval(LIVE, queue.topic.name) <= most
    assert len(gone) > 0
    assert len(done) > 0
    assert sorted([*done, *(row["seq"] for row in gone), *await staying(pools, queue)]) == sorted(enqueued)
    assert await tallied(pools.rest, queue)
