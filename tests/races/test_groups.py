"""Groups under rivals: nothing overtakes, nothing overlaps, nothing is stuck."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from app.features.jobs import requeues
from app.kernel.claim import consumer
from app.kernel.claim.consumer import Return
from app.kernel.enqueue import producer
from app.kernel.enqueue.producer import Placement
from app.kernel.groups import Promotion
from app.kernel.logs.log import TagMatch
from app.kernel.model import Batch, Budget, Topic
from app.kernel.settle import exit_rows as exits
from app.kernel.settle.exit_rows import Spent
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine
from tests.queue.calls import Session, held, lease_ended, outlived, take, until
from tests.queue.tallies import tallied
from tests.queue.test_groups import promote, rows_of_groups, states, work_through, write
from tests.races.rivals import Rivals

MakeQueue = Callable[..., Awaitable[Policy]]
NOTHING = Promotion(0, 0, 0)


@pytest.mark.parametrize("commits", [True, False])
async def test_of_two_producers_the_second_waits_and_comes_second(commits: bool, queue: Policy, rivals: Rivals) -> None:
    """The first has its seq, and commits late: had the second not waited, its job would come out first."""
    async with rivals.first(commits=commits):
        await write(rivals.one, queue, ("a", "1"))
        late = await rivals.behind(write(rivals.other, queue, ("b", "x"), ("a", "2")))
        assert await take(rivals.observer, queue, 10) == []
    assert (await late).ready == (1 if commits else 2)
    assert await work_through(rivals.one, queue) == (["1", "x", "2"] if commits else ["x", "2"])
    assert await tallied(rivals.one, queue)


async def test_batches_of_the_same_groups_in_any_order_do_not_deadlock(queue: Policy, rivals: Rivals) -> None:
    async with rivals.first():
        await write(rivals.one, queue, ("c", "1"))
        late = await rivals.behind(write(rivals.other, queue, ("d", "2"), ("c", "3"), ("b", "4")))
        await write(rivals.one, queue, ("d", "5"))
    assert (await late).ready == 1
    assert await states(rivals.one, queue) == {
        "1": "ready", "5": "ready", "2": "blocked", "3": "blocked", "4": "ready",
    }  # fmt: skip


async def test_of_two_claimers_one_has_the_head_and_the_other_nothing(queue: Policy, rivals: Rivals) -> None:
    await write(rivals.one, queue, ("a", "1"), ("a", "2"))
    async with rivals.first():
        head, *others = await take(rivals.one, queue, 10)
        assert others == [], "two of a group are out"
        assert await take(rivals.other, queue, 10) == [], "two of a group are out"
        assert (await write(rivals.other, queue, ("a", "3"))).ready == 0
    assert await take(rivals.other, queue, 10) == []
    assert await consumer.ack(rivals.one, queue.topic, [held(head)]) == {0}
    await promote(rivals.other, queue)
    assert await work_through(rivals.one, queue) == ["2", "3"]


@pytest.mark.parametrize("commits", [True, False])
async def test_a_follower_that_comes_while_its_head_is_acked_is_not_stuck(
    commits: bool, queue: Policy, rivals: Rivals
) -> None:
    await write(rivals.one, queue, ("a", "1"))
    (head,) = await take(rivals.one, queue)
    async with rivals.first(commits=commits):
        await consumer.ack(rivals.one, queue.topic, [held(head)])
        assert (await write(rivals.other, queue, ("a", "2"))).ready == 0, "the ack may yet be rolled back"
        assert await promote(rivals.other, queue) == NOTHING, "as far as anybody can see, the head is out"
    if not commits:
        assert await promote(rivals.other, queue) == NOTHING
        assert await take(rivals.other, queue, 10) == []
        assert await consumer.ack(rivals.one, queue.topic, [held(head)]) == {0}
    assert await promote(rivals.other, queue) == Promotion(1, 1, 0)
    assert await work_through(rivals.one, queue) == ["2"]
    assert await tallied(rivals.one, queue)


async def test_a_producer_that_meets_the_end_of_its_group_begins_it_anew(queue: Policy, rivals: Rivals) -> None:
    await write(rivals.one, queue, ("a", "1"))
    (head,) = await take(rivals.one, queue)
    await consumer.ack(rivals.one, queue.topic, [held(head)])
    async with rivals.first():
        assert await promote(rivals.one, queue) == Promotion(1, 0, 0)
        late = await rivals.behind(write(rivals.other, queue, ("a", "2"), ("a", "3")))
    assert (await late).ready == 1
    assert await work_through(rivals.one, queue) == ["2", "3"]
    assert await rows_of_groups(rivals.one, queue) == 0


async def test_one_who_lets_through_waits_for_a_producer_and_sees_its_job(queue: Policy, rivals: Rivals) -> None:
    """The producer has found a group with a live job and adds a blocked one. Who did not wait would forget the group,
    and the job with it."""
    await write(rivals.one, queue, ("a", "1"))
    (head,) = await take(rivals.one, queue)
    async with rivals.first():
        assert (await write(rivals.one, queue, ("a", "2"))).ready == 0
        await consumer.ack(rivals.observer, queue.topic, [held(head)])
        late = await rivals.behind(promote(rivals.other, queue))
    assert await late == Promotion(1, 1, 0)
    assert await work_through(rivals.one, queue) == ["2"]


async def test_of_two_who_let_through_one_does(queue: Policy, rivals: Rivals) -> None:
    """Two departures of one group in turn, each seen to by somebody else."""
    await write(rivals.one, queue, ("a", "1"), ("a", "2"), ("a", "3"))
    await exits.delete(rivals.one, queue.topic, TagMatch(), after=0, upto=1, limit=1)
    async with rivals.first():
        assert await promote(rivals.one, queue) == Promotion(1, 1, 0)
        await rivals.observer.execute(  # a second note of the same departure
            "INSERT INTO holdfast.freed_groups (topic_id, tenant, grp) VALUES ($1, '', 'a')", queue.topic.id
        )
        late = await rivals.behind(promote(rivals.other, queue))
    assert await late == Promotion(1, 0, 0)
    assert await states(rivals.one, queue) == {"2": "ready", "3": "blocked"}


@pytest.mark.parametrize("commits", [True, False])
async def test_a_next_one_that_is_being_deleted_is_not_overtaken(commits: bool, queue: Policy, rivals: Rivals) -> None:
    await write(rivals.one, queue, ("a", "1"), ("a", "2"), ("a", "3"))
    (head,) = await take(rivals.one, queue)
    async with rivals.first(commits=commits):
        await exits.delete(rivals.one, queue.topic, TagMatch(), after=1, upto=2, limit=10)
        await consumer.ack(rivals.other, queue.topic, [held(head)])
        assert await promote(rivals.other, queue) == Promotion(1, 0, 0)
        assert await take(rivals.other, queue, 10) == []
    assert await promote(rivals.other, queue) == Promotion(1, 1, 0)
    assert await work_through(rivals.one, queue) == (["3"] if commits else ["2", "3"])
    assert await rows_of_groups(rivals.one, queue) == 0
    assert await tallied(rivals.one, queue)


async def test_a_head_that_is_returned_stays_the_head(queue: Policy, rivals: Rivals) -> None:
    await write(rivals.one, queue, ("a", "1"), ("a", "2"))
    (head,) = await take(rivals.one, queue)
    async with rivals.first():
        await consumer.nack(rivals.one, queue.topic, queue.budget, [held(head)], [Return()])
        await _note(rivals.other, queue)
        assert await promote(rivals.other, queue) == Promotion(1, 0, 0)
    await _note(rivals.other, queue)
    assert await promote(rivals.other, queue) == Promotion(1, 0, 0)
    assert await work_through(rivals.one, queue) == ["1", "2"]


async def test_a_head_that_expires_meanwhile(queue: Policy, rivals: Rivals) -> None:
    await write(rivals.one, queue, ("a", "1"), ("a", "2"), ttls_ms=[1, None])
    await outlived(rivals.one, queue)
    async with rivals.first():
        assert await exits.expire(rivals.one, queue.topic.name, 10) == 1
        await _note(rivals.other, queue)
        assert await promote(rivals.other, queue) == Promotion(1, 0, 0)
    assert await promote(rivals.other, queue) == Promotion(1, 1, 0)
    assert await work_through(rivals.one, queue) == ["2"]


async def test_a_requeue_waits_for_who_lets_through(topic: str, make_queue: MakeQueue, rivals: Rivals) -> None:
    """The group ends at this moment: the requeued job begins it anew."""
    queue = await make_queue(topic, max_deliveries=1, on_exhausted="fail")
    await write(rivals.one, queue, ("a", "1"))
    (head,) = await take(rivals.one, queue, lease_ms=100)
    await lease_ended(rivals.one, queue, head)
    assert await exits.fail(rivals.one, queue.topic, queue.budget, [Spent(head.seq)]) == {0}
    async with rivals.first():
        assert await promote(rivals.one, queue) == Promotion(1, 0, 0)
        place = (queue.topic.name, queue.topic.id)
        late = await rivals.behind(requeues.requeue(rivals.other, place, [head.seq], ttl_ms=0))
    assert [one.outcome for one in await late] == [requeues.RequeueOutcome.REQUEUED]
    assert await promote(rivals.one, queue) == Promotion(1, 1, 0)
    assert await work_through(rivals.one, queue) == ["1"]
    assert await tallied(rivals.one, queue)


async def test_a_requeue_and_a_producer_of_the_same_group(topic: str, make_queue: MakeQueue, rivals: Rivals) -> None:
    """Whoever has the group first: one of the two jobs is out."""
    queue = await make_queue(topic, max_deliveries=1, on_exhausted="fail")
    await write(rivals.one, queue, ("a", "1"))
    (head,) = await take(rivals.one, queue)
    assert await exits.fail(rivals.one, queue.topic, queue.budget, [Spent(head.seq, held(head).lease)]) == {0}
    await promote(rivals.one, queue)
    async with rivals.first():
        await requeues.requeue(rivals.one, (queue.topic.name, queue.topic.id), [head.seq], ttl_ms=0)
        late = await rivals.behind(write(rivals.other, queue, ("a", "2")))
    assert (await late).ready == 0
    await promote(rivals.one, queue)
    assert await states(rivals.one, queue) == {"1": "ready", "2": "blocked"}
    assert await work_through(rivals.one, queue) == ["1", "2"]


async def test_producers_of_a_queue_with_bounds_lock_their_groups_at_once(
    machine: Machine, topic: str, make_queue: MakeQueue, rivals: Rivals, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Callers share a transaction, and the one with group b is first; who lets through locks a, then b."""
    queue = await make_queue(topic, max_depth=1_000)
    await write(rivals.one, queue, ("a", "1"), ("b", "2"))
    await consumer.ack(rivals.one, queue.topic, [held(job) for job in await take(rivals.one, queue, 10)])
    upsert, late = producer.upsert, asyncio.get_running_loop().create_future()
    sent: list[list[str | None]] = []
    pid = rivals.other.get_server_pid()

    async def waits() -> bool:
        return bool(await rivals.observer.fetchval("SELECT cardinality(pg_blocking_pids($1)) > 0", pid))

    async def hold(db: Session, of: Topic, budget: Budget, batch: Batch, *, ttl_ms: int) -> Placement:
        sent.append(batch.groups)
        placed = await upsert(db, of, budget, batch, ttl_ms=ttl_ms)
        if "b" in batch.groups and not late.done():
            late.set_result(asyncio.create_task(promote(rivals.other, queue)))
            await until(waits, "who lets through waits for the producers")
        return placed

    monkeypatch.setattr(producer, "upsert", hold)
    names = ("c", "b", "a")  # the first may go alone; the others share what comes next
    calls = [machine.enqueue(queue, Batch(payloads=[b"3"], groups=[name])) for name in names]
    assert len(await asyncio.gather(*calls)) == 3
    assert [name for names in sent for name in names] == ["c", "b", "a"], "nobody lost a deadlock, and tried again"
    assert await (await late) == Promotion(2, 2, 0)
    assert len(await take(rivals.one, queue, 10)) == 3
    assert await tallied(rivals.one, queue)


async def _note(db: Session, queue: Policy) -> None:
    """As if a job of group a had gone: a note may always be there once too often."""
    await db.execute("INSERT INTO holdfast.freed_groups (topic_id, tenant, grp) VALUES ($1, '', 'a')", queue.topic.id)
