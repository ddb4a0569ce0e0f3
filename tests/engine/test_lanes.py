"""Lanes that appear while others are in use are found: an engine's own at once, another's within a second."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from app.kernel.claim.consumer import Return
from app.kernel.model import Batch, Job
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine
from tests.queue.calls import held

pytestmark = pytest.mark.alone  # all of them measure time

MakeQueue = Callable[..., Awaitable[Policy]]
ELSEWHERE = 1.0  # seconds within which another process's lane is found


async def found(machine: Machine, queue: Policy, seconds: float) -> Job:
    give_up = time.monotonic() + seconds
    while not (jobs := await machine.claim(queue)):
        assert time.monotonic() < give_up, "it was not found"
        await asyncio.sleep(0.01)
    return jobs[0]


async def busy(machine: Machine, queue: Policy) -> None:
    """Make the engine know a lane, and know it freshly."""
    await machine.enqueue(queue)
    assert len(await machine.claim(queue)) == 1


@pytest.mark.parametrize("column", ["priorities", "tenants"])
async def test_a_lane_of_ones_own_is_known_at_once(column: str, machine: Machine, queue: Policy) -> None:
    for lane in range(1, 6):
        await busy(machine, queue)
        value = lane if column == "priorities" else f"tenant {lane}"
        await machine.enqueue(queue, Batch(payloads=[b"1"], **{column: [value]}))  # type: ignore[arg-type]
        assert len(await machine.claim(queue)) == 1


@pytest.mark.parametrize("column", ["priorities", "tenants"])
async def test_a_lane_of_another_process_is_found(
    column: str, start: Callable[[], Machine], machine: Machine, queue: Policy
) -> None:
    await busy(machine, queue)
    value = 9 if column == "priorities" else "elsewhere"
    await start().enqueue(queue, Batch(payloads=[b"1"], **{column: [value]}))  # type: ignore[arg-type]
    await found(machine, queue, ELSEWHERE)


async def test_a_lane_that_appears_while_lanes_are_read_is_known_at_once(machine: Machine, queue: Policy) -> None:
    """The read saw the lanes before the new one: what it brings must not be kept."""
    await busy(machine, queue)
    machine.engine.lanes.forget(queue.topic.id)
    read, go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        del machine.log.after["lanes"]
        read.set()
        await go_on.wait()

    machine.log.after["lanes"] = hold
    early = asyncio.create_task(machine.claim(queue))
    await asyncio.wait_for(read.wait(), 5)
    await machine.enqueue(queue, Batch(payloads=[b"1"], priorities=[7]))
    go_on.set()
    assert len(await early) + len(await machine.claim(queue)) == 1


async def test_a_waiter_gets_a_job_in_a_new_lane_of_another_process(
    start: Callable[[], Machine], machine: Machine, queue: Policy
) -> None:
    await busy(machine, queue)
    waiting = asyncio.create_task(machine.claim(queue, wait=10))
    began = time.monotonic()
    await start().enqueue(queue, Batch(payloads=[b"1"], priorities=[-3]))
    assert len(await waiting) == 1
    assert time.monotonic() - began < ELSEWHERE


async def test_claims_go_by_priority_then_by_what_is_due_then_by_age(machine: Machine, queue: Policy) -> None:
    first = await machine.enqueue(queue, Batch(payloads=[b"1"] * 4, priorities=[0, 5, -5, 5]))
    jobs = await machine.claim(queue, 10)
    assert [job.seq for job in jobs] == [first[1], first[3], first[0], first[2]]
    again = sorted(jobs, key=lambda job: job.seq)
    await machine.engine.settlements.nack(queue, [held(job) for job in again], [Return()] * 4)
    fresh = await machine.enqueue(queue, Batch(payloads=[b"1"] * 3, priorities=[5, 0, -5]))
    assert [job.seq for job in await machine.claim(queue, 10)] == [
        first[1],
        first[3],
        fresh[0],
        first[0],
        fresh[1],
        first[2],
        fresh[2],
    ]


async def test_within_what_is_due_the_longest_overdue_is_first(machine: Machine, queue: Policy) -> None:
    seqs = await machine.enqueue(queue, 3)
    jobs = {job.seq: job for job in await machine.claim(queue, 3)}
    for seq in (seqs[1], seqs[2], seqs[0]):
        await machine.engine.settlements.nack(queue, [held(jobs[seq])], [Return()])
    assert [job.seq for job in await machine.claim(queue, 3)] == [seqs[1], seqs[2], seqs[0]]


async def test_a_lane_of_a_dead_letter_topic_is_known_at_once(
    machine: Machine, topic: str, make_queue: MakeQueue
) -> None:
    queue = await make_queue(topic, max_deliveries=1, dead_letter=f"{topic}.dead")
    dead = await make_queue(f"{topic}.dead")
    await busy(machine, dead)
    for priority in (3, 4):
        await machine.enqueue(queue, Batch(payloads=[b"1"], priorities=[priority]))
        (job,) = await machine.claim(queue)
        assert await machine.engine.settlements.nack(queue, [held(job)], [Return()]) == {0}
        assert len(await machine.claim(dead)) == 1
