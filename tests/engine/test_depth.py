"""max_depth, and the caps of a queue that refuses: what a queue may hold, however many processes add to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from app.base.db.pool import Pools
from app.errors import Throttled, TopicFull
from app.kernel.claim.consumer import Return
from app.kernel.enqueue.producer import Placement
from app.kernel.model import Batch, Seq
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine, Make, Start
from tests.queue.calls import Session, batch, outlived

Connect = Callable[[], Awaitable[Session]]

TALLIED = """
SELECT coalesce(sum(ready + scheduled + blocked + leased), 0)::bigint FROM holdfast.tallies WHERE topic_id = $1
"""
LIVE = """
SELECT count(*) FROM holdfast.jobs
WHERE topic = $1 AND state IN ('ready', 'leased', 'scheduled', 'blocked')
"""


async def taken(machine: Machine, policy: Policy, records: Batch | int = 1) -> list[Seq]:
    """The seqs; none if they were refused."""
    try:
        return await machine.enqueue(policy, records)
    except (Throttled, TopicFull):
        return []


async def live(pools: Pools, policy: Policy) -> int:
    """How many jobs there are, counted one by one."""
    count: int = await pools.rest.fetchval(LIVE, policy.topic.name)
    return count


async def test_what_does_not_fit_is_refused_whole_and_says_why(
    machine: Machine, pools: Pools, make: Make, topic: str
) -> None:
    queue = await make(max_depth=10)
    assert len(await machine.enqueue(queue, 8)) == 8
    with pytest.raises(Throttled) as refused:
        await machine.enqueue(queue, 3)
    assert refused.value.detail == {"topic": topic, "limit": "max_depth", "max": 10}
    assert len(await machine.enqueue(queue, 2)) == 2
    assert await taken(machine, queue) == []
    assert await live(pools, queue) == 10
    numbers = machine.engine.metrics.topic(topic)
    assert (numbers.refused.value, numbers.enqueued.value) == (4, 10)


async def test_it_counts_what_is_leased_scheduled_or_returned_and_not_what_is_done(
    machine: Machine, make: Make
) -> None:
    """An update of a pending key is no insert, and passes."""
    queue = await make(max_depth=4)
    await machine.enqueue(queue, batch(4, delays_ms=[3_600_000], keys=[None, None, None, "k"]))
    first, second = await machine.claim(queue, 2)
    assert not await taken(machine, queue)
    assert await taken(machine, queue, batch(1, keys=["k"])) == [4]
    await machine.nack(queue, [first], Return(delay_ms=600_000))
    assert not await taken(machine, queue)
    await machine.ack(queue, [second])
    assert not await taken(machine, queue, 2)
    assert await taken(machine, queue)
    assert not await taken(machine, queue)


async def test_what_has_outlived_its_time_makes_room(machine: Machine, make: Make, pools: Pools, topic: str) -> None:
    queue = await make(max_depth=3)
    await machine.enqueue(queue, batch(3, ttls_ms=[1, 1]))
    await outlived(pools.rest, queue)
    assert not await taken(machine, queue, 3)
    assert await taken(machine, queue, 2)
    assert machine.engine.metrics.topic(topic).expired.value == 2


async def test_a_group_is_taken_in_order_as_far_as_there_is_room(machine: Machine, pools: Pools, make: Make) -> None:
    queue = await make(max_depth=10)
    await machine.enqueue(queue)
    sizes = [1, 5, 4, 3, 1]  # the first goes by itself; the others share a statement
    answers = await asyncio.gather(*(taken(machine, queue, size) for size in sizes))
    assert [len(answer) for answer in answers] == [1, 5, 0, 3, 0]
    seqs = [seq for answer in answers for seq in answer]
    assert seqs == sorted(seqs)
    assert await live(pools, queue) == 10


async def test_it_is_exact_for_producers_in_four_processes(
    start: Start, pools: Pools, make: Make, connect: Connect
) -> None:
    most = 400
    queue = await make(max_depth=most, durable=True)
    processes = [start() for _ in range(4)]
    watcher = await connect()
    running, seen = True, [0]

    async def watch() -> None:
        while running:
            seen.append(await watcher.fetchval(TALLIED, queue.topic.id))

    async def produce(n: int) -> int:
        """Add until it is refused five times; how many were taken."""
        added = refused = 0
        while refused < 5:
            count = len(await taken(processes[n % 4], queue, n % 3 + 1))
            added += count
            refused += not count
        return added

    async def work(n: int) -> int:
        """Complete some, so that there is room again in the middle of it."""
        jobs = await processes[n].claim(queue, 20, wait=30)
        await processes[n].ack(queue, jobs)
        return len(jobs)

    watching = asyncio.create_task(watch())
    added, done = await asyncio.gather(
        asyncio.gather(*(produce(n) for n in range(40))), asyncio.gather(*(work(n) for n in range(4)))
    )
    running = False
    await watching
    assert sum(done) > 0
    assert max(seen) <= most
    there = await live(pools, queue)
    assert there == sum(added) - sum(done)
    rest = await asyncio.gather(*(taken(processes[n % 4], queue) for n in range(most - there + 20)))
    assert sum(map(len, rest)) == most - there
    assert await live(pools, queue) == most


async def test_beyond_ten_thousand_it_is_exact_too(start: Start, pools: Pools, make: Make) -> None:
    queue = await make(max_depth=12_000)
    processes = [start() for _ in range(4)]
    answers = await asyncio.gather(*(taken(processes[n % 4], queue, 1_700) for n in range(12)))
    assert sum(map(len, answers)) == await live(pools, queue) == 7 * 1_700


async def test_with_an_idempotency_key_too_and_a_refusal_is_not_kept(start: Start, pools: Pools, make: Make) -> None:
    queue = await make(max_depth=5)
    processes = [start() for _ in range(2)]

    async def once(n: int) -> bool:
        try:
            await processes[n % 2].engine.enqueues.place(queue, batch(1), 10, f"k{n}")
        except Throttled:
            return False
        return True

    accepted = await asyncio.gather(*(once(n) for n in range(12)))
    assert sum(accepted) == await live(pools, queue) == 5
    await processes[0].ack(queue, await processes[0].claim(queue))
    placed = await processes[1].engine.enqueues.place(queue, batch(1), 10, f"k{accepted.index(False)}")
    assert isinstance(placed, Placement)
    assert (len(placed.seqs), placed.repeated) == (1, False)


async def test_dead_letters_are_never_refused(machine: Machine, pools: Pools, make: Make) -> None:
    dead = await make(".dead", max_depth=1)
    queue = await make(max_deliveries=1, dead_letter=dead.topic.name)
    await machine.enqueue(queue, 3)
    await machine.nack(queue, await machine.claim(queue, 3))
    assert await live(pools, dead) == 3
    assert not await taken(machine, dead)


async def test_a_queue_that_refuses_by_its_caps(machine: Machine, make: Make) -> None:
    queue = await make(cap_records=3, discard="reject")
    await machine.enqueue(queue, 3)
    with pytest.raises(TopicFull) as refused:
        await machine.enqueue(queue)
    assert refused.value.detail == {"cap_records": 3, "cap_bytes": 0}
    by_bytes = await make(".bytes", cap_bytes=100, discard="reject")
    await machine.enqueue(by_bytes, Batch(payloads=[b"x" * 60]))
    assert not await taken(machine, by_bytes, Batch(payloads=[b"x" * 41]))
    assert await taken(machine, by_bytes, Batch(payloads=[b"x" * 40]))
    await machine.ack(by_bytes, await machine.claim(by_bytes))
    assert await taken(machine, by_bytes, Batch(payloads=[b"x" * 60]))


async def test_a_topic_without_a_limit_pays_nothing(machine: Machine, make: Make) -> None:
    queue = await make(discard="reject")  # of what, it doesn't say
    await machine.enqueue(queue, 10)
    await machine.claim(queue)
    by_the_clock = {"draws", "writers", "fold", "heads"}
    assert {name for name, _ in machine.log.sent} - by_the_clock == {"add_lanes", "enqueue", "lanes", "claim"}
