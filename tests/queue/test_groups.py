"""Groups: of each, one job is out at a time, in the order of enqueueing. docs/semantics.md, section 6."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from app.base.db.pool import Pools
from app.features.jobs import requeues
from app.kernel import groups
from app.kernel import jobs as shown
from app.kernel.claim import consumer
from app.kernel.claim.consumer import Return
from app.kernel.enqueue.producer import Placement
from app.kernel.groups import Promotion
from app.kernel.jobs import Status
from app.kernel.logs.log import TagMatch
from app.kernel.model import Batch, Connection, Job
from app.kernel.settle import exit_rows as exits
from app.kernel.settle.exit_rows import Spent
from app.kernel.settle.results import Keep
from app.kernel.topics import store
from app.kernel.topics.policy import DEFAULTS, Policy
from tests.queue.calls import Session, events, held, lease_ended, outlived, place, take, until
from tests.queue.tallies import tallied

MakeQueue = Callable[..., Awaitable[Policy]]


async def write(db: Session, policy: Policy, *records: tuple[str | None, str], **columns: object) -> Placement:
    """Enqueue records with these groups and payloads."""
    names, payloads = zip(*records, strict=True)
    made = Batch(payloads=[p.encode() for p in payloads], groups=list(names), **columns)  # type: ignore[arg-type]
    return await place(db, policy, made)


async def promote(db: Session, policy: Policy) -> Promotion:
    """See to all departures, as the engine does behind a verb."""
    return await groups.promote(db, policy.topic, 1_000)


async def states(db: Connection, policy: Policy) -> dict[str, str]:
    """Jobs' states by their payloads, in the order of enqueueing."""
    rows = await db.fetch(
        "SELECT convert_from(payload, 'UTF8') AS payload, state::text FROM holdfast.jobs WHERE topic = $1 ORDER BY seq",
        policy.topic.name,
    )
    return {found["payload"]: found["state"] for found in rows}


async def work_through(db: Session, policy: Policy) -> list[str]:
    """Claim and complete one by one, until there is nothing to claim: the payloads."""
    done: list[str] = []
    while jobs := await take(db, policy):
        done.append(jobs[0].payload.decode())
        assert await consumer.ack(db, policy.topic, [held(jobs[0])]) == {0}
        await promote(db, policy)
    return done


async def rows_of_groups(db: Session, policy: Policy) -> int:
    """How many groups the table knows, and departures that nobody has seen to."""
    count: int = await db.fetchval(
        "SELECT (SELECT count(*) FROM holdfast.groups WHERE topic_id = $1) "
        "+ (SELECT count(*) FROM holdfast.freed_groups WHERE topic_id = $1)",
        policy.topic.id,
    )
    return count


async def test_one_of_a_group_is_out_and_groups_are_apart(db: Session, queue: Policy) -> None:
    placed = await write(db, queue, ("a", "a1"), ("b", "b1"), ("a", "a2"), (None, "x"), ("b", "b2"))
    assert (placed.seqs, placed.updated, placed.ready) == ([1, 2, 3, 4, 5], [False] * 5, 3)
    assert (await write(db, queue, ("a", "a3"), ("c", "c1"))).ready == 1
    assert await states(db, queue) == {
        "a1": "ready", "b1": "ready", "a2": "blocked", "x": "ready", "b2": "blocked", "a3": "blocked", "c1": "ready",
    }  # fmt: skip
    jobs = await take(db, queue, 10)
    assert [(job.payload, job.group) for job in jobs] == [(b"a1", "a"), (b"b1", "b"), (b"x", None), (b"c1", "c")]
    assert await promote(db, queue) == Promotion(0, 0, 0)
    assert await consumer.ack(db, queue.topic, [held(job) for job in jobs[:1]]) == {0}
    assert await promote(db, queue) == Promotion(1, 1, 0)
    assert [job.payload for job in await take(db, queue, 10)] == [b"a2"]
    assert await tallied(db, queue)
    assert await events(db, queue, 3) == ["enqueued", "unblocked", "claimed"]


