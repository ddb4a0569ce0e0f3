"""Waiting for work: nobody sleeps through it, no more are woken than it takes, and the database is left in peace."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from app.kernel.claim import cursors, waiters
from app.kernel.claim.consumer import Return
from app.kernel.claim.marks import IDLE_SECONDS, TICK_SECONDS
from app.kernel.model import Batch, Job
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine, parked
from tests.queue.calls import batch, held

MakeQueue = Callable[..., Awaitable[Policy]]
Park = Callable[..., Awaitable[list[asyncio.Task[list[Job]]]]]
ELSEWHERE = 1.0  # seconds within which another process's job is found


@pytest.fixture
async def park(
    machine: Machine, queue: Policy
) -> AsyncIterator[Callable[..., Awaitable[list[asyncio.Task[list[Job]]]]]]:
    """Lets claims wait, and ends those that still do."""
    tasks: list[asyncio.Task[list[Job]]] = []

    async def park(count: int, most: int = 1, lease_ms: int = 60_000) -> list[asyncio.Task[list[Job]]]:
        new = [
            asyncio.create_task(machine.claim(queue, most, wait=30, node=f"w{n}", lease_ms=lease_ms))
            for n in range(count)
        ]
        tasks.extend(new)
        await parked(machine, queue, machine.engine.waiters.count(queue.topic.name) + count)
        return new

    yield park
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.fixture
def no_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody comes by to look: what is found is found by a hint or a timer."""
    monkeypatch.setattr(waiters, "POLL_SECONDS", 60.0)


