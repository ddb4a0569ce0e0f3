"""A requeue that meets a producer of its key, the end of its topic, or its own: the job is in one place. Other verbs on
the dead letter: test_serial.py."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from app.base.db.pool import Pools
from app.base.outages import UNREACHABLE
from app.features.jobs import requeues
from app.features.jobs.requeues import RequeueOutcome, RequeueResult
from app.kernel.enqueue import producer
from app.kernel.model import Lane
from app.kernel.settle import exit_rows as exits
from app.kernel.topics import store
from app.kernel.topics.policy import Policy
from tests.queue.calls import Session, batch, held, take
from tests.queue.tallies import tallied
from tests.races.rivals import Rivals

MakeQueue = Callable[..., Awaitable[Policy]]


@pytest.fixture
async def dead(topic: str, make_queue: MakeQueue) -> Policy:
    return await make_queue(f"{topic}.dead")


@pytest.fixture
async def queue(topic: str, make_queue: MakeQueue, dead: Policy) -> Policy:
    return await make_queue(topic, max_deliveries=1, dead_letter=dead.topic.name)


async def killed(db: Session, queue: Policy, dead: Policy, **fields: object) -> int:
    records = batch(1, **fields)
    await producer.add_lanes(db, queue.topic, [Lane("", 0)])
    await producer.upsert(db, queue.topic, queue.budget, records, ttl_ms=0)
    [job] = await take(db, queue)
    await exits.move_to_dead_letters(db, queue.topic, queue.budget, [exits.Spent(job.seq, held(job).lease)], dead.topic)
    return job.seq


async def requeue(db: Session, dead: Policy, *seqs: int) -> list[RequeueResult]:
    return await requeues.requeue(db, (dead.topic.name, dead.topic.id), seqs, ttl_ms=0)


async def places(db: Session, *topics: Policy) -> list[tuple[str, int]]:
    rows = await db.fetch(
        "SELECT topic, seq FROM holdfast.jobs WHERE topic = ANY ($1) ORDER BY 1, 2", [one.topic.name for one in topics]
    )
    return [(row["topic"], row["seq"]) for row in rows]


@pytest.mark.parametrize("first_commits", [True, False])
async def test_a_producer_of_its_key_is_inserting(
    first_commits: bool, queue: Policy, dead: Policy, rivals: Rivals
) -> None:
    await killed(rivals.one, queue, dead, keys=["k"])
    async with rivals.first(commits=first_commits):
        await producer.upsert(rivals.one, queue.topic, queue.budget, batch(1, keys=["k"]), ttl_ms=0)
        late = await rivals.behind(requeue(rivals.other, dead, 1))
    [one] = await late
    assert one.outcome is (RequeueOutcome.KEY_CONFLICT if first_commits else RequeueOutcome.REQUEUED)
    assert len(await places(rivals.one, queue, dead)) == (2 if first_commits else 1)
    assert len(await places(rivals.one, dead)) == (1 if first_commits else 0)
    assert await tallied(rivals.one, queue)
    assert await tallied(rivals.one, dead)


async def test_the_topic_goes_while_it_comes_back(queue: Policy, dead: Policy, rivals: Rivals, pools: Pools) -> None:
    """The deletion waits for it, and takes it along: it is not left behind in a topic that is none."""
    await killed(rivals.one, queue, dead)
    async with rivals.first():
        assert len(await requeue(rivals.one, dead, 1)) == 1
        deletion = await rivals.behind(store.delete(pools.rest, queue.topic.name, if_empty=False))
    assert await deletion
    assert await places(rivals.one, queue, dead) == []


@pytest.mark.parametrize("end", ["rollback", "killed"])
async def test_what_is_not_committed_has_not_happened(end: str, queue: Policy, dead: Policy, rivals: Rivals) -> None:
    """The crash points of a batch: after the requeue, before its commit."""
    await killed(rivals.one, queue, dead)
    first = rivals.one.transaction()
    await first.start()
    assert len(await requeue(rivals.one, dead, 1)) == 1
    assert await places(rivals.observer, queue, dead) == [(dead.topic.name, 1)]
    if end == "rollback":
        await first.rollback()
    else:
        await rivals.observer.execute("SELECT pg_terminate_backend($1, 5000)", rivals.one.get_server_pid())
        with pytest.raises(UNREACHABLE):
            await first.commit()
    assert await places(rivals.observer, queue, dead) == [(dead.topic.name, 1)]
    assert await tallied(rivals.observer, queue)
    assert await tallied(rivals.observer, dead)
    assert len(await requeue(rivals.other, dead, 1)) == 1


async def test_who_is_killed_in_the_middle_of_it_has_done_nothing(queue: Policy, dead: Policy, rivals: Rivals) -> None:
    """It has put the first one back, and waits for a producer of the second one's key."""
    for key in ("a", "b"):
        await killed(rivals.one, queue, dead, keys=[key])
    before = await places(rivals.observer, queue, dead)
    async with rivals.first(commits=False):
        await producer.upsert(rivals.one, queue.topic, queue.budget, batch(1, keys=["b"]), ttl_ms=0)
        late = await rivals.behind(requeue(rivals.other, dead, 1, 2))
        await rivals.observer.execute("SELECT pg_terminate_backend($1, 5000)", rivals.other.get_server_pid())
        with pytest.raises(UNREACHABLE):
            await late
    assert await places(rivals.observer, queue, dead) == before == [(dead.topic.name, 1), (dead.topic.name, 2)]
    assert await tallied(rivals.observer, queue)
    assert await tallied(rivals.observer, dead)
