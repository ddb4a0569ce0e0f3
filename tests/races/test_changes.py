"""Cancels and changes under rivals: nothing that was cancelled is delivered, and no good lease's verb is lost."""

from __future__ import annotations

import asyncio

from app.features.jobs import changes
from app.features.jobs.changes import Change
from app.kernel.claim import consumer
from app.kernel.claim.consumer import Return
from app.kernel.model import Seq
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine
from tests.queue.calls import batch, events, held, put, row, take
from tests.queue.tallies import tallied
from tests.queue.test_changes import cancel
from tests.queue.test_groups import promote, states
from tests.queue.test_groups import write as write_grouped
from tests.queue.test_keys import write
from tests.races.rivals import Rivals


async def test_a_cancel_that_waits_for_a_claim_marks(queue: Policy, rivals: Rivals) -> None:
    await put(rivals.one, queue, batch(1))
    transaction = rivals.one.transaction()
    await transaction.start()
    [job] = await take(rivals.one, queue)
    late = asyncio.create_task(cancel(rivals.other, queue, 1))
    await rivals.meet()
    await transaction.commit()
    assert await late == (set(), {1})
    assert await consumer.ack(rivals.one, queue.topic, [held(job)]) == {0}
    assert await tallied(rivals.one, queue)


async def test_a_claim_passes_over_what_is_being_cancelled(queue: Policy, rivals: Rivals) -> None:
    await put(rivals.one, queue, batch(2))
    transaction = rivals.one.transaction()
    await transaction.start()
    assert await cancel(rivals.one, queue, 1) == ({1}, set())
    assert [job.seq for job in await take(rivals.other, queue, 10)] == [2]
    await transaction.commit()
    assert await take(rivals.other, queue, 10) == []
    assert await tallied(rivals.one, queue)


async def test_a_cancel_that_waits_for_an_ack_finds_nothing(queue: Policy, rivals: Rivals) -> None:
    await put(rivals.one, queue, batch(1))
    [job] = await take(rivals.one, queue)
    transaction = rivals.one.transaction()
    await transaction.start()
    await consumer.ack(rivals.one, queue.topic, [held(job)])
    late = asyncio.create_task(cancel(rivals.other, queue, 1))
    await rivals.meet()
    await transaction.commit()
    assert await late == (set(), set())
    assert await events(rivals.one, queue, 1) == ["enqueued", "claimed", "acked"]


async def test_an_ack_that_waits_for_a_cancel_completes(queue: Policy, rivals: Rivals) -> None:
    await put(rivals.one, queue, batch(1))
    [job] = await take(rivals.one, queue)
    transaction = rivals.one.transaction()
    await transaction.start()
    assert await cancel(rivals.one, queue, 1) == (set(), {1})
    late = asyncio.create_task(consumer.ack(rivals.other, queue.topic, [held(job)]))
    await rivals.meet()
    await transaction.commit()
    assert await late == {0}
    assert await tallied(rivals.one, queue)


async def test_a_cancel_that_waits_for_a_heartbeat_marks(queue: Policy, rivals: Rivals) -> None:
    await put(rivals.one, queue, batch(1))
    [job] = await take(rivals.one, queue)
    transaction = rivals.one.transaction()
    await transaction.start()
    await consumer.extend(rivals.one, queue.topic, [held(job)], [60_000])
    late = asyncio.create_task(cancel(rivals.other, queue, 1))
    await rivals.meet()
    await transaction.commit()
    assert await late == (set(), {1})


async def test_a_heartbeat_that_waits_for_a_cancel_tells_of_it(queue: Policy, rivals: Rivals) -> None:
    await put(rivals.one, queue, batch(1))
    [job] = await take(rivals.one, queue)
    transaction = rivals.one.transaction()
    await transaction.start()
    await cancel(rivals.one, queue, 1)
    heard: set[int] = set()
    late = asyncio.create_task(consumer.extend(rivals.other, queue.topic, [held(job)], [60_000], heard))
    await rivals.meet()
    await transaction.commit()
    assert set(await late) == {0}
    assert heard == {0}