async def test_an_enqueue_wakes_as_many_as_it_has_jobs_for(
    machine: Machine, queue: Policy, park: Park, no_poll: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every claim looks at the due part. Else one that finds nothing, and left that out since it was empty a moment ago,
    # asks once more with it: a statement more for somebody who was woken, and nobody more woken.
    monkeypatch.setattr(cursors, "LOOK_SECONDS", 0.0)
    tasks = await park(10)
    claims = machine.log.count("claim")
    await machine.enqueue(queue, 3)
    done, pending = await asyncio.wait(tasks, timeout=10, return_when=asyncio.FIRST_COMPLETED)
    while len(done) < 3:
        more, pending = await asyncio.wait(pending, timeout=10, return_when=asyncio.FIRST_COMPLETED)
        assert more, "a job is there and nobody was woken"
        done |= more
    assert sorted(task.result()[0].seq for task in done) == [1, 2, 3]
    assert done == set(tasks[:3]), "first come, first served"
    await _settled(machine)
    # A statement that found all it asked for wakes one more, since there may be more: that one finds nothing, and
    # sleeps again. So three jobs cost six statements at most, when none of them meet.
    await parked(machine, queue, 7)
    assert machine.log.count("claim") - claims <= 6


async def test_one_that_wants_many_is_enough_for_many(machine: Machine, queue: Policy) -> None:
    keeper = machine.engine.waiters
    sleepers = [asyncio.create_task(keeper.park(queue.topic, 5, keeper.mark(queue.topic.id), 30)) for _ in range(4)]
    await _turns()
    keeper.wake(queue.topic.id, 7)
    await _turns()
    assert [task.done() for task in sleepers] == [True, True, False, False]
    keeper.wake_all()
    assert await asyncio.gather(*sleepers) == [True] * 4


async def test_who_was_woken_and_left_wakes_the_next(machine: Machine, queue: Policy, no_poll: None) -> None:
    keeper = machine.engine.waiters
    first, second = (
        asyncio.create_task(keeper.park(queue.topic, 1, keeper.mark(queue.topic.id), 30)) for _ in range(2)
    )
    await _turns()
    keeper.wake(queue.topic.id, 1)
    first.cancel()
    assert await asyncio.wait_for(second, 5) is True


async def test_who_leaves_as_it_is_woken_takes_nothing(
    start: Callable[[], Machine], machine: Machine, queue: Policy, park: Park, no_poll: None
) -> None:
    (leaving,) = await park(1)
    await start().enqueue(queue)
    machine.engine.waiters.wake(queue.topic.id, 1)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await machine.engine.claims.drain()
    assert [job.deliveries for job in await machine.claim(queue)] == [1]


async def test_nobody_sleeps_through_what_came_before_it_slept(machine: Machine, queue: Policy) -> None:
    keeper = machine.engine.waiters
    mark = keeper.mark(queue.topic.id)
    keeper.wake(queue.topic.id, 1)
    assert await asyncio.wait_for(keeper.park(queue.topic, 1, mark, 30), 1) is True


async def test_nor_through_what_came_before_all_was_forgotten(
    machine: Machine, queue: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The marks of all topics are thrown away once nobody waits: one taken before must not be taken for unchanged."""
    monkeypatch.setattr(waiters, "POLL_SECONDS", 0.01)
    keeper = machine.engine.waiters
    mark = keeper.mark(queue.topic.id)
    keeper.wake(queue.topic.id, 1)
    await keeper.park(queue.topic, 1, keeper.mark(queue.topic.id), 0.001)
    give_up = time.monotonic() + 5
    while keeper.waits_for(queue.topic.id):
        assert time.monotonic() < give_up
        await asyncio.sleep(0.005)
    assert await asyncio.wait_for(keeper.park(queue.topic, 1, mark, 30), 1) is True


async def test_a_job_that_comes_between_the_claim_and_the_sleep_is_found(
    machine: Machine, queue: Policy, park: Park, no_poll: None
) -> None:
    """One waits already, so that the next to wait does not look by itself."""
    await machine.enqueue(queue)
    assert len(await machine.claim(queue)) == 1  # a lane is known
    await park(1)
    await _settled(machine)
    probes = machine.log.count("probe")
    machine.engine.waiters.wake(queue.topic.id, 0)  # something was heard of: who comes now asks before it sleeps

    async def enqueue_first() -> None:
        del machine.log.after["claim"]
        await machine.enqueue(queue, 2)

    machine.log.after["claim"] = enqueue_first
    jobs = await asyncio.wait_for(machine.claim(queue, wait=20), 10)
    assert len(jobs) == 1
    assert machine.log.count("probe") == probes, "it was found by a look, not by the hint"


async def test_a_job_of_another_process_is_found(
    start: Callable[[], Machine], machine: Machine, queue: Policy, park: Park
) -> None:
    there = start()
    for _ in range(3):
        (task,) = await park(1)
        await there.enqueue(queue)
        began = time.monotonic()
        assert len(await task) == 1
        assert time.monotonic() - began < ELSEWHERE


async def test_many_jobs_of_another_process_wake_many(
    start: Callable[[], Machine], machine: Machine, queue: Policy, park: Park
) -> None:
    """A look wakes one, and who got something wakes the next."""
    tasks = await park(20)
    await start().enqueue(queue, 20)
    began = time.monotonic()
    jobs = await asyncio.gather(*tasks)
    assert time.monotonic() - began < ELSEWHERE + 0.5
    assert sorted(job.seq for (job,) in jobs) == list(range(1, 21))


async def test_what_another_process_returns_is_found(
    start: Callable[[], Machine], machine: Machine, queue: Policy, park: Park
) -> None:
    there = start()
    await there.enqueue(queue)
    (job,) = await there.claim(queue)
    (task,) = await park(1)
    began = time.monotonic()
    await there.engine.settlements.nack(queue, [held(job)], [Return()])
    assert [again.deliveries for again in await task] == [2]
    assert time.monotonic() - began < ELSEWHERE


@pytest.mark.parametrize("delay_ms", [1, 120, 300])
async def test_a_delay_that_ends_wakes(
    delay_ms: int, machine: Machine, queue: Policy, park: Park, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(waiters, "POLL_SECONDS", 60.0)
    (task,) = await park(1)
    began = time.monotonic()
    await machine.enqueue(queue, batch(1, delays_ms=[delay_ms]))
    assert len(await asyncio.wait_for(task, 10)) == 1
    assert delay_ms / 1000 <= time.monotonic() - began < delay_ms / 1000 + 1


async def test_a_lease_that_ends_wakes(machine: Machine, queue: Policy, park: Park, no_poll: None) -> None:
    first, second = await park(2, lease_ms=150)
    await machine.enqueue(queue)
    (job,) = await asyncio.wait_for(first, 10)  # and stays silent
    (again,) = await asyncio.wait_for(second, 10)
    assert (again.seq, again.deliveries) == (job.seq, 2)


async def test_a_return_with_a_delay_wakes(machine: Machine, queue: Policy, park: Park, no_poll: None) -> None:
    await machine.enqueue(queue)
    (job,) = await machine.claim(queue)
    (task,) = await park(1)
    assert await machine.engine.settlements.nack(queue, [held(job)], [Return(delay_ms=100)]) == {0}
    assert [again.deliveries for again in await asyncio.wait_for(task, 10)] == [2]


@pytest.mark.parametrize("what", ["delay", "lease"])
async def test_what_another_process_set_a_time_for_is_found_then(
    what: str, start: Callable[[], Machine], machine: Machine, queue: Policy, park: Park
) -> None:
    there = start()
    if what == "lease":
        await there.enqueue(queue)
        await there.claim(queue, lease_ms=700)
    (task,) = await park(1)
    if what == "delay":
        await there.enqueue(queue, Batch(payloads=[b"1"], delays_ms=[700]))
    began = time.monotonic()
    assert len(await asyncio.wait_for(task, 10)) == 1
    assert time.monotonic() - began < 0.7 + 0.4, "it was found by chance, not on time"


async def test_the_wait_ends_when_it_was_said_to(machine: Machine, queue: Policy) -> None:
    began = time.monotonic()
    assert await machine.claim(queue, wait=0.3) == []
    assert 0.25 <= time.monotonic() - began < 2


async def test_an_idle_fleet_costs_next_to_nothing(machine: Machine, topic: str, make_queue: MakeQueue) -> None:
    queues = [await make_queue(f"{topic}.{n}") for n in range(40)]
    for queue in queues:
        await machine.enqueue(queue)
        assert await machine.engine.settlements.ack(queue, [held(job) for job in await machine.claim(queue)])
    tasks = [asyncio.create_task(machine.claim(queues[n % 40], wait=30, node=f"w{n}")) for n in range(200)]
    for queue in queues:
        await parked(machine, queue, 5)
    assert 0.5 <= await _rate(machine) < 5
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


async def test_a_fleet_that_asks_again_when_its_wait_is_over_costs_no_more(machine: Machine, queue: Policy) -> None:
    """200 workers that wait 30 s each ask as often as 20 that wait 3 s, and so do these."""
    await machine.enqueue(queue)
    assert len(await machine.claim(queue)) == 1

    async def worker(place: int) -> None:
        await asyncio.sleep(place * 0.15)
        while True:
            assert await machine.claim(queue, wait=3, node=f"w{place}") == []

    tasks = [asyncio.create_task(worker(place)) for place in range(20)]
    await parked(machine, queue, 20)
    rate = await _rate(machine)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    assert rate < 5


async def test_a_look_that_fails_is_not_the_last(
    start: Callable[[], Machine], machine: Machine, queue: Policy, park: Park
) -> None:
    async def fail() -> None:
        del machine.log.before["probe"]
        raise ConnectionResetError("gone")

    (task,) = await park(1)
    machine.log.before["probe"] = fail
    while "probe" in machine.log.before:
        await asyncio.sleep(0.01)
    await start().enqueue(queue)
    assert len(await asyncio.wait_for(task, 10)) == 1


async def _turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def _settled(machine: Machine) -> None:
    """Wait until the first looks of those who have just gone to sleep are over."""
    give_up = time.monotonic() + 5
    while machine.engine.waiters._looks:
        assert time.monotonic() < give_up
        await asyncio.sleep(0.01)


async def _rate(machine: Machine) -> float:
    """Statements a second, once what was done before has died away."""
    await asyncio.sleep(IDLE_SECONDS + TICK_SECONDS)
    before, began = len(machine.log.sent), time.monotonic()
    await asyncio.sleep(1.5)
    return (len(machine.log.sent) - before) / (time.monotonic() - began)
