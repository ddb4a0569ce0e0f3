"""A lease that has ended, or was taken by somebody else, lets its former holder do nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest
from asyncpg.pgproto.pgproto import UUID

from app.kernel.claim import consumer
from app.kernel.claim.consumer import Return
from app.kernel.model import Connection, HeldJob, Job, LeaseId
from app.kernel.settle import exit_rows as exits
from app.kernel.settle.exit_rows import Spent
from app.kernel.topics.policy import Policy
from tests.queue.calls import batch, events, held, lease_ended, put, row, take, until
from tests.races.rivals import Rivals

MakeQueue = Callable[..., Awaitable[Policy]]


async def verbs(db: Connection, queue: Policy, holder: HeldJob) -> list[object]:
    """All that a holder can ask for: what had an effect."""
    done: list[object] = [
        await consumer.ack(db, queue.topic, [holder]),
        await consumer.extend(db, queue.topic, [holder], [60_000]),
    ]
    for refunds in (0, 3, None):
        returned = await consumer.nack(db, queue.topic, queue.budget, [holder], [Return(refunds=refunds)])
        done += [returned.done, set(returned.spent)]
    return [one for one in done if one]


async def ways_out(db: Connection, queue: Policy, dead: Policy, seq: int, lease: LeaseId) -> list[object]:
    """What an engine does for a holder whose job has no delivery left: what had an effect."""
    spent = [Spent(seq, lease, "late")]
    done = [
        await exits.move_to_dead_letters(db, queue.topic, queue.budget, spent, dead.topic),
        await exits.fail(db, queue.topic, queue.budget, spent),
        await consumer.still_held(db, queue.topic, [(seq, lease)]),
    ]
    return [one for one in done if one]


@pytest.mark.parametrize("by", ["lease", "node", "both"])
async def test_after_somebody_else_claimed_the_job(by: str, topic: str, make_queue: MakeQueue, rivals: Rivals) -> None:
    # max_deliveries as high as it takes to keep the job, and low enough for the ways out to be open to it.
    queue = await make_queue(topic, max_deliveries=2, dead_letter=f"{topic}.dead")
    dead = await make_queue(f"{topic}.dead")
    await put(rivals.one, queue, batch())
    (first,) = await take(rivals.one, queue, node="first", lease_ms=100)
    await lease_ended(rivals.one, queue, first)
    # A worker that named its lease is told from its namesake, or from itself.
    (second,) = await take(rivals.one, queue, node="second" if by == "node" else "first")
    assert (second.seq, second.deliveries) == (first.seq, 2)
    assert second.lease != first.lease
    before = await row(rivals.one, queue, first.seq)

    assert await verbs(rivals.one, queue, _named(first, "first", by)) == [], "a lease that is over was used"
    assert await ways_out(rivals.one, queue, dead, first.seq, UUID(first.lease)) == []

    assert await row(rivals.one, queue, first.seq) == before
    assert await consumer.ack(rivals.one, queue.topic, [held(second)]) == {0}


@pytest.mark.parametrize("by", ["lease", "node", "both"])
async def test_after_the_lease_ended_though_nobody_claimed_the_job(
    by: str, topic: str, make_queue: MakeQueue, rivals: Rivals
) -> None:
    queue = await make_queue(topic, max_deliveries=1, dead_letter=f"{topic}.dead")
    dead = await make_queue(f"{topic}.dead")
    await put(rivals.one, queue, batch())
    (job,) = await take(rivals.one, queue, node="first", lease_ms=100)
    await lease_ended(rivals.one, queue, job)
    before = await row(rivals.one, queue, job.seq)

    assert await verbs(rivals.one, queue, _named(job, "first", by)) == []
    assert await ways_out(rivals.one, queue, dead, job.seq, UUID(job.lease)) == []
    assert await row(rivals.one, queue, job.seq) == before


@pytest.mark.parametrize("by", ["lease", "node"])
async def test_a_stranger_can_do_nothing(by: str, topic: str, make_queue: MakeQueue, rivals: Rivals) -> None:
    queue = await make_queue(topic, max_deliveries=1, dead_letter=f"{topic}.dead")
    dead = await make_queue(f"{topic}.dead")
    await put(rivals.one, queue, batch(2))
    mine, theirs = await take(rivals.one, queue, 2, node="owner")
    before = await row(rivals.one, queue, mine.seq)

    if by == "lease":
        assert await verbs(rivals.one, queue, HeldJob(mine.seq, UUID(theirs.lease), "owner")) == []
        assert await ways_out(rivals.one, queue, dead, mine.seq, UUID(theirs.lease)) == []
    else:
        assert await verbs(rivals.one, queue, HeldJob(mine.seq, UUID(mine.lease), "other")) == []
    assert await row(rivals.one, queue, mine.seq) == before


async def test_one_whose_clock_stood_still_is_late_all_the_same(queue: Policy, rivals: Rivals) -> None:
    """now() is the start of the transaction: to it the lease is good, and it waits for whoever claims meanwhile."""
    await put(rivals.one, queue, batch())
    (job,) = await take(rivals.one, queue, node="first", lease_ms=1_500)
    asleep = rivals.other.transaction()
    await asleep.start()
    assert await rivals.other.fetchval("SELECT now()") is not None
    await lease_ended(rivals.observer, queue, job)

    async with rivals.first():
        (again,) = await take(rivals.one, queue, node="second")
        late = await rivals.behind(consumer.ack(rivals.other, queue.topic, [held(job)]))

    assert await late == set()
    await asleep.commit()
    assert await events(rivals.one, queue, job.seq) == ["enqueued", "claimed", "claimed"]
    assert await consumer.ack(rivals.one, queue.topic, [held(again)]) == {0}


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("verb", ["ack", "extend"])
async def test_a_verb_under_way_when_its_lease_ends_keeps_the_job(
    verb: str, commits: bool, queue: Policy, rivals: Rivals
) -> None:
    await put(rivals.one, queue, batch())
    (job,) = await take(rivals.one, queue, lease_ms=1_500)
    async with rivals.first(commits=commits):
        if verb == "ack":
            assert await consumer.ack(rivals.one, queue.topic, [held(job)]) == {0}
        else:
            assert list(await consumer.extend(rivals.one, queue.topic, [held(job)], [60_000])) == [0]
        await lease_ended(rivals.observer, queue, job)
        assert await take(rivals.other, queue) == [], "claimed what another session is about to complete, or to keep"
    assert [again.deliveries for again in await take(rivals.other, queue)] == ([] if commits else [2])
    if verb == "extend":
        assert await consumer.ack(rivals.one, queue.topic, [held(job)]) == ({0} if commits else set())


async def test_the_lease_of_a_claim_in_an_old_transaction_is_as_long_as_any(queue: Policy, rivals: Rivals) -> None:
    """Deadlines count from the moment of the claim, not from the start of its transaction."""
    await put(rivals.one, queue, batch())
    async with rivals.first():

        async def old() -> bool:
            return bool(await rivals.one.fetchval("SELECT clock_timestamp() > now() + interval '150 ms'"))

        await until(old, "the transaction is older than the lease it will give")
        (job,) = await take(rivals.one, queue, lease_ms=100)
        ledger = "SELECT extract(epoch FROM until - at) * 1000 FROM holdfast.lease_events WHERE lease_id = $1"
        length = await rivals.one.fetchval(ledger, UUID(job.lease))
    assert 90 <= length <= 101


async def test_of_a_claim_whose_commit_was_lost_the_lease_is_nobodys(queue: Policy, rivals: Rivals) -> None:
    """It was answered, and is not there any more: a standby that was behind was promoted, or a backup was restored."""
    await put(rivals.one, queue, batch())
    async with rivals.first(commits=False):
        (lost,) = await take(rivals.one, queue)
    (job,) = await take(rivals.one, queue)
    assert (job.seq, job.deliveries) == (lost.seq, lost.deliveries)

    assert job.lease != lost.lease, "a lease id was given twice: two holders can ack"
    assert await verbs(rivals.one, queue, held(lost)) == []
    assert await consumer.ack(rivals.one, queue.topic, [held(job)]) == {0}


async def test_held_out_of_order_is_refused(queue: Policy, rivals: Rivals) -> None:
    """Two batches that lock in different orders deadlock: the order is the caller's duty, and is checked."""
    await put(rivals.one, queue, batch(2))
    jobs = await take(rivals.one, queue, 2)
    wrong = [held(job) for job in reversed(jobs)]
    attempts: list[Awaitable[object]] = [
        consumer.ack(rivals.one, queue.topic, wrong),
        consumer.extend(rivals.one, queue.topic, wrong, [1_000, 1_000]),
        consumer.nack(rivals.one, queue.topic, queue.budget, wrong, [Return(), Return()]),
        exits.fail(rivals.one, queue.topic, queue.budget, [Spent(holder.seq, holder.lease) for holder in wrong]),
        exits.move_to_dead_letters(
            rivals.one, queue.topic, queue.budget, [Spent(h.seq, h.lease) for h in wrong], queue.topic
        ),
    ]
    for attempt in attempts:
        with pytest.raises(AssertionError, match="ascend"):
            await attempt
    assert await consumer.ack(rivals.one, queue.topic, [held(job) for job in jobs]) == {0, 1}


def _named(job: Job, node: str, by: str) -> HeldJob:
    lease = None if by == "node" else UUID(job.lease)
    return HeldJob(job.seq, lease, None if by == "lease" else node)
