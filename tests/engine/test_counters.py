"""How many are ready and in flight: exact where it is cheap, and never older than a second where it is not."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from app.db.pool import Pools
from app.queue.consumer import Return
from app.queue.model import Batch
from app.topics import store
from app.topics.config import Policy
from tests.engine.machines import Machine
from tests.queue.calls import batch, held, lease_ended, until

MakeQueue = Callable[..., Awaitable[Policy]]
FRESH = 1.0  # seconds


async def counts(machine: Machine, queue: Policy) -> tuple[int, int]:
    shown = await machine.engine.counters.read(queue)
    return shown.ready, shown.in_flight


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


@pytest.fixture
async def deep(machine: Machine, queue: Policy) -> Policy:
    """A queue of more jobs than are counted for an answer."""
    await machine.enqueue(queue, batch(12_000))
    assert await counts(machine, queue) == (12_000, 0)
    return queue


async def test_a_deep_topic_is_not_counted_for_every_answer(machine: Machine, deep: Policy) -> None:
    before, began = machine.log.count("count"), time.monotonic()
    for _ in range(200):
        assert await counts(machine, deep) == (12_000, 0)
    assert machine.log.count("count") - before <= 1 + (time.monotonic() - began) / 0.8


async def test_what_this_process_does_to_it_shows_at_once(machine: Machine, deep: Policy) -> None:
    jobs = await machine.claim(deep, 100)
    assert await counts(machine, deep) == (11_900, 100)
    assert len(await machine.engine.settlements.ack(deep, [held(job) for job in jobs[:40]])) == 40
    assert await counts(machine, deep) == (11_900, 60)
    rest = [held(job) for job in jobs[40:]]
    assert len(await machine.engine.settlements.nack(deep, rest, [Return()] * 60)) == 60
    assert await counts(machine, deep) == (11_960, 0)
    await machine.enqueue(deep, 7)
    assert await counts(machine, deep) == (11_967, 0)


async def test_what_another_process_does_to_it_shows_within_a_second(
    start: Callable[[], Machine], machine: Machine, deep: Policy
) -> None:
    there = start()
    await there.claim(deep, 300)
    began = time.monotonic()
    while await counts(machine, deep) != (11_700, 300):
        assert time.monotonic() - began < FRESH
        await asyncio.sleep(0.01)


async def test_nor_is_it_older_when_nobody_has_asked_for_long(
    start: Callable[[], Machine], machine: Machine, deep: Policy
) -> None:
    there = start()
    await there.claim(deep, 500)
    await asyncio.sleep(FRESH)  # the thing that is tested: nobody asks
    assert await counts(machine, deep) == (11_500, 500)


async def test_a_topic_that_was_deep_is_exact_again(
    start: Callable[[], Machine], machine: Machine, deep: Policy
) -> None:
    """Up to 10,000 live jobs, whatever there was before."""
    there = start()
    for _ in range(5):
        jobs = await there.claim(deep, 1_000)
        assert len(await there.engine.settlements.ack(deep, [held(job) for job in jobs])) == 1_000
    await asyncio.sleep(FRESH)
    assert await counts(machine, deep) == (7_000, 0)
    await there.claim(deep, 10)
    assert await counts(machine, deep) == (6_990, 10)


async def test_a_deep_topic_made_anew_starts_from_nothing(
    machine: Machine, deep: Policy, make_queue: MakeQueue
) -> None:
    assert await store.delete(machine.pools.rest, deep.topic.name, if_empty=False)
    machine.engine.drop(deep.topic)
    assert await counts(machine, await make_queue(deep.topic.name)) == (0, 0)


async def test_jobs_that_wait_for_their_time_make_a_topic_deep_too(machine: Machine, queue: Policy) -> None:
    await machine.enqueue(queue, batch(11_000, delays_ms=[60_000] * 11_000))
    await machine.enqueue(queue, 3)
    assert await counts(machine, queue) == (3, 0)
    assert len(await machine.claim(queue, 10)) == 3
    assert await counts(machine, queue) == (0, 3)
