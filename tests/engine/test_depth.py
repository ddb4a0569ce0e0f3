"""max_depth, and the caps of a queue that refuses: what a queue may hold, however many processes add to it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from app.base.db.pool import Pools
from app.errors import HoldfastError, Throttled, TopicFull
from app.kernel.claim.consumer import Return
from app.kernel.enqueue.producer import Placement
from app.kernel.model import Batch, Seq
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine
from tests.queue.calls import Session, batch, held, outlived

MakeQueue = Callable[..., Awaitable[Policy]]
Start = Callable[..., Machine]
Connect = Callable[[], Awaitable[Session]]

TALLIED = """
SELECT coalesce(sum(ready + scheduled + blocked + leased), 0)::bigint FROM holdfast.tallies WHERE topic_id = $1
"""
LIVE = """
SELECT count(*) FROM holdfast.jobs
WHERE topic = $1 AND state IN ('ready', 'leased', 'scheduled', 'blocked')
"""


async def put(machine: Machine, policy: Policy, records: Batch | int = 1) -> list[Seq] | HoldfastError:
    """The seqs, or why they were refused."""
    try:
        return await machine.enqueue(policy, records)
    except (Throttled, TopicFull) as error:
        return error


async def live(pools: Pools, policy: Policy) -> int:
    """How many jobs there are, counted one by one."""
    count: int = await pools.rest.fetchval(LIVE, policy.topic.name)
    return count


async def test_what_does_not_fit_is_refused_whole_and_says_why(
    machine: Machine, pools: Pools, topic: str, make_queue: MakeQueue
) -> None:
    queue = await make_queue(topic, max_depth=10)
    assert len(await machine.enqueue(queue, 8)) == 8
    with pytest.raises(Throttled) as refused:
        await machine.enqueue(queue, 3)
    assert refused.value.detail == {"topic": topic, "limit": "max_depth", "max": 10}
    assert await live(pools, queue) == 8
    assert len(await machine.enqueue(queue, 2)) == 2
    with pytest.raises(Throttled):
        await machine.enqueue(queue)
    assert await live(pools, queue) == 10
    assert machine.engine.metrics.topic(topic).refused.value == 4
    assert machine.engine.metrics.topic(topic).enqueued.value == 10


async def test_it_counts_what_is_leased_scheduled_or_returned_and_not_what_is_done(
    machine: Machine, topic: str, make_queue: MakeQueue
) -> None:
    queue = await make_queue(topic, max_depth=4)
    await machine.enqueue(queue, batch(4, delays_ms=[3_600_000]))
    taken = await machine.claim(queue, 2)
    assert isinstance(await put(machine, queue), Throttled)
    await machine.engine.settlements.nack(queue, [held(taken[0])], [Return(delay_ms=60_000)])
    assert isinstance(await put(machine, queue), Throttled)
    await machine.engine.settlements.ack(queue, [held(taken[1])])
    assert isinstance(await put(machine, queue, 2), Throttled)
    assert isinstance(await put(machine, queue), list)
    assert isinstance(await put(machine, queue), Throttled)


async def test_what_has_outlived_its_time_makes_room(
    machine: Machine, topic: str, make_queue: MakeQueue, connect: Connect
) -> None:
    queue = await make_queue(topic, max_depth=3)
    await machine.enqueue(queue, batch(3, ttls_ms=[1, 1]))
    await outlived(await connect(), queue)
    assert isinstance(await put(machine, queue, 3), Throttled)
    assert isinstance(await put(machine, queue, 2), list)
    assert machine.engine.metrics.topic(topic).expired.value == 2


async def test_a_group_is_taken_in_order_as_far_as_there_is_room(
    machine: Machine, pools: Pools, topic: str, make_queue: MakeQueue
) -> None:
    queue = await make_queue(topic, max_depth=10)
    await machine.enqueue(queue)
    sizes = [1, 5, 4, 3, 1]  # the first goes by itself; the others share a statement
    answers = await asyncio.gather(*(put(machine, queue, size) for size in sizes))
    assert [len(answer) if isinstance(answer, list) else type(answer) for answer in answers] == [
        1,
        5,
        Throttled,
        3,
        Throttled,
    ]
    seqs = [seq for answer in answers if isinstance(answer, list) for seq in answer]
    assert seqs == sorted(seqs)
    assert await live(pools, queue) == 10


async def test_it_is_exact_for_producers_in_four_processes(
    start: Start, pools: Pools, topic: str, make_queue: MakeQueue, connect: Connect
) -> None:
    most = 1_000
    queue = await make_queue(topic, max_depth=most, durable=True)
    processes = [start() for _ in range(4)]
    watcher = await connect()
    running = True
    seen = [0]

    async def watch() -> None:
        while running:
            seen.append(await watcher.fetchval(TALLIED, queue.topic.id))

    async def produce(n: int) -> int:
        """Add until it is refused five times; how many were taken."""
        taken = refused = 0
        while refused < 5:
            answer = await put(processes[n % 4], queue, n % 3 + 1)
            taken += len(answer) if isinstance(answer, list) else 0
            refused += not isinstance(answer, list)
        return taken

    async def work(n: int) -> int:
        """Complete some, so that there is room again in the middle of it."""
        jobs = await processes[n].claim(queue, 50, wait=5)
        return len(
            await processes[n].engine.settlements.ack(queue, sorted([held(j) for j in jobs], key=lambda h: h.seq))
        )

    watching = asyncio.create_task(watch())
    (*taken,) = await asyncio.gather(*(produce(n) for n in range(40)), *(work(n) for n in range(4)))
    running = False
    await watching
    done = sum(taken[40:])
    assert done > 0
    assert max(seen) <= most
    there = await live(pools, queue)
    assert there == sum(taken[:40]) - done
    rest = await asyncio.gather(*(put(processes[n % 4], queue) for n in range(most - there + 20)))
    assert sum(isinstance(answer, list) for answer in rest) == most - there
    assert await live(pools, queue) == most


async def test_beyond_ten_thousand_it_is_exact_too(
    start: Start, pools: Pools, topic: str, make_queue: MakeQueue
) -> None:
    queue = await make_queue(topic, max_depth=12_000)
    processes = [start() for _ in range(4)]
    answers = await asyncio.gather(*(put(processes[n % 4], queue, 700) for n in range(40)))
    assert sum(len(answer) for answer in answers if isinstance(answer, list)) == 17 * 700
    assert await live(pools, queue) == 17 * 700


async def test_with_an_idempotency_key_too_and_a_refusal_is_not_kept(
    start: Start, pools: Pools, topic: str, make_queue: MakeQueue
) -> None:
    queue = await make_queue(topic, max_depth=5)
    processes = [start() for _ in range(2)]

    async def once(n: int) -> bool:
        try:
            await processes[n % 2].engine.enqueues.place(queue, batch(1), 10, f"k{n}")
        except Throttled:
            return False
        return True

    taken = await asyncio.gather(*(once(n) for n in range(12)))
    assert sum(taken) == await live(pools, queue) == 5
    [job] = await processes[0].claim(queue)
    await processes[0].engine.settlements.ack(queue, [held(job)])
    refused = taken.index(False)
    placed = await processes[1].engine.enqueues.place(queue, batch(1), 10, f"k{refused}")
    assert isinstance(placed, Placement)
    assert (len(placed.seqs), placed.repeated) == (1, False)


async def test_dead_letters_are_never_refused(
    machine: Machine, pools: Pools, topic: str, make_queue: MakeQueue
) -> None:
    dead = await make_queue(f"{topic}-dead", max_depth=1)
    queue = await make_queue(topic, max_deliveries=1, dead_letter=f"{topic}-dead")
    await machine.enqueue(queue, 3)
    jobs = await machine.claim(queue, 3)
    await machine.engine.settlements.nack(queue, [held(job) for job in jobs], [Return()] * 3)
    assert await live(pools, dead) == 3
    assert isinstance(await put(machine, dead), Throttled)


async def test_a_queue_that_refuses_by_its_caps(machine: Machine, topic: str, make_queue: MakeQueue) -> None:
    queue = await make_queue(topic, cap_records=3, discard="reject")
    await machine.enqueue(queue, 3)
    with pytest.raises(TopicFull) as refused:
        await machine.enqueue(queue)
    assert refused.value.detail == {"cap_records": 3, "cap_bytes": 0}
    by_bytes = await make_queue(f"{topic}-bytes", cap_bytes=100, discard="reject")
    await machine.enqueue(by_bytes, Batch(payloads=[b"x" * 60]))
    assert isinstance(await put(machine, by_bytes, Batch(payloads=[b"x" * 41])), TopicFull)
    assert isinstance(await put(machine, by_bytes, Batch(payloads=[b"x" * 40])), list)
    [job, _] = await machine.claim(by_bytes, 2)
    await machine.engine.settlements.ack(by_bytes, [held(job)])
    assert isinstance(await put(machine, by_bytes, Batch(payloads=[b"x" * 60])), list)


async def test_a_topic_without_a_limit_pays_nothing(machine: Machine, topic: str, make_queue: MakeQueue) -> None:
    queue = await make_queue(topic, discard="reject")  # of what, it doesn't say
    await machine.enqueue(queue, 10)
    await machine.claim(queue)
    assert {name for name, _ in machine.log.sent} == {"add_lanes", "enqueue", "lanes", "claim"} | (
        {name for name, _ in machine.log.sent} & {"draws", "writers", "fold", "heads"}
    )