async def test_a_group_is_worked_through_in_its_order_and_forgotten(db: Session, queue: Policy) -> None:
    await write(db, queue, ("a", "1"), ("a", "2"))
    await write(db, queue, ("a", "3"), ("a", "4"), priorities=[9, 0])
    assert await work_through(db, queue) == ["1", "2", "3", "4"]
    assert await rows_of_groups(db, queue) == 0
    placed = await write(db, queue, ("a", "5"), ("a", "6"), ("a", "7"), tenants=["t", "u", "t"])
    assert placed.ready == 2, "tenants have groups of their own"
    assert {job.payload for job in await take(db, queue, 10)} == {b"5", b"6"}
    assert await tallied(db, queue)


async def test_a_delayed_head_blocks_and_a_delayed_follower_waits_from_its_enqueue(db: Session, queue: Policy) -> None:
    placed = await write(
        db, queue, ("a", "1"), ("a", "2"), ("b", "3"), ("b", "4"), delays_ms=[1_500, None, None, 60_000]
    )
    assert placed.ready == 1
    assert await states(db, queue) == {"1": "scheduled", "2": "blocked", "3": "ready", "4": "blocked"}
    assert await work_through(db, queue) == ["3"]
    assert (await states(db, queue))["4"] == "scheduled"

    async def due() -> bool:
        return await work_through(db, queue) == ["1", "2"]

    await until(due, "the delay passes")
    assert await tallied(db, queue)


async def test_a_returned_head_comes_before_its_followers(db: Session, queue: Policy) -> None:
    await write(db, queue, ("a", "1"), ("a", "2"))
    (job,) = await take(db, queue, 10)
    returned = await consumer.nack(db, queue.topic, queue.budget, [held(job)], [Return()])
    assert returned.done == {0}
    assert await promote(db, queue) == Promotion(0, 0, 0)
    (job,) = await take(db, queue, 10, lease_ms=100)
    assert job.payload == b"1"
    await lease_ended(db, queue, job)
    assert await promote(db, queue) == Promotion(0, 0, 0)
    assert await work_through(db, queue) == ["1", "2"]


async def _acked(db: Session, queue: Policy, head: Job) -> None:
    assert await consumer.ack(db, queue.topic, [held(head)]) == {0}


async def _archived(db: Session, queue: Policy, head: Job) -> None:
    assert await consumer.ack(db, queue.topic, [held(head)], keep=Keep(archived=True)) == {0}


async def _completed_by_sql(db: Session, queue: Policy, head: Job) -> None:
    await db.execute("SELECT holdfast.complete($1)", f"{queue.topic.name}:{head.seq}:lease_{head.lease}")


async def _buried(db: Session, queue: Policy, head: Job) -> None:
    dead = await store.get(db, f"{queue.topic.name}.dead", DEFAULTS)
    assert dead is not None
    assert await exits.move_to_dead_letters(
        db, queue.topic, queue.budget, [Spent(head.seq, held(head).lease)], dead.topic
    ) == {0}


async def _failed(db: Session, queue: Policy, head: Job) -> None:
    assert await exits.fail(db, queue.topic, queue.budget, [Spent(head.seq, held(head).lease)]) == {0}


async def _deleted(db: Session, queue: Policy, head: Job) -> None:
    await lease_ended(db, queue, head)
    assert (await exits.delete(db, queue.topic, TagMatch(), after=0, upto=head.seq, limit=10)).count == 1


async def _purged(db: Session, queue: Policy, head: Job) -> None:
    statuses = list(Status)
    assert (await shown.purge(db, queue.topic, statuses, after=0, upto=head.seq, limit=10)).count == 1


async def _gone_with_its_lease(db: Session, queue: Policy, head: Job) -> None:
    await lease_ended(db, queue, head)
    assert await exits.fail(db, queue.topic, queue.budget, [Spent(head.seq)]) == {0}


