"""Waiting for work: nobody sleeps through it, no more are woken than it takes, and the database is left in peace."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from app.kernel.claim import cursors, waiters
from app.kernel.claim.consumer import Return
from app.kernel.claim.marks import IDLE_SECONDS, TICK_SECONDS
from app.kernel.model import Job
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine, Make, Start, parked
from tests.engine.test_fairness import FOUND
from tests.queue.calls import PATIENCE, batch, until

Park = Callable[..., Awaitable[list[asyncio.Task[list[Job]]]]]


@pytest.fixture
async def park(machine: Machine, queue: Policy) -> AsyncIterator[Park]:
    """Lets claims wait, and ends those that still do."""
    tasks: list[asyncio.Task[list[Job]]] = []

    async def park(count: int, lease_ms: int = 60_000) -> list[asyncio.Task[list[Job]]]:
        before = machine.engine.waiters.count(queue.topic.name)
        claims = [machine.claim(queue, wait=PATIENCE, lease_ms=lease_ms) for _ in range(count)]
        new = [asyncio.create_task(claim) for claim in claims]
        tasks.extend(new)
        await parked(machine, queue, before + count)
        return new

    yield park
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


@pytest.mark.usefixtures("no_poll")
async def test_an_enqueue_wakes_as_many_as_it_has_jobs_for(
    machine: Machine, queue: Policy, park: Park, monkeypatch: pytest.MonkeyPatch
) -> None:
    # Every claim looks at the due part. Else one that finds nothing, and left that out since it was empty a moment ago,
    # asks once more with it: a statement more for somebody who was woken, and nobody more woken.
    monkeypatch.setattr(cursors, "LOOK_SECONDS", 0.0)
    tasks = await park(10)
    claims = machine.log.count("claim")
    await machine.enqueue(queue, 3)
    jobs = await asyncio.gather(*tasks[:3])
    assert sorted(job.seq for (job,) in jobs) == [1, 2, 3], "first come, first served"
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


@pytest.mark.usefixtures("no_poll")
async def test_who_was_woken_and_left_wakes_the_next(machine: Machine, queue: Policy) -> None:
    keeper = machine.engine.waiters
    first, second = (
        asyncio.create_task(keeper.park(queue.topic, 1, keeper.mark(queue.topic.id), 300)) for _ in range(2)
    )
    await _turns()
    keeper.wake(queue.topic.id, 1)
    first.cancel()
    assert await asyncio.wait_for(second, PATIENCE) is True


@pytest.mark.usefixtures("no_poll")
async def test_who_leaves_as_it_is_woken_takes_nothing(
    start: Start, machine: Machine, queue: Policy, park: Park
) -> None:
    (leaving,) = await park(1)
    await start().enqueue(queue)
    machine.engine.waiters.wake(queue.topic.id, 1)
    leaving.cancel()
    with pytest.raises(asyncio.CancelledError):
        await leaving
    await machine.given_back()
    assert [job.deliveries for job in await machine.claim(queue)] == [1]


async def test_nobody_sleeps_through_what_came_before_it_slept(
    machine: Machine, queue: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where marks were thrown away meanwhile, as all are once nobody waits."""
    monkeypatch.setattr(waiters, "POLL_SECONDS", 0.01)
    keeper = machine.engine.waiters
    mark = keeper.mark(queue.topic.id)
    keeper.wake(queue.topic.id, 1)
    assert await asyncio.wait_for(keeper.park(queue.topic, 1, mark, 300), PATIENCE) is True
    mark = keeper.mark(queue.topic.id)
    keeper.wake(queue.topic.id, 1)
    await keeper.park(queue.topic, 1, keeper.mark(queue.topic.id), 0.001)

    async def forgotten() -> bool:
        return not keeper.waits_for(queue.topic.id)

    await until(forgotten, "nobody waits")
    assert await asyncio.wait_for(keeper.park(queue.topic, 1, mark, 300), PATIENCE) is True


