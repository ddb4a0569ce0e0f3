"""Lanes that appear while others are in use are found: an engine's own at once, another's soon."""

from __future__ import annotations

import asyncio

import pytest

from app.kernel.model import Batch
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine, Make, Start, parked
from tests.engine.test_fairness import FOUND, until_claimed

LANES = [{"priorities": [9]}, {"priorities": [-3]}, {"tenants": ["another"]}]


async def busy(machine: Machine, queue: Policy) -> None:
    """Make the engine know a lane, and know it freshly."""
    await machine.enqueue(queue)
    assert len(await machine.claim(queue)) == 1


@FOUND
@pytest.mark.parametrize("lane", LANES, ids=["high", "low", "tenant"])
async def test_a_new_lane_is_found(
    lane: dict[str, list[object]], seconds: float, start: Start, machine: Machine, queue: Policy
) -> None:
    """One's own at once, and another process's by who asks again and again and by who waits."""
    job = Batch(payloads=[b"1"], **lane)  # type: ignore[arg-type]
    asks, waits, there = start(), start(), start()
    for one in (machine, asks, waits):
        await busy(one, queue)
    await machine.enqueue(queue, job)
    assert len(await machine.claim(queue)) == 1
    waiting = asyncio.create_task(waits.claim(queue, wait=30))
    await parked(waits, queue, 1)
    await there.enqueue(queue, job)
    assert len(await asyncio.wait_for(waiting, seconds)) == 1
    await there.enqueue(queue, job)
    assert len(await until_claimed(asks, queue, seconds=seconds)) == 1


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
    await read.wait()
    await machine.enqueue(queue, Batch(payloads=[b"1"], priorities=[7]))
    go_on.set()
    assert len(await early) + len(await machine.claim(queue)) == 1


async def test_a_lane_of_a_dead_letter_topic_is_known_at_once(machine: Machine, make: Make) -> None:
    dead = await make(".dead")
    queue = await make(max_deliveries=1, dead_letter=dead.topic.name)
    await busy(machine, dead)
    for priority in (3, 4):
        await machine.enqueue(queue, Batch(payloads=[b"1"], priorities=[priority]))
        await machine.nack(queue, await machine.claim(queue))
        assert len(await machine.claim(dead)) == 1
