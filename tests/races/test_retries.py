"""Fails and refunds that meet another verb on the same job."""

from __future__ import annotations

import asyncio

import pytest

from app.kernel.claim import consumer
from app.kernel.claim.consumer import NackResult, Return
from app.kernel.model import Connection, HeldJob
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine
from tests.queue.calls import batch, events, held, lease_ended, put, row, take
from tests.queue.tallies import tallied
from tests.races.rivals import Rivals


@pytest.mark.parametrize("by", ["lease", "node"])
async def test_a_fail_that_meets_a_heartbeat_is_done(by: str, queue: Policy, rivals: Rivals, machine: Machine) -> None:
    await put(rivals.one, queue, batch())
    (job,) = await take(rivals.one, queue)
    holder = held(job) if by == "lease" else HeldJob(job.seq, None, "worker")
    heartbeat = rivals.one.transaction()
    await heartbeat.start()
    assert await consumer.extend(rivals.one, queue.topic, [held(job)], [60_000])
    late = asyncio.create_task(machine.engine.settlements.fail(queue, [holder], ["no"]))
    await rivals.meet()
    await heartbeat.commit()
    assert await late == {0}
    assert await events(rivals.one, queue, job.seq) == ["enqueued", "claimed", "extended", "failed"]
    assert await tallied(rivals.one, queue)


async def test_a_fail_that_meets_an_ack_is_none(queue: Policy, rivals: Rivals, machine: Machine) -> None:
    """It has found the lease by then; the lease is gone when its turn comes."""
    await put(rivals.one, queue, batch())
    (job,) = await take(rivals.one, queue)
    first = rivals.one.transaction()
    await first.start()
    assert await consumer.ack(rivals.one, queue.topic, [held(job)]) == {0}
    late = asyncio.create_task(machine.engine.settlements.fail(queue, [held(job)], [None]))
    await rivals.meet()
    await first.commit()
    assert await late == set()
    assert await events(rivals.one, queue, job.seq) == ["enqueued", "claimed", "acked"]
    assert await tallied(rivals.one, queue)


async def test_of_two_who_ask_for_a_delivery_one_is_given_it(queue: Policy, rivals: Rivals) -> None:
    await put(rivals.one, queue, batch())
    (job,) = await take(rivals.one, queue)

    async def nack(db: Connection) -> NackResult:
        return await consumer.nack(db, queue.topic, queue.budget, [held(job)], [Return(refunds=3)])

    first = rivals.one.transaction()
    await first.start()
    assert (await nack(rivals.one)).refunded == {0}
    late = asyncio.create_task(nack(rivals.other))
    await rivals.meet()
    await first.commit()
    returned = await late
    assert (returned.done, returned.refunded) == (set(), set())
    found = await row(rivals.one, queue, job.seq)
    assert found is not None
    assert (found["deliveries"], found["refunds"]) == (0, 1)
    assert await tallied(rivals.one, queue)


async def test_of_two_claims_that_meet_an_ended_lease_one_counts_the_crash(queue: Policy, rivals: Rivals) -> None:
    """The other goes without, and does not wait."""
    await put(rivals.one, queue, batch())
    (dead,) = await take(rivals.one, queue, lease_ms=100)

    async def claim(db: Connection) -> list[int]:
        return [job.crashes for job in await take(db, queue)]

    await lease_ended(rivals.observer, queue, dead)
    first = rivals.one.transaction()
    await first.start()
    assert await claim(rivals.one) == [1]
    assert await claim(rivals.other) == []
    await first.commit()
    assert await claim(rivals.other) == []
    found = await row(rivals.one, queue, dead.seq)
    assert found is not None
    assert found["crashes"] == 1
