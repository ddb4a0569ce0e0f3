"""Fails and refunds that meet another verb on the same job."""

from __future__ import annotations

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
    async with rivals.first():
        assert await consumer.extend(rivals.one, queue.topic, [held(job)], [60_000])
        late = await rivals.behind(machine.engine.settlements.fail(queue, [holder], ["no"]))
    assert await late == {0}
    assert await events(rivals.one, queue, job.seq) == ["enqueued", "claimed", "extended", "failed"]
    assert await tallied(rivals.one, queue)


async def test_of_two_who_ask_for_a_delivery_one_is_given_it(queue: Policy, rivals: Rivals) -> None:
    await put(rivals.one, queue, batch())
    (job,) = await take(rivals.one, queue)

    async def nack(db: Connection) -> NackResult:
        return await consumer.nack(db, queue.topic, queue.budget, [held(job)], [Return(refunds=3)])

    async with rivals.first():
        assert (await nack(rivals.one)).refunded == {0}
        late = await rivals.behind(nack(rivals.other))
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
    async with rivals.first():
        assert await claim(rivals.one) == [1]
        assert await claim(rivals.other) == []
    assert await claim(rivals.other) == []
    found = await row(rivals.one, queue, dead.seq)
    assert found is not None
    assert found["crashes"] == 1
