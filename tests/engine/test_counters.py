"""How many are ready and in flight: exact at any depth; at most a second old where many wait whose time has come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from app.base.db.pool import Pools
from app.kernel.claim.consumer import Return
from app.kernel.counts import inspector
from app.kernel.model import Batch
from app.kernel.topics import store
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine
from tests.queue.calls import Session, batch, held, lease_ended, put, until

MakeQueue = Callable[..., Awaitable[Policy]]
Connect = Callable[[], Awaitable[Session]]
FRESH = 1.0  # seconds


async def counts(machine: Machine, queue: Policy) -> tuple[int, int]:
    shown = await machine.engine.counters.read(queue)
    return shown.ready, shown.in_flight


async def ticked(machine: Machine, times: int = 1) -> None:
    """Rounds of the ticker, now."""
    for _ in range(times):
        await machine.engine.marks.tick(machine.engine.marks.used_since(0))


async def test_they_are_exact_whoever_asks(
    start: Callable[[], Machine], machine: Machine, queue: Policy, pools: Pools
) -> None:
    there = start()

    async def both() -> tuple[int, int]:
        here = await counts(machine, queue)
        assert await counts(there, queue) == here
        return here

    assert await both() == (0, 0)
    await machine.enqueue(queue, batch(5, delays_ms=[60_000]))
    assert await both() == (4, 0), "a delayed job counts in neither"
    jobs = await there.claim(queue, 3, lease_ms=150)
    assert await both() == (1, 3)
    assert await machine.engine.settlements.ack(queue, [held(jobs[0])]) == {0}
    assert await both() == (1, 2)
    assert await machine.engine.settlements.nack(queue, [held(jobs[1])], [Return()]) == {0}
    assert await both() == (2, 1)
    await lease_ended(pools.rest, queue, jobs[2])
    assert await both() == (3, 0), "whose lease has ended is ready"


async def test_what_will_not_be_delivered_is_not_ready(
    machine: Machine, topic: str, make_queue: MakeQueue, pools: Pools
) -> None:
    queue = await make_queue(topic, max_deliveries=1, dead_letter=f"{topic}.dead")
    await machine.enqueue(queue, 2)
    jobs = await machine.claim(queue, 2, lease_ms=100)
    await machine.enqueue(queue, Batch(payloads=[b"1"] * 3, ttls_ms=[1, 1, 60_000]))
    await lease_ended(pools.rest, queue, jobs[1])

    async def only_one() -> bool:
        return await counts(machine, queue) == (1, 0)

    await until(only_one, "two have outlived their time", seconds=0.5)
    assert len(await machine.claim(queue, 10)) == 1


async def test_a_count_starts_after_it_was_asked_for(machine: Machine, queue: Policy) -> None:
    """Who joins a count that is under way would see what was there before its own verb."""
    await machine.enqueue(queue)
    started, go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        started.set()
        await go_on.wait()

    machine.log.after["count"] = hold
    early = asyncio.create_task(counts(machine, queue))
    await asyncio.wait_for(started.wait(), 5)
    await machine.enqueue(queue)
    late = asyncio.create_task(counts(machine, queue))
    for _ in range(5):
        await asyncio.sleep(0)
    go_on.set()
    assert await early == (1, 0)
    assert await late == (2, 0)


async def test_callers_share_a_count(machine: Machine, queue: Policy) -> None:
    await machine.enqueue(queue, 3)
    assert set(await asyncio.gather(*(counts(machine, queue) for _ in range(64)))) == {(3, 0)}
    assert machine.log.count("count") <= 2


DEEP = 12_000


async def test_a_topic_of_any_depth_is_exact_for_every_process(
    start: Callable[[], Machine], machine: Machine, queue: Policy
) -> None:
    there = start()
    await machine.enqueue(queue, batch(DEEP))
    jobs = await machine.claim(queue, 100)
    assert await counts(machine, queue) == await counts(there, queue) == (DEEP - 100, 100)
    assert len(await there.engine.settlements.ack(queue, [held(job) for job in jobs[:40]])) == 40
    assert await counts(machine, queue) == (DEEP - 100, 60)
    rest = [held(job) for job in jobs[40:]]
    assert len(await machine.engine.settlements.nack(queue, rest, [Return()] * 60)) == 60
    assert await counts(there, queue) == (DEEP - 40, 0)
    await there.enqueue(queue, batch(7))
    assert await counts(machine, queue) == (DEEP - 33, 0)


async def test_a_count_of_a_deep_topic_looks_at_none_of_its_jobs(machine: Machine, queue: Policy, pools: Pools) -> None:
    await machine.enqueue(queue, batch(DEEP))
    shown = await machine.engine.counters.read(queue)
    assert (shown.ready, shown.looked) == (DEEP, 0)


async def test_tallies_are_folded_while_jobs_move(machine: Machine, queue: Policy, pools: Pools) -> None:
    for _ in range(20):
        await machine.enqueue(queue)

    async def one_row() -> bool:
        query = "SELECT count(*) FROM holdfast.tallies WHERE topic_id = $1"
        return bool(await pools.rest.fetchval(query, queue.topic.id) == 1)

    await until(one_row, "twenty tallies are one", seconds=5)
    assert await counts(machine, queue) == (20, 0)
    assert len(await machine.claim(queue, 5)) == 5
    assert await counts(machine, queue) == (15, 5)


async def test_a_tally_that_commits_late_counts(machine: Machine, queue: Policy, connect: Connect) -> None:
    """While it is under way, others are added, folded, and passed over by the low mark."""
    await machine.enqueue(queue)  # makes the lane
    late = await connect()
    transaction = late.transaction()
    await transaction.start()
    await put(late, queue, batch(3))
    for _ in range(3):
        await machine.enqueue(queue)
        await ticked(machine)
    assert await counts(machine, queue) == (4, 0)
    await transaction.commit()
    assert await counts(machine, queue) == (7, 0)
    await ticked(machine, 2)
    assert await counts(machine, queue) == (7, 0)


async def test_folding_in_many_processes_at_once_counts_nothing_twice(
    start: Callable[[], Machine], machine: Machine, queue: Policy
) -> None:
    machines = [machine, *(start() for _ in range(3))]
    for _ in range(10):
        await asyncio.gather(*(one.enqueue(queue, batch(2)) for one in machines for _ in range(3)))
        await asyncio.gather(*(ticked(one) for one in machines))
    assert {await counts(one, queue) for one in machines} == {(10 * 4 * 3 * 2, 0)}


async def test_what_was_written_past_the_service_is_counted_by_the_sweep(
    machine: Machine, queue: Policy, pools: Pools
) -> None:
    await machine.enqueue(queue, 5)
    await pools.rest.execute("DELETE FROM holdfast.jobs WHERE topic = $1 AND seq <= 2", queue.topic.name)
    assert await counts(machine, queue) == (5, 0)
    async with pools.rest.acquire() as db, db.transaction():
        assert await inspector.reconcile(db, queue.topic) == 2
    assert await counts(machine, queue) == (3, 0)
    async with pools.rest.acquire() as db, db.transaction():
        assert await inspector.reconcile(db, queue.topic) == 0


async def test_two_that_reconcile_at_once_add_what_is_missing_once(
    machine: Machine, queue: Policy, pools: Pools, connect: Connect
) -> None:
    await machine.enqueue(queue, 5)
    await pools.rest.execute("DELETE FROM holdfast.jobs WHERE topic = $1 AND seq <= 2", queue.topic.name)
    one, other = await connect(), await connect()
    async with one.transaction():
        assert await inspector.reconcile(one, queue.topic) == 2
        async with other.transaction():
            assert await inspector.reconcile(other, queue.topic) == 0
    assert await counts(machine, queue) == (3, 0)


async def test_a_topic_made_anew_starts_from_nothing(machine: Machine, queue: Policy, make_queue: MakeQueue) -> None:
    await machine.enqueue(queue, batch(20))
    assert await store.delete(machine.pools.rest, queue.topic.name, if_empty=False)
    machine.engine.drop(queue.topic)
    assert await counts(machine, await make_queue(queue.topic.name)) == (0, 0)


async def test_jobs_that_wait_for_their_time_cost_a_count_nothing(machine: Machine, queue: Policy) -> None:
    await machine.enqueue(queue, batch(DEEP, delays_ms=[60_000] * DEEP))
    await machine.enqueue(queue, 3)
    shown = await machine.engine.counters.read(queue)
    assert (shown.ready, shown.in_flight, shown.scheduled, shown.looked) == (3, 0, DEEP, 0)
    assert shown.count == DEEP + 3
    assert len(await machine.claim(queue, 10)) == 3
    assert await counts(machine, queue) == (0, 3)


@pytest.fixture
async def due(machine: Machine, queue: Policy) -> Policy:
    """A queue with more jobs whose time has come than are looked at for an answer."""
    await machine.enqueue(queue, batch(DEEP, delays_ms=[1] * DEEP))

    async def all_of_them() -> bool:
        return (await counts(machine, queue))[0] == DEEP

    await until(all_of_them, "their time has come", seconds=5)
    return queue


async def test_many_due_jobs_are_not_counted_for_every_answer(machine: Machine, due: Policy) -> None:
    before, began = machine.log.count("count"), time.monotonic()
    for _ in range(200):
        assert await counts(machine, due) == (DEEP, 0)
    assert machine.log.count("count") - before <= 1 + (time.monotonic() - began) / 0.8


async def test_what_this_process_does_to_them_shows_at_once(machine: Machine, due: Policy) -> None:
    jobs = await machine.claim(due, 100)
    assert await counts(machine, due) == (DEEP - 100, 100)
    assert len(await machine.engine.settlements.ack(due, [held(job) for job in jobs[:40]])) == 40
    assert await counts(machine, due) == (DEEP - 100, 60)
    await machine.enqueue(due, 7)
    assert await counts(machine, due) == (DEEP - 93, 60)
    assert (await machine.engine.counters.read(due)).count == DEEP - 33


async def test_what_another_process_does_to_them_shows_within_a_second(
    start: Callable[[], Machine], machine: Machine, due: Policy
) -> None:
    there = start()
    await there.claim(due, 300)
    began = time.monotonic()
    while await counts(machine, due) != (DEEP - 300, 300):
        assert time.monotonic() - began < FRESH
        await asyncio.sleep(0.01)


async def test_fewer_due_jobs_are_counted_exactly_again(
    start: Callable[[], Machine], machine: Machine, due: Policy
) -> None:
    there = start()
    for _ in range(5):
        jobs = await there.claim(due, 1_000)
        assert len(await there.engine.settlements.ack(due, [held(job) for job in jobs])) == 1_000
    await asyncio.sleep(FRESH)  # the thing that is tested: nobody asks
    assert await counts(machine, due) == (DEEP - 5_000, 0)
    await there.claim(due, 10)
    assert await counts(machine, due) == (DEEP - 5_010, 10)


async def test_a_deletion_under_way_holds_up_no_other_topic(
    machine: Machine, queue: Policy, topic: str, make_queue: MakeQueue, connect: Connect
) -> None:
    """It locks the topic's sequence, which the ticker asks for how far it was drawn, for as long as it takes."""
    other = await make_queue(f"{topic}.other")
    for one in (queue, other):
        await machine.enqueue(one, 3)
        assert len(await machine.claim(one, 3)) == 3
    deleting = await connect()
    async with deleting.transaction():
        await deleting.execute(f"DROP SEQUENCE holdfast.seq_{queue.topic.id}")
        began = time.monotonic()
        await ticked(machine, 2)
        assert time.monotonic() - began < 1
        assert [reach.after for reach in machine.engine.marks.lows(other.topic.id).lanes] == [3]
        assert await counts(machine, queue) == (0, 3)
