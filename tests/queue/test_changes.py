"""Jobs that are cancelled or changed by somebody who does not hold them. docs/semantics.md, section 19."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import asyncpg
import pytest
from asyncpg.pgproto.pgproto import UUID

from app.features.jobs import changes
from app.features.jobs.changes import Change, Payload
from app.kernel.claim import consumer
from app.kernel.claim.consumer import Return
from app.kernel.groups import Promotion
from app.kernel.logs.log import TagMatch as Matching
from app.kernel.model import Seq
from app.kernel.settle import exit_rows as exits
from app.kernel.settle.exit_rows import Spent
from app.kernel.topics.policy import Policy
from tests.queue.calls import Session, batch, events, held, lease_ended, put, row, take
from tests.queue.tallies import tallied
from tests.queue.test_groups import promote, states
from tests.queue.test_groups import write as write_grouped
from tests.queue.test_keys import write

MakeQueue = Callable[..., Awaitable[Policy]]


async def cancel(db: Session, policy: Policy, *seqs: int) -> tuple[set[int], set[int]]:
    """What is gone, and what is marked."""
    done = await changes.cancel(db, policy.topic, [Seq(seq) for seq in seqs])
    return {*done.gone}, {*done.marked}


async def change(db: Session, policy: Policy, seq: int, to: Change) -> str | None:
    return (await changes.change(db, policy.topic, Seq(seq), to)).status


async def test_what_waits_is_gone(db: Session, queue: Policy) -> None:
    await put(db, queue, batch(2, delays_ms=[None, 60_000]))
    await write_grouped(db, queue, ("a", "1"), ("a", "2"))
    assert await cancel(db, queue, 1, 2, 4, 77) == ({1, 2, 4}, set())
    [job] = await take(db, queue, 10, lease_ms=100)
    assert job.seq == 3
    assert await events(db, queue, 2) == ["enqueued", "cancelled"]
    assert await cancel(db, queue, 1, 2, 4) == (set(), set())
    await lease_ended(db, queue, job)
    assert await cancel(db, queue, 3) == ({3}, set()), "its lease has ended"
    assert await tallied(db, queue)


async def test_its_holder_learns_of_it_and_may_still_complete_it(db: Session, queue: Policy) -> None:
    await put(db, queue, batch(2))
    jobs = await take(db, queue, 2)
    assert await cancel(db, queue, 1) == (set(), {1})
    assert await cancel(db, queue, 1) == (set(), {1}), "it may be said twice"
    heard: set[int] = set()
    assert set(await consumer.extend(db, queue.topic, [held(job) for job in jobs], [60_000] * 2, heard)) == {0, 1}
    assert heard == {0}
    assert await consumer.ack(db, queue.topic, [held(job) for job in jobs]) == {0, 1}
    assert await events(db, queue, 1) == ["enqueued", "claimed", "updated", "updated", "extended", "acked"]
    assert await tallied(db, queue)


@pytest.mark.parametrize("back", [Return(), Return(60_000), Return(refunds=None), Return(refunds=3)])
async def test_it_is_not_returned(db: Session, queue: Policy, back: Return) -> None:
    await put(db, queue, batch(2))
    jobs = await take(db, queue, 2)
    await cancel(db, queue, 1)
    returned = await consumer.nack(db, queue.topic, queue.budget, [held(job) for job in jobs], [back] * 2)
    assert returned.done == {1}
    [(place, ending)] = returned.spent.items()
    assert (place, ending.cancelled) == (0, True)
    wrong = Spent(1, UUID(bytes(16))), Spent(2, UUID(jobs[1].lease))
    assert await exits.cancel_held(db, queue.topic, wrong) == set(), "of another's lease; not cancelled"
    assert await exits.cancel_held(db, queue.topic, [Spent(1, ending.lease, "why")]) == {0}
    assert await row(db, queue, 1) is None
    assert await events(db, queue, 1) == ["enqueued", "claimed", "updated", "cancelled"]
    assert await tallied(db, queue)


async def test_it_is_no_dead_letter_and_has_not_failed(db: Session, topic: str, make_queue: MakeQueue) -> None:
    queue, dead = await make_queue(topic, max_deliveries=1), await make_queue(f"{topic}.dlq")
    await put(db, queue, batch(1))
    [job] = await take(db, queue, lease_ms=200)
    await cancel(db, queue, 1)
    gives_up = [Spent(1, UUID(job.lease))]
    assert await exits.move_to_dead_letters(db, queue.topic, queue.budget, gives_up, dead.topic) == set()
    assert await exits.fail(db, queue.topic, queue.budget, gives_up) == set()
    await lease_ended(db, queue, job)
    assert await exits.move_to_dead_letters(db, queue.topic, queue.budget, [Spent(1)], dead.topic) == set()
    assert await exits.fail(db, queue.topic, queue.budget, [Spent(1)]) == set()


async def test_once_its_holder_is_dead_it_is_not_delivered_again(db: Session, queue: Policy) -> None:
    await put(db, queue, batch(2))
    [job] = await take(db, queue, lease_ms=100)
    [other] = await take(db, queue)
    await cancel(db, queue, 1, 2)
    await lease_ended(db, queue, job)
    assert await take(db, queue, 10) == []
    seen = exits.ExitCounts()
    assert await exits.expire(db, queue.topic.name, 10, seen=seen) == 1
    assert (seen.cancelled, await row(db, queue, 1)) == (1, None)
    assert await events(db, queue, 1) == ["enqueued", "claimed", "updated", "cancelled"]
    assert await consumer.ack(db, queue.topic, [held(other)]) == {0}, "the sweep leaves a good lease"
    assert await tallied(db, queue)


async def test_a_key_s_next_job_is_another_one(db: Session, queue: Policy) -> None:
    """An update by key does not bring a cancelled job back, nor does its holder's nack overwrite the new one."""
    await write(db, queue, ("a", "1"))
    [job] = await take(db, queue, lease_ms=200)
    await cancel(db, queue, 1)
    assert (await write(db, queue, ("a", "2"))).seqs == [2]
    assert (await consumer.nack_keyed(db, queue.topic, [held(job)], [Return()])).done == set()
    await lease_ended(db, queue, job)
    await cancel(db, queue, 2)
    assert (await write(db, queue, ("a", "3"))).seqs == [3]
    assert await tallied(db, queue)


