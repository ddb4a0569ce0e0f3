"""How many are ready and in flight: exact at any depth; at most a second old where many wait whose time has come."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from app.base.db.pool import Pools
from app.kernel.counts import inspector
from app.kernel.model import Batch
from app.kernel.topics import store
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine, Make, Start
from tests.queue.calls import Session, batch, lease_ended, put, until

Connect = Callable[[], Awaitable[Session]]
DEEP = 12_000


async def counts(machine: Machine, queue: Policy) -> tuple[int, int]:
    shown = await machine.engine.counters.read(queue)
    return shown.ready, shown.in_flight


async def ticked(machine: Machine, times: int = 1) -> None:
    """Rounds of the ticker, now."""
    for _ in range(times):
        await machine.engine.marks.tick(machine.engine.marks.used_since(0))


@pytest.mark.parametrize("depth", [0, DEEP])
async def test_they_are_exact_at_any_depth_whoever_asks(
    depth: int, start: Start, machine: Machine, queue: Policy, pools: Pools
) -> None:
    there = start()
    if depth:
        await machine.enqueue(queue, batch(depth))

    async def both() -> tuple[int, int]:
        ready, in_flight = await counts(machine, queue)
        assert await counts(there, queue) == (ready, in_flight)
        return ready - depth, in_flight

    assert await both() == (0, 0)
    await machine.enqueue(queue, batch(5, delays_ms=[600_000]))
    assert await both() == (4, 0), "a delayed job counts in neither"
    jobs = await there.claim(queue, 2)
    assert await both() == (2, 2)
    await machine.ack(queue, jobs[:1])
    assert await both() == (2, 1)
    await machine.nack(queue, jobs[1:])
    assert await both() == (3, 0)
    [silent] = await there.claim(queue, 1, lease_ms=100)
    await lease_ended(pools.rest, queue, silent)
    assert await both() == (3, 0), "whose lease has ended is ready"
    shown = await machine.engine.counters.read(queue)
    assert shown.looked <= 2, "of a deep topic it looks at none but those whose time has come"


async def test_what_will_not_be_delivered_is_not_ready(machine: Machine, make: Make, pools: Pools) -> None:
    queue = await make(max_deliveries=1, dead_letter="dead")
    await machine.enqueue(queue, 2)
    jobs = await machine.claim(queue, 2, lease_ms=100)
    await machine.enqueue(queue, Batch(payloads=[b"1"] * 3, ttls_ms=[1, 1, 600_000]))
    await lease_ended(pools.rest, queue, jobs[1])

    async def only_one() -> bool:
        return await counts(machine, queue) == (1, 0)

    await until(only_one, "two have outlived their time")
    assert len(await machine.claim(queue, 10)) == 1


async def test_callers_share_a_count_that_starts_after_they_asked(machine: Machine, queue: Policy) -> None:
    """Who joins a count that is under way would see what was there before its own verb."""
    await machine.enqueue(queue)
    started, go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        started.set()
        await go_on.wait()

    machine.log.after["count"] = hold
    early = asyncio.create_task(counts(machine, queue))
    await started.wait()
    await machine.enqueue(queue)
    late = [asyncio.create_task(counts(machine, queue)) for _ in range(64)]
    for _ in range(5):
        await asyncio.sleep(0)
    go_on.set()
    assert await early == (1, 0)
    assert set(await asyncio.gather(*late)) == {(2, 0)}
    assert machine.log.count("count") == 2


# Tallies


async def test_tallies_are_folded_while_jobs_move(machine: Machine, queue: Policy, pools: Pools) -> None:
    for _ in range(20):
        await machine.enqueue(queue)

    async def one_row() -> bool:
        query = "SELECT count(*) FROM holdfast.tallies WHERE topic_id = $1"
        return bool(await pools.rest.fetchval(query, queue.topic.id) == 1)

    await until(one_row, "twenty tallies are one")
    assert await counts(machine, queue) == (20, 0)
    assert len(await machine.claim(queue, 5)) == 5
    assert await counts(machine, queue) == (15, 5)


async def test_a_tally_that_commits_late_counts(machine: Machine, queue: Policy, connect: Connect) -> None:
    """While it is under way, others are added, folded, and passed over by the low mark."""
    await machine.enqueue(queue)  # makes the lane
    late = await connect()
    async with late.transaction():
        await put(late, queue, batch(3))
        for _ in range(3):
            await machine.enqueue(queue)
            await ticked(machine)
        assert await counts(machine, queue) == (4, 0)
    assert await counts(machine, queue) == (7, 0)
    await ticked(machine, 2)
    assert await counts(machine, queue) == (7, 0)


async def test_a_fold_of_another_process_that_commits_late_counts(
    machine: Machine, queue: Policy, pools: Pools, connect: Connect
) -> None:
    """The row that it makes is new to the low mark of this one, and it writes no job."""
    await machine.enqueue(queue, 5)
    other = await connect()
    async with other.transaction():
        last = await pools.rest.fetchval("SELECT last_value FROM holdfast.tallies_id_seq")
        await inspector.fold(other, [(queue.topic, 0)], last)
        ticking = asyncio.create_task(ticked(machine))

        async def waits() -> bool:
            return bool(await pools.rest.fetchval("SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted)"))

        await until(waits, "the fold of this one waits for the other's")
    await ticking
    assert await counts(machine, queue) == (5, 0)
    await ticked(machine, 2)
    assert await counts(machine, queue) == (5, 0)


async def test_folding_in_many_processes_at_once_counts_nothing_twice(
    start: Start, machine: Machine, queue: Policy
) -> None:
    machines = [machine, *(start() for _ in range(3))]
    for _ in range(10):
        await asyncio.gather(*(one.enqueue(queue, batch(2)) for one in machines for _ in range(3)))
        await asyncio.gather(*(ticked(one) for one in machines))
    assert {await counts(one, queue) for one in machines} == {(10 * 4 * 3 * 2, 0)}


async def test_what_was_written_past_the_service_is_counted_by_the_sweep_once(
    machine: Machine, queue: Policy, pools: Pools, connect: Connect
) -> None:
    await machine.enqueue(queue, 5)
    await pools.rest.execute("DELETE FROM holdfast.jobs WHERE topic = $1 AND seq <= 2", queue.topic.name)
    assert await counts(machine, queue) == (5, 0)
    one, other = await connect(), await connect()
    async with one.transaction():
        assert await inspector.reconcile(one, queue.topic) == 2
        async with other.transaction():
            assert await inspector.reconcile(other, queue.topic) == 0, "at the same time"
    assert await counts(machine, queue) == (3, 0)
    async with other.transaction():
        assert await inspector.reconcile(other, queue.topic) == 0


async def test_a_topic_made_anew_starts_from_nothing(machine: Machine, queue: Policy, make: Make) -> None:
    await machine.enqueue(queue, batch(20))
    assert await store.delete(machine.pools.rest, queue.topic.name, if_empty=False)
    machine.engine.drop(queue.topic)
    assert await counts(machine, await make()) == (0, 0)


# Jobs that are due, and jobs that will be


async def test_jobs_that_wait_for_their_time_cost_a_count_nothing(machine: Machine, queue: Policy) -> None:
    await machine.enqueue(queue, batch(DEEP, delays_ms=[600_000] * DEEP))
    await machine.enqueue(queue, 3)
    shown = await machine.engine.counters.read(queue)
    assert (shown.ready, shown.in_flight, shown.scheduled, shown.looked) == (3, 0, DEEP, 0)
    assert shown.count == DEEP + 3
    assert len(await machine.claim(queue, 10)) == 3
    assert await counts(machine, queue) == (0, 3)


async def test_many_due_jobs_are_not_counted_for_every_answer(start: Start, machine: Machine, queue: Policy) -> None:
    """What this process does shows at once, and what others do soon. Fewer ones are counted exactly again."""
    await machine.enqueue(queue, batch(DEEP, delays_ms=[1] * DEEP))
    ready = DEEP

    async def shown() -> bool:
        return (await counts(machine, queue))[0] == ready

    await until(shown, "their time has come")
    before, began = machine.log.count("count"), time.monotonic()
    for _ in range(200):
        assert await counts(machine, queue) == (DEEP, 0)
    assert machine.log.count("count") - before <= 1 + (time.monotonic() - began) / 0.8
    jobs = await machine.claim(queue, 100)
    assert await counts(machine, queue) == (DEEP - 100, 100)
    await machine.ack(queue, jobs[:40])
    assert await counts(machine, queue) == (DEEP - 100, 60)
    await machine.enqueue(queue, 7)
    assert await counts(machine, queue) == (DEEP - 93, 60)
    assert (await machine.engine.counters.read(queue)).count == DEEP - 33

    there = start()
    for _ in range(5):
        await there.ack(queue, await there.claim(queue, 1_000))
    ready = DEEP - 93 - 5_000
    await until(shown, "what another process did shows")
    await there.claim(queue, 10)
    assert await counts(machine, queue) == (ready - 10, 70)


async def test_a_deletion_under_way_holds_up_no_other_topic(
    machine: Machine, queue: Policy, make: Make, connect: Connect
) -> None:
    """It locks the topic's sequence, which the ticker asks for how far it was drawn, for as long as it takes."""
    other = await make(".other")
    for one in (queue, other):
        await machine.enqueue(one, 3)
        assert len(await machine.claim(one, 3)) == 3
    deleting = await connect()
    async with deleting.transaction():
        await deleting.execute(f"DROP SEQUENCE holdfast.seq_{queue.topic.id}")
        await asyncio.wait_for(ticked(machine, 2), 10)
        assert [reach.after for reach in machine.engine.marks.lows(other.topic.id).lanes] == [3]
        assert await counts(machine, queue) == (0, 3)