@pytest.mark.parametrize(
    ("leave", "lease_ms"),
    [
        (_acked, 60_000),
        (_archived, 60_000),
        (_completed_by_sql, 60_000),
        (_buried, 60_000),
        (_failed, 60_000),
        (_deleted, 100),
        (_purged, 60_000),
        (_gone_with_its_lease, 100),
    ],
)
async def test_whatever_takes_a_head_out_lets_the_next_through(
    leave: Callable[[Session, Policy, Job], Awaitable[None]],
    lease_ms: int,
    db: Session,
    topic: str,
    make_queue: MakeQueue,
) -> None:
    queue = await make_queue(topic, max_deliveries=1, dead_letter=f"{topic}.dead")
    await make_queue(f"{topic}.dead")
    await write(db, queue, ("a", "1"), ("a", "2"), ("a", "3"))
    (head,) = await take(db, queue, 10, lease_ms=lease_ms)
    await leave(db, queue, head)
    assert await take(db, queue, 10) == []
    assert await promote(db, queue) == Promotion(1, 1, 0)
    assert [job.payload for job in await take(db, queue, 10)] == [b"2"]
    assert await tallied(db, queue)


async def test_an_expired_head_lets_the_next_through_that_has_not_outlived_its_time(db: Session, queue: Policy) -> None:
    await write(db, queue, ("a", "1"), ("a", "2"), ("a", "3"), ttls_ms=[1, 1, None])
    await outlived(db, queue)
    assert await exits.expire(db, queue.topic.name, 10) == 2
    assert await promote(db, queue) == Promotion(1, 1, 0)
    assert await states(db, queue) == {"1": "expired", "2": "expired", "3": "ready"}
    assert await tallied(db, queue)


async def test_a_blocked_job_that_is_deleted_is_passed_over(db: Session, queue: Policy) -> None:
    await write(db, queue, ("a", "1"), ("a", "2"), ("a", "3"), tags=[None, "x", None])
    assert (await exits.delete(db, queue.topic, TagMatch(tag="x"), after=0, upto=3, limit=10)).count == 1
    assert await rows_of_groups(db, queue) == 1, "nothing was freed by that"
    assert await work_through(db, queue) == ["1", "3"]
    assert await tallied(db, queue)


async def requeue(db: Session, policy: Policy, *jobs: Job) -> None:
    done = await requeues.requeue(db, (policy.topic.name, policy.topic.id), [job.seq for job in jobs], ttl_ms=0)
    assert [one.outcome for one in done] == [requeues.RequeueOutcome.REQUEUED] * len(jobs)


async def test_a_requeued_older_job_waits_for_a_head_that_is_out_and_for_its_retries(
    db: Session, topic: str, make_queue: MakeQueue
) -> None:
    queue = await make_queue(topic, max_deliveries=2, on_exhausted="fail")
    await write(db, queue, ("a", "1"), ("a", "2"), ("a", "3"), max_deliveries=[1, None, None])
    (first,) = await take(db, queue, 10)
    await _failed(db, queue, first)
    await promote(db, queue)
    (second,) = await take(db, queue, 10)
    await requeue(db, queue, first)
    await promote(db, queue)
    told = "SELECT until FROM holdfast.lease_events WHERE topic_id = $1 AND event = 'requeued'"
    assert await db.fetchval(told, queue.topic.id) is None, "when its turn comes, nobody knows"
    assert await states(db, queue) == {"1": "blocked", "2": "leased", "3": "blocked"}
    await consumer.nack(db, queue.topic, queue.budget, [held(second)], [Return()])
    await promote(db, queue)
    assert await work_through(db, queue) == ["2", "1", "3"]
    await write(db, queue, ("b", "4"))
    (job,) = await take(db, queue, 10)
    await _failed(db, queue, job)
    await promote(db, queue)
    assert await rows_of_groups(db, queue) == 0
    await requeue(db, queue, job)
    assert await promote(db, queue) == Promotion(1, 1, 0), "its group is over"
    assert await work_through(db, queue) == ["4"]
    assert await tallied(db, queue)