async def test_the_group_of_a_leased_one_goes_on_at_once(db: Session, queue: Policy) -> None:
    await write_grouped(db, queue, ("a", "1"), ("a", "2"), ("a", "3"))
    [job] = await take(db, queue)
    assert await cancel(db, queue, 1) == (set(), {1})
    await promote(db, queue)
    assert await states(db, queue) == {"1": "leased", "2": "ready", "3": "blocked"}
    await cancel(db, queue, 1)
    await promote(db, queue)
    assert await states(db, queue) == {"1": "leased", "2": "ready", "3": "blocked"}, "once is enough"
    assert await consumer.ack(db, queue.topic, [held(job)]) == {0}, "an ack still completes it"
    assert await promote(db, queue) == Promotion(0, 0, 0), "it left its group when it was cancelled"
    assert await states(db, queue) == {"2": "ready", "3": "blocked"}
    assert await tallied(db, queue)


async def test_a_delete_lets_the_group_of_a_leased_one_go_on(db: Session, queue: Policy) -> None:
    await write_grouped(db, queue, ("a", "1"), ("a", "2"), tags=["t", None])
    await take(db, queue)
    done = await exits.delete(db, queue.topic, Matching(tag="t"), after=0, upto=9, limit=9)
    assert (done.count, done.marked) == (0, 1)
    await promote(db, queue)
    assert await states(db, queue) == {"1": "leased", "2": "ready"}
    assert await tallied(db, queue)


async def test_the_group_of_a_dead_letter_stays_with_it(db: Session, topic: str, make_queue: MakeQueue) -> None:
    queue = await make_queue(topic, max_deliveries=1)
    await write_grouped(db, queue, ("a", "1"))
    [job] = await take(db, queue)
    dead = await make_queue(f"{topic}.dead")
    await exits.move_to_dead_letters(db, queue.topic, queue.budget, [Spent(1, UUID(job.lease))], dead.topic)
    await take(db, dead)
    assert await cancel(db, dead, 1) == (set(), {1})
    assert await db.fetchval("SELECT grp FROM holdfast.jobs WHERE topic = $1", dead.topic.name) == "a"


