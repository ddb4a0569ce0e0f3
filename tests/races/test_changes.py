"""Cancels and changes under rivals: nothing that was cancelled is delivered, and no good lease's verb is lost."""

from __future__ import annotations

from app.kernel.claim import consumer
from app.kernel.claim.consumer import Return
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine
from tests.queue.calls import batch, events, held, put, row, take
from tests.queue.tallies import tallied
from tests.queue.test_changes import cancel
from tests.queue.test_groups import promote, states
from tests.queue.test_groups import write as write_grouped
from tests.queue.test_keys import write
from tests.races.rivals import Rivals


async def test_a_heartbeat_that_waits_for_a_cancel_tells_of_it(queue: Policy, rivals: Rivals) -> None:
    await put(rivals.one, queue, batch(1))
    [job] = await take(rivals.one, queue)
    async with rivals.first():
        await cancel(rivals.one, queue, 1)
        heard: set[int] = set()
        late = await rivals.behind(consumer.extend(rivals.other, queue.topic, [held(job)], [60_000], heard))
    assert set(await late) == {0}
    assert heard == {0}


async def test_a_nack_of_a_job_with_a_key_is_not_lost_on_a_cancel_between_its_statements(
    queue: Policy, rivals: Rivals, machine: Machine
) -> None:
    await write(rivals.one, queue, ("a", "1"), ("b", "2"))
    jobs = await take(rivals.one, queue, 2)

    async def rival() -> None:
        machine.log.before.pop("nack_keyed", None)
        assert await cancel(rivals.one, queue, 1) == (set(), {1})

    machine.log.before["nack_keyed"] = rival
    errors = [Return(error="boom"), Return(error="bang")]
    assert await machine.engine.settlements.nack(queue, [held(job) for job in jobs], errors) == {0, 1}
    assert await row(rivals.one, queue, 1) is None
    assert (await events(rivals.one, queue, 1))[-1] == "cancelled"
    assert (await events(rivals.one, queue, 2))[-1] == "released"
    assert await tallied(rivals.one, queue)


async def test_a_blocked_job_that_is_being_cancelled_is_not_let_through(queue: Policy, rivals: Rivals) -> None:
    await write_grouped(rivals.one, queue, ("a", "1"), ("a", "2"), ("a", "3"))
    [head] = await take(rivals.one, queue)
    await consumer.ack(rivals.one, queue.topic, [held(head)])
    async with rivals.first():
        assert await cancel(rivals.one, queue, 2) == ({2}, set())
        await promote(rivals.other, queue)
        assert (await states(rivals.other, queue))["3"] == "blocked", "the cancel may yet be rolled back"
    await promote(rivals.other, queue)
    assert await states(rivals.other, queue) == {"3": "ready"}
    assert await tallied(rivals.one, queue)


async def test_a_cancel_that_waits_for_a_job_to_be_let_through_ends_it(queue: Policy, rivals: Rivals) -> None:
    await write_grouped(rivals.one, queue, ("a", "1"), ("a", "2"), ("a", "3"))
    [head] = await take(rivals.one, queue)
    await consumer.ack(rivals.one, queue.topic, [held(head)])
    async with rivals.first():
        await promote(rivals.one, queue)
        late = await rivals.behind(cancel(rivals.other, queue, 2))
    assert await late == ({2}, set())
    await promote(rivals.other, queue)
    assert await states(rivals.other, queue) == {"3": "ready"}
    assert await tallied(rivals.one, queue)
