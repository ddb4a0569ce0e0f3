"""A topic deleted, and made anew, while others use it."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Literal

import asyncpg
import pytest

from app.errors import TopicNotEmpty, TopicNotFound
from app.kernel import purges
from app.kernel.audit import trail
from app.kernel.claim import consumer
from app.kernel.claim.consumer import Return
from app.kernel.counts import inspector
from app.kernel.logs import log
from app.kernel.model import Batch, Topic
from app.kernel.purges import Purges
from app.kernel.settle import exit_rows as exits
from app.kernel.settle.exit_rows import Spent
from app.kernel.topics import store
from app.kernel.topics.policy import AskedSettings, Policy, resolve
from tests.engine.machines import Machine
from tests.queue.calls import Session, batch, events, held, lease_ended, put, take, until
from tests.races.rivals import Rivals

MakeQueue = Callable[..., Awaitable[Policy]]


async def delete(machine: Machine, name: str) -> bool:
    return await store.delete(machine.pools.rest, name, if_empty=False)


async def left(db: Session, policy: Policy) -> dict[str, int]:
    """What is still there of a topic."""
    row = await db.fetchrow(
        """
        SELECT (SELECT count(*) FROM holdfast.jobs WHERE topic = $1 OR topic_id = $2) AS jobs,
               (SELECT count(*) FROM holdfast.lanes WHERE topic = $1) AS lanes,
               (SELECT count(*) FROM holdfast.topics WHERE name = $1) AS topics,
               (SELECT count(DISTINCT topic_id) FROM holdfast.tallies WHERE topic_id = $2) AS tallies,
               (SELECT count(*) FROM pg_class WHERE relname = 'seq_' || $2) AS sequences
        """,
        policy.topic.name,
        policy.topic.id,
    )
    assert row is not None
    return {name: count for name, count in row.items() if count}


@pytest.mark.parametrize("commits", [True, False])
async def test_it_waits_for_an_enqueue_under_way_and_leaves_nothing(
    commits: bool, machine: Machine, queue: Policy, rivals: Rivals
) -> None:
    await put(rivals.one, queue, batch(3))
    async with rivals.first(commits=commits):
        (late,) = await put(rivals.one, queue, batch(priorities=[7]))
        deleting = await rivals.behind(delete(machine, queue.topic.name))

    assert await deleting is True
    assert await left(rivals.observer, queue) == {}
    assert await events(rivals.observer, queue, late) == (["enqueued", "deleted"] if commits else [])


async def test_it_waits_for_a_move_to_it_and_leaves_nothing(
    machine: Machine, topic: str, make_queue: MakeQueue, rivals: Rivals
) -> None:
    dead = await make_queue(f"{topic}.dead")
    queue = await make_queue(topic, max_deliveries=1, dead_letter=dead.topic.name)
    await put(rivals.one, queue, batch(3))
    jobs = await take(rivals.one, queue, 3, lease_ms=100)
    for job in jobs:
        await lease_ended(rivals.one, queue, job)
    async with rivals.first():
        spent = [Spent(job.seq) for job in jobs]
        assert await exits.move_to_dead_letters(rivals.one, queue.topic, queue.budget, spent, dead.topic) == {0, 1, 2}
        deleting = await rivals.behind(delete(machine, dead.topic.name))

    assert await deleting is True
    assert await left(rivals.observer, dead) == {}


@pytest.mark.parametrize("verb", ["claim", "ack"])
async def test_it_waits_for_a_verb_under_way(verb: str, machine: Machine, queue: Policy, rivals: Rivals) -> None:
    await put(rivals.one, queue, batch(3))
    (job,) = await take(rivals.one, queue)
    async with rivals.first():
        if verb == "claim":
            assert len(await take(rivals.one, queue, 2)) == 2
        else:
            assert await consumer.ack(rivals.one, queue.topic, [held(job)]) == {0}
        deleting = await rivals.behind(delete(machine, queue.topic.name))

    assert await deleting is True
    assert await left(rivals.observer, queue) == {}
    last = {"claim": "deleted", "ack": "acked"}[verb]
    assert (await events(rivals.observer, queue, job.seq))[-1] == last


async def test_of_two_deletions_one_counts(machine: Machine, queue: Policy, rivals: Rivals) -> None:
    await put(rivals.one, queue, batch(50))
    name = queue.topic.name
    answers = await asyncio.gather(delete(machine, name), delete(machine, name), delete(machine, name))
    assert sorted(answers) == [False, False, True]
    assert await left(rivals.observer, queue) == {}


async def test_if_empty_looks_after_what_was_under_way(machine: Machine, queue: Policy, rivals: Rivals) -> None:
    async with rivals.first():
        await put(rivals.one, queue, batch())
        deleting = await rivals.behind(store.delete(machine.pools.rest, queue.topic.name, if_empty=True))
    with pytest.raises(TopicNotEmpty):
        await deleting
    assert len(await machine.claim(queue)) == 1
    assert await machine.enqueue(queue) == [2], "the sequence is gone though the topic is not"


@pytest.mark.parametrize("scan", ["index", "seq"])
async def test_it_meets_an_ack_of_several_jobs_without_a_deadlock(
    scan: str, machine: Machine, queue: Policy, rivals: Rivals, database_url: str
) -> None:
    """Jobs that were claimed or extended no longer stand in the table by seq; an ack locks by seq. Whichever way the
    planner lets a deletion find the jobs."""
    await put(rivals.one, queue, batch(2))
    first, second = await take(rivals.one, queue, 2)
    places = "SELECT ctid FROM holdfast.jobs WHERE topic = $1 ORDER BY seq"

    async def behind() -> bool:
        await consumer.extend(rivals.one, queue.topic, [held(first)], [60_000])
        ahead, after = [row["ctid"] for row in await rivals.one.fetch(places, queue.topic.name)]
        return bool(ahead > after)

    await until(behind, "the first job stands behind the second")
    heartbeat = rivals.one.transaction()
    await heartbeat.start()
    await consumer.extend(rivals.one, queue.topic, [held(second)], [60_000])

    off = {"enable_seqscan": "off"} if scan == "index" else {"enable_indexscan": "off"}
    settings = {"enable_bitmapscan": "off", **off}
    async with asyncpg.create_pool(database_url, min_size=1, max_size=1, server_settings=settings) as pool:
        deleting = await rivals.behind(store.delete(pool, queue.topic.name, if_empty=False))
        acking = asyncio.create_task(machine.engine.settlements.ack(queue, [held(first), held(second)]))
        waiting = """
            SELECT count(*) = 2 FROM pg_stat_activity
            WHERE datname = current_database() AND cardinality(pg_blocking_pids(pid)) > 0
        """
        await until(lambda: rivals.observer.fetchval(waiting), "the ack waits, too")
        await heartbeat.rollback()
        ends = await asyncio.gather(deleting, acking, return_exceptions=True)
    assert ends[0] is True
    assert ends[1] in (set(), {0, 1})
    assert await left(rivals.observer, queue) == {}


async def test_an_engine_that_did_not_hear_of_it_says_so_and_leaves_no_lane(
    start: Callable[[], Machine], queue: Policy, rivals: Rivals
) -> None:
    here, there = start(), start()
    await there.enqueue(queue)
    assert await delete(here, queue.topic.name)
    for lane in (0, 3):
        with pytest.raises(TopicNotFound):
            await there.enqueue(queue, Batch(payloads=[b"1"], priorities=[lane]))
    assert await left(rivals.observer, queue) == {}


async def test_an_engine_that_did_not_hear_that_it_was_made_anew_uses_the_new_one(
    start: Callable[[], Machine], queue: Policy, topic: str, make_queue: MakeQueue, rivals: Rivals
) -> None:
    here, there = start(), start()
    await there.enqueue(queue, 3)
    old_jobs = await there.claim(queue, 2)
    assert await delete(here, topic)
    new = await make_queue(topic)

    assert await there.engine.settlements.ack(queue, [held(job) for job in old_jobs]) == set()
    assert await there.claim(queue, 10) == []
    assert await there.enqueue(queue, 2) == [1, 2]
    jobs = await here.claim(new, 10)
    assert [job.seq for job in jobs] == [1, 2]
    assert await left(rivals.observer, new) == {"jobs": 2, "lanes": 1, "topics": 1, "tallies": 1, "sequences": 1}


async def test_a_dead_letter_topic_deleted_elsewhere_is_made_anew_by_the_nack(
    start: Callable[[], Machine], topic: str, make_queue: MakeQueue
) -> None:
    here, there = start(), start()
    queue = await make_queue(topic, max_deliveries=1, dead_letter=f"{topic}.dead")
    await there.enqueue(queue, 2)
    first, second = await there.claim(queue, 2)
    assert await there.engine.settlements.nack(queue, [held(first)], [Return()]) == {0}
    assert await delete(here, f"{topic}.dead")

    assert await there.engine.settlements.nack(queue, [held(second)], [Return()]) == {0}
    dead = await here.policies.queue(f"{topic}.dead")
    assert [job.original_seq for job in await here.claim(dead, 10)] == [second.seq]


async def test_a_claim_that_can_not_bury_what_it_meets_still_hands_out_what_it_leased(
    start: Callable[[], Machine], topic: str, make_queue: MakeQueue, rivals: Rivals
) -> None:
    """The statement that leases and the one that buries are two: what the first did must reach its caller, or the
    jobs would wait for their deadline with a delivery spent."""
    here, there = start(), start()
    queue = await make_queue(topic, max_deliveries=1, dead_letter=f"{topic}.dead")
    await there.enqueue(queue, 2)
    (first,) = await there.claim(queue)
    assert await there.engine.settlements.nack(queue, [held(first)], [Return()]) == {0}
    (second,) = await there.claim(queue, lease_ms=100)
    assert await delete(here, f"{topic}.dead")
    fresh = await there.enqueue(queue, 3)
    await lease_ended(rivals.one, queue, second)

    jobs = await there.claim(queue, 10)
    assert [job.seq for job in jobs] == fresh
    assert await there.claim(queue, 10) == []
    dead = await here.policies.queue(f"{topic}.dead")
    assert [job.original_seq for job in await here.claim(dead, 10)] == [second.seq]


async def found_by(look: str, db: Session, topics: list[Topic]) -> set[str]:
    """The names of those that a look finds."""
    if look == "states":
        return set(await inspector.states(db, topics, 1))
    if look == "survey":
        return set(await inspector.survey(db, [(one, None) for one in topics]))
    ids = await log.newest(db, [], topics)
    return {topic.name for topic in topics if topic.id in ids}


@pytest.mark.parametrize("commits", [True, False])
@pytest.mark.parametrize("look", ["states", "survey", "newest"])
async def test_a_look_that_meets_a_deletion_tells_how_it_ended(
    look: str, commits: bool, queue: Policy, make_queue: MakeQueue, rivals: Rivals
) -> None:
    stays = await make_queue(f"{queue.topic.name}-stays")
    topics = [queue.topic, stays.topic]
    async with rivals.first(commits=commits):
        await rivals.one.execute("SELECT holdfast.drop_topic_sequence($1)", queue.topic.id)
        looking = await rivals.behind(found_by(look, rivals.other, topics))
    assert await looking == {topic.name for topic in topics[commits:]}


@pytest.mark.parametrize("kind", ["queue", "log"])
async def test_looks_do_not_wait_while_a_topic_is_emptied(
    kind: Literal["queue", "log"], machine: Machine, topic: str, rivals: Rivals
) -> None:
    """Its jobs and records go in batches before the topic does, however many there are."""
    await store.put(machine.pools.rest, topic, resolve(topic, AskedSettings(type=kind)))
    policy = await machine.policies.get(topic)
    if kind == "log":
        await machine.engine.logs.append(policy, Batch(payloads=[b"1"] * 3), 3, None)
    else:
        await machine.enqueue(policy, 3)
    async with rivals.first(commits=False):
        rows = "records" if kind == "log" else "jobs"
        await rivals.one.fetch(f"SELECT 1 FROM holdfast.{rows} WHERE topic = $1 AND seq = 2 FOR UPDATE", topic)
        deleting = await rivals.behind(
            machine.engine.core(Purges).delete_topic(policy, if_empty=False, by=trail.SERVICE)
        )
        for look in ("states", "survey", "newest"):
            assert await found_by(look, rivals.other, [policy.topic]) == {topic}, look

    assert await deleting is True
    assert await left(rivals.observer, policy) == {}
    query = "SELECT detail ->> 'jobs' FROM holdfast.audit WHERE action = 'topic.deleted' AND subject = $1"
    assert await rivals.observer.fetchval(query, topic) == ("0" if kind == "log" else "3")


async def test_a_deletion_that_breaks_off_can_be_repeated(
    machine: Machine, queue: Policy, rivals: Rivals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(purges, "AT_ONCE", 2)
    await machine.enqueue(queue, 6)
    async with rivals.first(commits=False):
        await rivals.one.fetch("SELECT 1 FROM holdfast.jobs WHERE topic = $1 AND seq = 5 FOR UPDATE", queue.topic.name)
        with pytest.raises(asyncpg.LockNotAvailableError):
            await machine.engine.core(Purges).delete_topic(queue, if_empty=False, by=trail.SERVICE)
    assert [job.seq for job in await machine.claim(queue, 10)] == [5, 6]
    assert await machine.enqueue(queue) == [7]
    assert await machine.engine.core(Purges).delete_topic(queue, if_empty=False, by=trail.SERVICE) is True
    assert await left(rivals.observer, queue) == {}
    assert await machine.engine.core(Purges).delete_topic(queue, if_empty=False, by=trail.SERVICE) is False