async def test_in_a_dead_letter_topic_groups_are_data(db: Session, topic: str, make_queue: MakeQueue) -> None:
    queue = await make_queue(topic, max_deliveries=1, dead_letter=f"{topic}.dead")
    dead = await make_queue(f"{topic}.dead")
    await write(db, queue, ("a", "1"), ("a", "2"), ("a", "3"))
    for _ in range(2):
        await _buried(db, queue, *await take(db, queue, 10))
        await promote(db, queue)
    letters = await take(db, dead, 10)
    assert [(job.payload, job.group) for job in letters] == [(b"1", "a"), (b"2", "a")]
    returned = await consumer.nack(db, dead.topic, dead.budget, [held(job) for job in letters], [Return()] * 2)
    assert returned.done == {0, 1}
    assert await rows_of_groups(db, dead) == 0
    (back,) = await take(db, queue, 1)
    await requeue(db, dead, *letters)
    await promote(db, queue)
    assert await states(db, queue) == {"1": "blocked", "2": "blocked", "3": "leased"}
    await _acked(db, queue, back)
    await promote(db, queue)
    assert await work_through(db, queue) == ["1", "2"]
    assert await tallied(db, queue)
    assert await tallied(db, dead)


async def test_a_key_is_updated_where_its_job_is_blocked(db: Session, queue: Policy) -> None:
    await write(db, queue, ("a", "1"), ("a", "2"), keys=[None, "k"])
    placed = await write(db, queue, ("a", "3"), ("b", "4"), keys=["k", None])
    assert (placed.seqs, placed.updated) == ([2, 3], [True, False])
    assert await states(db, queue) == {"1": "ready", "3": "blocked", "4": "ready"}
    assert await work_through(db, queue) == ["1", "4", "3"]


async def test_a_fresh_group_whose_first_record_was_an_update_is_not_stuck(db: Session, queue: Policy) -> None:
    await write(db, queue, ("a", "1"), keys=["k"])
    placed = await write(db, queue, ("b", "2"), ("b", "3"), ("c", "4"), keys=["k", None, "k"])
    assert (placed.updated, placed.ready) == ([True, False, True], 1)
    assert await states(db, queue) == {"4": "ready", "3": "ready"}
    assert (await write(db, queue, ("c", "5"))).ready == 1, "group c had no job, and is fresh"
    assert await tallied(db, queue)


async def test_of_a_leased_job_of_a_key_the_successor_waits_in_its_group(db: Session, queue: Policy) -> None:
    await write(db, queue, ("a", "1"), keys=["k"])
    (job,) = await take(db, queue, 10)
    await write(db, queue, ("a", "2"), keys=["k"])
    assert await states(db, queue) == {"1": "leased", "2": "blocked"}
    back = await consumer.nack_keyed(db, queue.topic, [held(job)], [Return()])
    assert (back.done, back.ended) == ({0}, {0}), "a newer job of its key waits"
    await promote(db, queue)
    assert await work_through(db, queue) == ["2"]
    assert await tallied(db, queue)


async def test_a_topic_takes_its_groups_along(db: Session, pools: Pools, topic: str, make_queue: MakeQueue) -> None:
    queue = await make_queue(topic)
    await write(db, queue, ("a", "1"), ("a", "2"), ("b", "3"))
    assert await store.delete(pools.rest, topic, if_empty=False)
    assert await rows_of_groups(db, queue) == 0
    again = await make_queue(topic)
    assert (await write(db, again, ("a", "1"))).ready == 1


async def test_topics_with_groups_and_with_departures_are_found(db: Session, topic: str, make_queue: MakeQueue) -> None:
    queues = [await make_queue(f"{topic}.{n}") for n in range(4)]
    for queue, group in zip(queues, ("a", None, "b", "c"), strict=True):
        await write(db, queue, (group, "1"), (group, "2"))
    found = await groups.group_topics(db, 100_000)
    assert found == sorted(found)
    assert [queue.topic.id in found for queue in queues] == [True, False, True, True]
    assert await groups.group_topics(db, 1) == found[:1]
    for queue in queues[:3]:  # of which the second has no groups, and leaves no note
        await _acked(db, queue, (await take(db, queue))[0])
    first = min(queue.topic.id for queue in queues) - 1
    wanted = [(queue.topic.name, queue.topic.id) for queue in (queues[0], queues[2])]
    assert await groups.freed_topics(db, first, 10) == wanted
    assert await groups.freed_topics(db, first, 1) == wanted[:1]
    assert await groups.freed_topics(db, wanted[0][1], 10) == wanted[1:]
    await promote(db, queues[0])
    await work_through(db, queues[0])
    assert queues[0].topic.id not in await groups.group_topics(db, 100_000)
    assert await rows_of_groups(db, queues[1]) == 0
