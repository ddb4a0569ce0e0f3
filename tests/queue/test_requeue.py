"""Requeue as a verb: what comes back is what it was, and the ledger and the tallies say so."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from itertools import combinations, product

import pytest

from app.base.db.pool import Pools
from app.features.jobs import requeues
from app.features.jobs.operations import Filter, SearchPlace
from app.features.jobs.requeues import RequeueOutcome, RequeueResult, Search
from app.kernel.claim import consumer
from app.kernel.claim.consumer import Return
from app.kernel.model import Job
from app.kernel.settle import exit_rows as exits
from app.kernel.topics import store
from app.kernel.topics.policy import Policy
from tests.queue.calls import Session, batch, events, held, outlived, place, put, row, take
from tests.queue.tallies import tallied

MakeQueue = Callable[..., Awaitable[Policy]]
DAY_MS = 86_400_000


@pytest.fixture
async def dead(topic: str, make_queue: MakeQueue) -> Policy:
    return await make_queue(f"{topic}.dead")


@pytest.fixture
async def queue(topic: str, make_queue: MakeQueue, dead: Policy) -> Policy:
    return await make_queue(topic, max_deliveries=1, dead_letter=dead.topic.name, ttl_ms=DAY_MS)


async def killed(db: Session, queue: Policy, dead: Policy, count: int = 1, error: str = "no use") -> list[int]:
    """Claim so many jobs of a queue and give them up: they are dead letters. Their seqs before."""
    jobs = await take(db, queue, count)
    spent = sorted((exits.Spent(job.seq, held(job).lease, error) for job in jobs), key=lambda one: one.seq)
    assert len(await exits.move_to_dead_letters(db, queue.topic, queue.budget, spent, dead.topic)) == count
    return [one.seq for one in spent]


async def requeued(db: Session, where: Policy, *seqs: int, **given: object) -> list[RequeueResult]:
    return await requeues.requeue(db, (where.topic.name, where.topic.id), seqs, ttl_ms=0, **given)  # type: ignore[arg-type]


async def test_a_dead_letter_is_again_what_it_was(db: Session, queue: Policy, dead: Policy) -> None:
    await put(db, queue, batch(2))
    fields = batch(1, tags=["t"], tenants=["acme"], priorities=[7], ttls_ms=[5_000], max_deliveries=[1], keys=["k"])
    [seq] = (await place(db, queue, fields)).seqs
    before = await row(db, queue, seq)
    assert before is not None
    jobs: dict[int, Job] = {job.seq: job for job in await take(db, queue, 3)}
    spent = [exits.Spent(seq, held(jobs[seq]).lease, "boom")]
    await exits.move_to_dead_letters(db, queue.topic, queue.budget, spent, dead.topic)
    assert await row(db, queue, seq) is None

    [one] = await requeued(db, dead, 1)
    assert (one.outcome, one.topic, one.was) == (RequeueOutcome.REQUEUED, queue.topic.name, "ready")
    assert one.job is not None
    assert (one.job.seq, one.job.topic_id, one.job.id_seq) == (seq, queue.topic.id, seq)
    assert await row(db, dead, 1) is None
    after = await row(db, queue, seq)
    assert after is not None
    changed = {name for name in before if before[name] != after[name]}
    assert changed == {"ctid", "xmin", "state", "visible_at", "updated_at", "expires_at", "last_error", "ttl_ms"}
    assert (after["state"], after["last_error"], after["deliveries"]) == ("scheduled", "boom", 0)
    left = await db.fetchval(
        "SELECT expires_at - visible_at = interval '5 s' FROM holdfast.jobs WHERE topic = $1 AND seq = $2",
        queue.topic.name,
        seq,
    )
    assert left, "its own time to live, anew"
    ledger = ["enqueued", "claimed", "dead_lettered", "requeued"]
    assert await events(db, queue, seq) == ledger
    assert await events(db, dead, 1) == ["enqueued", "requeued"]
    assert await tallied(db, queue)
    assert await tallied(db, dead)
    [job] = await take(db, queue)
    assert (job.seq, job.deliveries) == (seq, 1)
    await exits.move_to_dead_letters(db, queue.topic, queue.budget, [exits.Spent(seq, held(job).lease)], dead.topic)
    [one] = await requeued(db, dead, 2)
    again = await db.fetchval("SELECT ttl_ms FROM holdfast.jobs WHERE topic = $1 AND seq = $2", queue.topic.name, seq)
    assert again == 5_000, "a second life is no longer than the first"


async def test_failed_and_expired_jobs_start_anew_where_they_are(
    db: Session, topic: str, make_queue: MakeQueue
) -> None:
    queue = await make_queue(topic, max_deliveries=1, on_exhausted="fail")
    [failed] = await put(db, queue, batch(1))
    [job] = await take(db, queue)
    await exits.fail(db, queue.topic, queue.budget, [exits.Spent(failed, held(job).lease, "no")])
    [expired] = await put(db, queue, batch(1, ttls_ms=[1]))
    await outlived(db, queue)
    assert await exits.expire(db, topic, 10) == 1
    [waits] = await put(db, queue, batch(1))
    done = await requeued(db, queue, failed, expired, waits)
    assert [(one.seq, one.was) for one in done] == [(failed, "failed"), (expired, "expired")]
    assert await events(db, queue, failed) == ["enqueued", "claimed", "failed", "requeued"]
    assert await events(db, queue, expired) == ["enqueued", "expired", "requeued"]
    assert await events(db, queue, waits) == ["enqueued"]
    assert await tallied(db, queue)
    assert {job.seq for job in await take(db, queue, 3)} >= {failed, waits}


async def test_what_is_not_out_stays(db: Session, queue: Policy, dead: Policy) -> None:
    await put(db, queue, batch(2))
    await killed(db, queue, dead, 2)
    [first] = await take(db, dead)
    assert [one.seq for one in await requeued(db, dead, 1, 2, 99)] == [3 - first.seq], "one is held by a worker"
    assert await consumer.nack(db, dead.topic, dead.budget, [held(first)], [Return()])
    assert [one.seq for one in await requeued(db, dead, 1, 2)] == [first.seq]
    assert await requeued(db, dead, 1, 2) == []
    assert await tallied(db, dead)


async def test_a_pending_job_of_its_key_keeps_it_where_it_is(db: Session, queue: Policy, dead: Policy) -> None:
    await place(db, queue, batch(1, keys=["k"]))
    await killed(db, queue, dead)
    [twin] = (await place(db, queue, batch(1, keys=["k"]))).seqs
    before = await row(db, dead, 1)
    [one] = await requeued(db, dead, 1)
    assert (one.outcome, one.job) == (RequeueOutcome.KEY_CONFLICT, None)
    after = await row(db, dead, 1)
    assert {**(before or {}), "xmin": 0} == {**(after or {}), "xmin": 0}
    [job] = await take(db, queue)
    assert job.seq == twin
    assert [one.outcome for one in await requeued(db, dead, 1)] == [RequeueOutcome.REQUEUED], (
        "a leased one is no matter"
    )
    # Of the two, the newer payload lives on, which is the one that was out.
    assert (await consumer.nack_keyed(db, queue.topic, [held(job)], [Return()]))[0] == {0}
    left = await db.fetch("SELECT seq FROM holdfast.jobs WHERE topic = $1", queue.topic.name)
    assert [one["seq"] for one in left] == [twin]
    assert await tallied(db, queue)
    assert await tallied(db, dead)


async def test_without_its_topic_it_stays_and_in_a_new_one_it_gets_a_new_seq(
    db: Session, queue: Policy, dead: Policy, pools: Pools, make_queue: MakeQueue
) -> None:
    topic = queue.topic.name
    await put(db, queue, batch(1))
    [seq] = await killed(db, queue, dead)
    await store.delete(pools.rest, topic, if_empty=False)
    [one] = await requeued(db, dead, 1)
    assert (one.outcome, one.topic) == (RequeueOutcome.TOPIC_GONE, topic)
    assert await row(db, dead, 1) is not None

    anew = await make_queue(topic)
    [theirs] = await put(db, anew, batch(1))
    assert theirs == seq, "the old seq is another job's"
    [one] = await requeued(db, dead, 1)
    assert one.job is not None
    assert (one.job.topic_id, one.job.id_topic, one.job.id_seq) == (anew.topic.id, queue.topic.id, seq)
    assert one.job.seq > theirs
    assert {job.seq for job in await take(db, anew, 3)} == {theirs, one.job.seq}
    assert await tallied(db, anew)
    assert await tallied(db, dead)


async def test_only_where_a_key_may_write(db: Session, topic: str, queue: Policy, dead: Policy) -> None:
    await put(db, queue, batch(1))
    await killed(db, queue, dead)
    assert await requeued(db, dead, 1, starts=["else."]) == []
    assert await requeued(db, dead, 1, only_from="else") == []
    assert len(await requeued(db, dead, 1, starts=["else.", topic[:3]], only_from=topic)) == 1


async def test_what_matches_is_found_a_few_looks_at_a_time(db: Session, queue: Policy, dead: Policy) -> None:
    await put(db, queue, batch(6, tags=["a", "b", "a"]))
    for n in range(6):
        await killed(db, queue, dead, 1, f"Timeout after {n} s%_")
    until = await requeues.until_time(db, 0)
    where = dead.topic.name, dead.topic.id
    for error, count in (("after 3 s%_", 1), ("after_3", 0)):
        search = Search(where, until, Filter(error=error))
        assert len((await requeues.find(db, search, SearchPlace(), looks=100, limit=100)).seqs) == count

    search, seqs = Search(where, until, Filter(tag="a")), []
    last, more = SearchPlace(), True
    while more:
        part = await requeues.find(db, search, last, looks=2, limit=1)
        assert len(part.seqs) <= 1
        seqs += part.seqs
        last, more = part.last or last, part.more
    assert len(seqs) == 2


@pytest.mark.parametrize("are_dead", [True, False])
async def test_each_condition_of_a_filter_goes_with_every_other(
    db: Session, queue: Policy, dead: Policy, *, are_dead: bool
) -> None:
    """What is found is what fits all of them, of jobs that differ in each, in the order in which they ended."""
    jobs: list[dict[str, object]] = []
    kinds = ("Timeout after {} ms", "no such column: c{}")
    half = await requeues.until_time(db, 0)
    for n, (late, kind, tag, tenant, key) in enumerate(product((0, 1), kinds, "xy", ("", "acme"), ("k", None))):
        if (late, n) == (1, 16):
            half = await requeues.until_time(db, 0)
        fields = batch(1, tags=[tag], tenants=[tenant], **({} if key is None else {"keys": [key]}))
        await place(db, queue, fields)
        if are_dead:
            await killed(db, queue, dead, 1, kind.format(n))
        else:
            [taken] = await take(db, queue)
            spent = [exits.Spent(taken.seq, held(taken).lease, kind.format(n))]
            assert await exits.fail(db, queue.topic, queue.budget, spent) == {0}
        jobs.append({"error": kind[:7], "tag": tag, "tenant": tenant, "key": key, "late": late, "seq": n + 1})
    where = dead if are_dead else queue
    clusters = {kind[:7]: await db.fetchval("SELECT holdfast.error_cluster($1)", kind.format(7)) for kind in kinds}
    for job in jobs:
        job["cluster"] = clusters[str(job["error"])]

    wanted = {"error": "Timeout", "tag": "x", "tenant": "acme", "key": "k", "cluster": clusters["Timeout"], "late": 0}
    now = await requeues.until_time(db, 0)
    topic = (where.topic.name, where.topic.id)
    for count in range(len(wanted) + 1):
        for names in combinations(wanted, count):
            match = Filter(**{name: wanted[name] for name in names if name != "late"})
            until = half if "late" in names else now
            search = Search(topic, until, match, dead=are_dead)
            found = await requeues.find(db, search, SearchPlace(), looks=100, limit=100)
            expected = [job["seq"] for job in jobs if all(job[name] == wanted[name] for name in names)]
            assert found.seqs == expected, names
            assert len(expected) == 32 // 2 ** len(set(names) - {"cluster" if "error" in names else ""})