async def test_a_change_is_of_what_is_given(db: Session, queue: Policy) -> None:
    await put(db, queue, batch(2, tags=["t", "t"], metadata=['{"a":1}'] * 2))
    assert await change(db, queue, 1, Change(payload=Payload(b"long", "text/plain"))) == "pending"
    await change(db, queue, 2, Change(clears=frozenset({"tag", "metadata"})))
    [job, bare] = await take(db, queue, 2)
    assert (job.payload, job.content_type, job.tag, job.metadata) == (b"long", "text/plain", "t", '{"a":1}')
    assert (bare.payload, bare.tag, bare.metadata) == (b'{"n":1}', None, None)
    assert await change(db, queue, 1, Change(tag="u")) == "leased"
    assert await change(db, queue, 77, Change(tag="u")) is None
    await exits.fail(db, queue.topic, queue.budget, [Spent(1, UUID(job.lease))])
    assert await cancel(db, queue, 1) == (set(), set()), "what is over is left"
    assert await change(db, queue, 1, Change(priority=1)) == "failed"
    assert await tallied(db, queue)


async def test_with_another_priority_it_comes_last_of_those(db: Session, queue: Policy) -> None:
    await put(db, queue, batch(3, priorities=[0, 5, 5]))
    await change(db, queue, 1, Change(priority=5))
    assert [job.seq for job in await take(db, queue, 10)] == [2, 3, 1]
    found = await row(db, queue, 1)
    assert found is not None
    assert found["position"] == 4, "a fresh position: claims may have passed its old one"
    assert await tallied(db, queue)


async def test_with_another_priority_a_returned_one_comes_last_of_the_returned(db: Session, queue: Policy) -> None:
    """Claims may have looked already where it stood."""
    await put(db, queue, batch(2, priorities=[0, 5]))
    jobs = await take(db, queue, 2)
    for job in sorted(jobs, key=lambda job: job.seq):
        await consumer.nack(db, queue.topic, queue.budget, [held(job)], [Return()])
    await change(db, queue, 1, Change(priority=5))
    assert [job.seq for job in await take(db, queue, 10)] == [2, 1]


async def test_it_can_be_put_off_and_fetched(db: Session, queue: Policy) -> None:
    await put(db, queue, batch(1))
    await change(db, queue, 1, Change(delay_ms=60_000))
    assert await take(db, queue) == []
    assert await tallied(db, queue)
    await change(db, queue, 1, Change(delay_ms=0))
    assert len(await take(db, queue)) == 1
    assert await tallied(db, queue)


async def test_one_that_is_blocked_stays_so(db: Session, queue: Policy) -> None:
    await write_grouped(db, queue, ("a", "1"), ("a", "2"))
    await change(db, queue, 2, Change(delay_ms=60_000, priority=3))
    assert await states(db, queue) == {"1": "ready", "2": "blocked"}
    await cancel(db, queue, 1)
    await promote(db, queue)
    assert await states(db, queue) == {"2": "scheduled"}
    assert await tallied(db, queue)


async def test_a_lease_that_has_ended_is_over(db: Session, queue: Policy) -> None:
    await put(db, queue, batch(1))
    [job] = await take(db, queue, lease_ms=100)
    await lease_ended(db, queue, job)
    assert await change(db, queue, 1, Change(tag="t")) == "pending"
    found = await row(db, queue, 1)
    assert found is not None
    assert (found["state"], found["lease_id"], found["crashes"]) == ("scheduled", None, 1)
    assert await tallied(db, queue)
    [again] = await take(db, queue)
    assert again.tag == "t"


async def test_one_whose_key_s_newer_job_waits_is_left(db: Session, queue: Policy) -> None:
    await write(db, queue, ("a", "1"))
    [job] = await take(db, queue)
    await write(db, queue, ("a", "2"))
    await consumer.extend(db, queue.topic, [held(job)], [1])
    await lease_ended(db, queue, job)
    with pytest.raises(asyncpg.UniqueViolationError):
        await change(db, queue, 1, Change(tag="t"))