@pytest.mark.usefixtures("no_poll")
async def test_a_job_that_comes_between_the_claim_and_the_sleep_is_found(
    machine: Machine, queue: Policy, park: Park
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
    assert len(await machine.claim(queue, wait=PATIENCE)) == 1
    assert machine.log.count("probe") == probes, "it was found by a look, not by the hint"


@FOUND
async def test_what_another_process_makes_or_returns_is_found(
    seconds: float, start: Start, machine: Machine, queue: Policy, park: Park
) -> None:
    """A look wakes one, and who got something wakes the next."""
    there = start()
    tasks = await park(20)
    looks = machine.log.count("probe")
    await there.enqueue(queue, 20)
    jobs = await asyncio.wait_for(asyncio.gather(*tasks), seconds)
    assert sorted(job.seq for (job,) in jobs) == list(range(1, 21))
    assert machine.log.count("probe") - looks <= 3, "one look was enough, and one may have been under way"
    (waiting,) = await park(1)
    await there.nack(queue, jobs[0])
    assert [again.deliveries for again in await asyncio.wait_for(waiting, seconds)] == [2]


@pytest.mark.usefixtures("no_poll")
@pytest.mark.parametrize("what", ["a delay of 1 ms", "a delay", "a lease", "a return with a delay"])
async def test_what_comes_due_wakes(what: str, machine: Machine, queue: Policy, park: Park) -> None:
    if what.startswith("a return"):
        await machine.enqueue(queue)
        returned = await machine.claim(queue)
    first, second = await park(2, lease_ms=150)
    if what.startswith("a return"):
        await machine.nack(queue, returned, Return(delay_ms=150))
    elif what == "a lease":
        await machine.enqueue(queue)
        await first  # and stays silent
    else:
        await machine.enqueue(queue, batch(1, delays_ms=[1 if "1 ms" in what else 150]))
    began = time.monotonic()
    (job,) = await (second if what == "a lease" else first)
    assert job.deliveries == (1 if what.startswith("a delay") else 2)
    assert time.monotonic() - began < PATIENCE / 2, "found as the wait ended, not by a timer"


@pytest.mark.slow
@pytest.mark.parametrize("what", ["delay", "lease"])
async def test_what_another_process_set_a_time_for_is_found_then(
    what: str, start: Start, machine: Machine, queue: Policy, park: Park
) -> None:
    there = start()
    if what == "lease":
        await there.enqueue(queue)
        await there.claim(queue, lease_ms=700)
    (task,) = await park(1)
    if what == "delay":
        await there.enqueue(queue, batch(1, delays_ms=[700]))
    began = time.monotonic()
    assert len(await task) == 1
    assert time.monotonic() - began < 0.7 + 0.4, "it was found by chance, not on time"


async def test_the_wait_ends_when_it_was_said_to(machine: Machine, queue: Policy) -> None:
    began = time.monotonic()
    assert await machine.claim(queue, wait=0.3) == []
    assert time.monotonic() - began >= 0.25


async def test_an_idle_fleet_costs_next_to_nothing(machine: Machine, make: Make) -> None:
    """Two workers on each of ten topics; or whose waits end all the time: 200 that wait 30 s each ask as often as 20
    that wait 3 s."""
    queues = [await make(f".{n}") for n in range(10)]
    for queue in queues:
        await machine.enqueue(queue)
        await machine.ack(queue, await machine.claim(queue))

    async def worker(place: int) -> None:
        await asyncio.sleep(place * 0.15)
        while True:
            assert await machine.claim(queues[0], wait=3, node=f"w{place}") == []

    tasks = [asyncio.create_task(machine.claim(queue, wait=PATIENCE)) for queue in queues for _ in range(2)]
    workers = [asyncio.create_task(worker(place)) for place in range(20)]
    await parked(machine, queues[0], 22)
    rate = await _rate(machine)
    for task in (*tasks, *workers):
        task.cancel()
    await asyncio.gather(*tasks, *workers, return_exceptions=True)
    assert 0.5 <= rate < 5


async def test_a_look_that_fails_is_not_the_last(start: Start, machine: Machine, queue: Policy, park: Park) -> None:
    failed = asyncio.Event()

    async def fail() -> None:
        del machine.log.before["probe"]
        failed.set()
        raise ConnectionResetError("gone")

    (task,) = await park(1)
    machine.log.before["probe"] = fail
    await failed.wait()
    await start().enqueue(queue)
    assert len(await task) == 1


async def _turns() -> None:
    for _ in range(10):
        await asyncio.sleep(0)


async def _settled(machine: Machine) -> None:
    async def over() -> bool:
        return not machine.engine.waiters._looks

    await until(over, "the first looks of those who have just gone to sleep are over")


async def _rate(machine: Machine) -> float:
    """Statements a second, once what was done before has died away."""
    await asyncio.sleep(IDLE_SECONDS + TICK_SECONDS)
    before, began = len(machine.log.sent), time.monotonic()
    await asyncio.sleep(1.5)
    return (len(machine.log.sent) - before) / (time.monotonic() - began)