async def test_a_nack_that_waits_for_a_cancel_does_not_return_it(queue: Policy, rivals: Rivals) -> None:
    await put(rivals.one, queue, batch(1))
    [job] = await take(rivals.one, queue)
    transaction = rivals.one.transaction()
    await transaction.start()
    await cancel(rivals.one, queue, 1)
    late = asyncio.create_task(consumer.nack(rivals.other, queue.topic, queue.budget, [held(job)], [consumer.Return()]))
    await rivals.meet()
    await transaction.commit()
    returned = await late
    assert returned.done == set()
    assert returned.spent[0].cancelled


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


async def test_a_cancel_that_waits_for_a_nack_ends_it(queue: Policy, rivals: Rivals) -> None:
    await put(rivals.one, queue, batch(1))
    [job] = await take(rivals.one, queue)
    transaction = rivals.one.transaction()
    await transaction.start()
    await consumer.nack(rivals.one, queue.topic, queue.budget, [held(job)], [consumer.Return()])
    late = asyncio.create_task(cancel(rivals.other, queue, 1))
    await rivals.meet()
    await transaction.commit()
    assert await late == ({1}, set())
    assert await tallied(rivals.one, queue)


async def test_a_blocked_job_that_is_being_cancelled_is_not_let_through(queue: Policy, rivals: Rivals) -> None:
    await write_grouped(rivals.one, queue, ("a", "1"), ("a", "2"), ("a", "3"))
    [head] = await take(rivals.one, queue)
    await consumer.ack(rivals.one, queue.topic, [held(head)])
    transaction = rivals.one.transaction()
    await transaction.start()
    assert await cancel(rivals.one, queue, 2) == ({2}, set())
    await promote(rivals.other, queue)
    assert (await states(rivals.other, queue))["3"] == "blocked", "the cancel may yet be rolled back"
    await transaction.commit()
    await promote(rivals.other, queue)
    assert await states(rivals.other, queue) == {"3": "ready"}
    assert await tallied(rivals.one, queue)


async def test_a_cancel_that_waits_for_a_job_to_be_let_through_ends_it(queue: Policy, rivals: Rivals) -> None:
    await write_grouped(rivals.one, queue, ("a", "1"), ("a", "2"), ("a", "3"))
    [head] = await take(rivals.one, queue)
    await consumer.ack(rivals.one, queue.topic, [held(head)])
    transaction = rivals.one.transaction()
    await transaction.start()
    await promote(rivals.one, queue)
    late = asyncio.create_task(cancel(rivals.other, queue, 2))
    await rivals.meet()
    await transaction.commit()
    assert await late == ({2}, set())
    await promote(rivals.other, queue)
    assert await states(rivals.other, queue) == {"3": "ready"}
    assert await tallied(rivals.one, queue)


async def test_a_change_that_waits_for_a_claim_is_refused(queue: Policy, rivals: Rivals) -> None:
    await put(rivals.one, queue, batch(1))
    transaction = rivals.one.transaction()
    await transaction.start()
    await take(rivals.one, queue)
    late = asyncio.create_task(changes.change(rivals.other, queue.topic, Seq(1), Change(tag="t")))
    await rivals.meet()
    await transaction.commit()
    assert (await late).status == "leased"


async def test_of_two_changes_the_second_keeps_what_the_first_has_changed(queue: Policy, rivals: Rivals) -> None:
    await put(rivals.one, queue, batch(1))
    transaction = rivals.one.transaction()
    await transaction.start()
    await changes.change(rivals.one, queue.topic, Seq(1), Change(tag="t", priority=3))
    late = asyncio.create_task(changes.change(rivals.other, queue.topic, Seq(1), Change(delay_ms=60_000)))
    await rivals.meet()
    await transaction.commit()
    assert (await late).status == "pending"
    found = await row(rivals.one, queue, 1)
    assert found is not None
    assert (found["tag"], found["priority"], found["state"]) == ("t", 3, "scheduled")
    assert await tallied(rivals.one, queue)
