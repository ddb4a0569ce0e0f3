"""Operations: a bad deployment replayed, at its rate, with a canary, and gone on with after a crash."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable
from uuid import UUID

import msgspec
import pytest
from msgspec.structs import replace

from app.base.db.pool import Pools
from app.features.dead_letters.failures import FailureReader
from app.features.jobs import requeues
from app.features.jobs.operations import Canary, Filter, Operation, OperationRequest, OperationState
from app.features.jobs.redrives import Redrives, Tempo
from app.kernel.audit import trail
from app.kernel.audit.trail import Actor
from app.kernel.claim.consumer import Return
from app.kernel.jobs import JobMatch
from app.kernel.model import Job
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine
from tests.queue.calls import held, until
from tests.queue.tallies import tallied

MakeQueue = Callable[..., Awaitable[Policy]]
BY = Actor("key_of_the_night_shift", "night shift", "10.0.0.7")
ERRORS = (
    "Timeout after {} ms",
    "no such column: c{}",
    "host db-{} is down",
    "'{}' is no number",
    "out of memory at {}",
)
TITLES = ("Timeout after * ms", "no such column: *", "host * is down", "* is no number", "out of memory at *")


@pytest.fixture
async def dead(topic: str, make_queue: MakeQueue) -> Policy:
    return await make_queue(f"{topic}.dead")


@pytest.fixture
async def queue(topic: str, make_queue: MakeQueue, dead: Policy) -> Policy:
    return await make_queue(topic, max_deliveries=1, dead_letter=dead.topic.name)


def wanted(queue: Policy, dead: Policy | None, **given: object) -> OperationRequest:
    where = None if dead is None else (dead.topic.name, dead.topic.id)
    match = Filter(**{name: given.pop(name) for name in ("error", "tag", "cluster") if name in given})  # type: ignore[arg-type]
    return OperationRequest((queue.topic.name, queue.topic.id), where, match, **given)  # type: ignore[arg-type]


async def fail(machine: Machine, queue: Policy, jobs: list[Job], error: Callable[[Job], str]) -> None:
    back = [Return(error=error(job)) for job in jobs]
    assert len(await machine.engine.settlements.nack(queue, [held(job) for job in jobs], back)) == len(jobs)


async def bad_deployment(machine: Machine, queue: Policy, count: int) -> None:
    """So many jobs fail, each with one of five kinds of errors."""
    for begin in range(0, count, 1_000):
        await machine.enqueue(queue, min(1_000, count - begin))
    while jobs := await machine.claim(queue, 500):
        await fail(machine, queue, jobs, lambda job: ERRORS[job.seq % 5].format(job.seq))


async def ended(machine: Machine, which: UUID) -> Operation:
    """The operation, once it has ended."""

    async def over() -> bool:
        found = await machine.engine.core(Redrives).read(which)
        return found is not None and found.ended_at is not None

    await until(over, "the operation ends", 30)
    found = await machine.engine.core(Redrives).read(which)
    assert found is not None
    return found


async def drained(machine: Machine, queue: Policy, count: int) -> list[int]:
    """Work on so many jobs: their seqs."""
    seqs: list[int] = []
    while len(seqs) < count:
        jobs = await machine.claim(queue, 100, wait=5)
        assert jobs, f"{len(seqs)} of {count} came"
        await machine.engine.settlements.ack(queue, [held(job) for job in jobs])
        seqs += [job.seq for job in jobs]
    return seqs


async def story(pools: Pools, queue: Policy) -> list[tuple[str, str, dict[str, object]]]:
    """What the audit trail says of requeues of a topic, the oldest first."""
    entries = await trail.page(pools.rest, 2**62, 100, subject=queue.topic.name)
    return [
        (one.action, one.actor, msgspec.json.decode(one.detail))
        for one in reversed(entries)
        if one.action.startswith("requeue.")
    ]


async def most_in_a_second(pools: Pools, queue: Policy) -> int:
    """The most jobs that requeues brought back within any one second, by the ledger."""
    most: int = await pools.rest.fetchval(
        "SELECT max(n) FROM (SELECT count(*) OVER (ORDER BY at RANGE BETWEEN '1 s' PRECEDING AND CURRENT ROW) AS n"
        " FROM holdfast.lease_events WHERE topic_id = $1 AND event = 'requeued') x",
        queue.topic.id,
    )
    return most


async def test_a_bad_deployment_is_replayed(machine: Machine, queue: Policy, dead: Policy, pools: Pools) -> None:
    """20,000 jobs fail in five ways: the wrong ones stop after ten, the right ones come back at their rate."""
    await bad_deployment(machine, queue, 20_000)
    redrives = machine.engine.core(Redrives)
    shown = await machine.engine.core(FailureReader).read(queue, None, 20)
    assert {one.title: one.count for one in shown.clusters} == dict.fromkeys(TITLES, 4_000)
    clusters = {one.title: one.cluster for one in shown.clusters}
    assert (await redrives.count(wanted(queue, dead))).count == 20_000
    right = wanted(queue, dead, cluster=clusters[TITLES[0]], rate=1_000, canary=Canary(10, 10, 60_000))
    wrong = wanted(queue, dead, error="no such column", canary=Canary(10, 10, 60_000))
    assert [(await redrives.count(one)).count for one in (right, wrong)] == [4_000, 4_000]

    # The wrong one: its jobs fail again.
    which, matched = await redrives.begin(wrong, BY)
    assert (matched.count, matched.exact) == (4_000, True)
    tried: set[int] = set()
    while len(tried) < 10:
        jobs = await machine.claim(queue, 10, wait=5)
        tried |= {job.seq for job in jobs}
        await fail(machine, queue, jobs, lambda job: ERRORS[1].format(job.seq))
    stopped = await ended(machine, which)
    assert (stopped.state, stopped.requeued, stopped.skipped) == (OperationState.STOPPED, 10, 0)
    assert 2 <= stopped.failed_again <= 10
    assert stopped.reason is not None
    assert "failed again, which is more than 10 per cent" in stopped.reason
    assert len(tried) == 10
    assert await machine.claim(queue, 10) == []
    assert (await redrives.count(wrong)).count == 4_000, "they are dead letters again"

    # The right one: the first ten do well, and the rest follows at its rate.
    which, _ = await redrives.begin(right, BY)
    first = await drained(machine, queue, 10)
    assert len(first) == 10
    rest = await drained(machine, queue, 3_990)
    done = await ended(machine, which)
    assert (done.state, done.requeued, done.skipped, done.failed_again) == (OperationState.DONE, 4_000, 0, 0)
    assert done.ended_at is not None
    assert (done.ended_at - done.started_at).total_seconds() > 3.5, "4,000 at 1,000 a second"
    assert await most_in_a_second(pools, queue) <= 1_000 + 2 * 200, "its rate, and what a tick may be late"
    assert sorted(first + rest) == [seq for seq in range(1, 20_001) if seq % 5 == 0], "none lost, none doubled"
    assert (await redrives.count(wanted(queue, dead))).count == 16_000
    left = await machine.engine.core(FailureReader).read(queue, None, 20)
    assert {one.title: one.count for one in left.clusters} == dict.fromkeys(TITLES[1:], 4_000)
    assert await tallied(pools.rest, queue)
    assert await tallied(pools.rest, dead)
    told = await story(pools, queue)
    assert [(action, actor) for action, actor, _ in told] == [
        ("requeue.started", BY.id),
        ("requeue.ended", "holdfast"),
    ] * 2
    assert [detail["matched"] for action, _, detail in told if action == "requeue.started"] == [4_000, 4_000]
    assert [detail["state"] for action, _, detail in told if action == "requeue.ended"] == ["stopped", "done"]
    assert [detail["requeued"] for action, _, detail in told if action == "requeue.ended"] == [10, 4_000]


async def test_a_canary_that_nobody_works_on_stops_it(machine: Machine, queue: Policy, dead: Policy) -> None:
    await bad_deployment(machine, queue, 20)
    which, _ = await machine.engine.core(Redrives).begin(wanted(queue, dead, canary=Canary(5, 50, 300)), BY)
    run = await ended(machine, which)
    assert (run.state, run.requeued, run.failed_again) == (OperationState.STOPPED, 5, 0)
    assert run.reason == "5 of the first 5 had not ended within 300 ms"


async def test_a_canary_larger_than_what_there_is_ends_with_it(machine: Machine, queue: Policy, dead: Policy) -> None:
    await bad_deployment(machine, queue, 3)
    which, _ = await machine.engine.core(Redrives).begin(wanted(queue, dead, canary=Canary(10, 10, 60_000)), BY)
    await drained(machine, queue, 3)
    run = await ended(machine, which)
    assert (run.state, run.requeued) == (OperationState.DONE, 3)
    which, matched = await machine.engine.core(Redrives).begin(wanted(queue, dead, canary=Canary(10, 10, 60_000)), BY)
    assert matched.count == 0
    assert (await ended(machine, which)).state is OperationState.DONE


async def test_it_is_cancelled_between_two_batches(machine: Machine, queue: Policy, dead: Policy, pools: Pools) -> None:
    await bad_deployment(machine, queue, 100)
    redrives = machine.engine.core(Redrives)
    which, _ = await redrives.begin(wanted(queue, dead, rate=10), BY)
    await drained(machine, queue, 3)
    assert await redrives.cancel(which, BY) is not None
    run = await ended(machine, which)
    assert run.state is OperationState.CANCELLED
    assert 3 <= run.requeued < 100
    assert (await redrives.count(wanted(queue, dead))).count == 100 - run.requeued
    assert [action for action, _, _ in await story(pools, queue)] == [
        "requeue.started",
        "requeue.cancelled",
        "requeue.ended",
    ]
    assert await redrives.cancel(which, BY) is not None, "again is no matter"


async def test_what_fails_again_meanwhile_is_left(machine: Machine, queue: Policy, dead: Policy) -> None:
    await bad_deployment(machine, queue, 60)
    which, _ = await machine.engine.core(Redrives).begin(wanted(queue, dead, rate=60), BY)
    times: Counter[int] = Counter()
    running = asyncio.create_task(ended(machine, which))
    while not running.done():
        jobs = await machine.claim(queue, 10, wait=0.2)
        times.update(job.seq for job in jobs)
        await fail(machine, queue, jobs, lambda _job: "no use")
    while jobs := await machine.claim(queue, 10):
        times.update(job.seq for job in jobs)
        await fail(machine, queue, jobs, lambda _job: "no use")
    assert (await running).requeued == 60
    assert set(times.values()) == {1}
    assert (await machine.engine.core(Redrives).count(wanted(queue, dead))).count == 60


@pytest.mark.parametrize("end", ["hangs", "stops"])
async def test_another_process_goes_on_with_it(
    end: str, start: Callable[..., Machine], queue: Policy, dead: Policy, pools: Pools
) -> None:
    """Neither lost nor doubled, wherever the first process was in its batches; one that hung, too, and wakes."""
    one, other = start(), start()
    for machine in (one, other):
        machine.engine.core(Redrives).tempo = replace(Tempo(), batch=7, dead=0.0 if end == "hangs" else 60.0)
    await bad_deployment(one, queue, 200)
    which, _ = await one.engine.core(Redrives).begin(wanted(queue, dead, rate=100), BY)
    first = await drained(other, queue, 10)
    assert len(first) < 100, "it is under way"
    if end == "stops":
        one.engine.core(Redrives).stop()
        await one.engine.core(Redrives).drain()

    async def adopted() -> bool:
        return await other.engine.core(Redrives).adopt() == 1

    found = await other.engine.core(Redrives).read(which)
    if found is not None and found.ended_at is None:
        await until(adopted, "the other process takes it over")
    rest = await drained(other, queue, 200 - len(first))
    run = await ended(other, which)
    assert (run.state, run.requeued, run.skipped) == (OperationState.DONE, 200, 0)
    assert sorted(first + rest) == list(range(1, 201))
    events = await pools.rest.fetchval(
        "SELECT array_agg(n) FROM (SELECT DISTINCT count(*) AS n FROM holdfast.lease_events"
        " WHERE topic_id = $1 AND event = 'requeued' GROUP BY seq) x",
        queue.topic.id,
    )
    assert events == [1]
    assert await tallied(pools.rest, queue)
    assert await tallied(pools.rest, dead)


async def test_another_process_goes_on_with_a_cancel(
    start: Callable[..., Machine], queue: Policy, pools: Pools
) -> None:
    """One that hung, and wakes: each job is cancelled once, and neither one that came later nor one that was acked."""
    one, other = start(), start()
    for machine in (one, other):
        machine.engine.core(Redrives).tempo = replace(Tempo(), batch=7, dead=0.0)
    await one.enqueue(queue, 200)
    held_ones = await one.claim(queue, 10)
    meant = OperationRequest((queue.topic.name, queue.topic.id), rate=100, cancels=JobMatch(priority=0))
    which, matched = await one.engine.core(Redrives).begin(meant, BY)
    assert (matched.count, matched.exact) == (200, True)
    await one.enqueue(queue, 3)

    async def under_way() -> bool:
        found = await other.engine.core(Redrives).read(which)
        return found is not None and found.jobs_done >= 20

    await until(under_way, "it is under way")

    async def adopted() -> bool:
        return await other.engine.core(Redrives).adopt() == 1

    found = await other.engine.core(Redrives).read(which)
    if found is not None and found.ended_at is None:
        await until(adopted, "the other process takes it over")
    run = await ended(other, which)
    assert (run.state, run.gone, run.marked, run.skipped) == (OperationState.DONE, 190, 10, 0)
    events = await pools.rest.fetch(
        "SELECT seq, count(*) AS n FROM holdfast.lease_events WHERE topic_id = $1 AND event = 'cancelled' GROUP BY seq",
        queue.topic.id,
    )
    assert {row["seq"]: row["n"] for row in events} == dict.fromkeys(
        set(range(1, 201)) - {job.seq for job in held_ones}, 1
    )
    assert await tallied(pools.rest, queue)
    assert sorted(job.seq for job in await other.claim(queue, 10)) == [201, 202, 203]


async def test_seqs_are_those_that_people_know(machine: Machine, queue: Policy, dead: Policy) -> None:
    await bad_deployment(machine, queue, 10)
    redrives = machine.engine.core(Redrives)
    [theirs] = await requeues.find_out(machine.pools.rest, (queue.topic.name, queue.topic.id), [3], ())
    assert theirs == (dead.topic.name, dead.topic.id)
    which, matched = await redrives.begin(wanted(queue, dead, seqs=[3, 5, 99]), BY)
    assert matched.count == 2
    run = await ended(machine, which)
    assert (run.state, run.requeued, run.skipped) == (OperationState.DONE, 2, 1)
    assert sorted(await drained(machine, queue, 2)) == [3, 5]
    # Or by those in the topic of the dead letters.
    left = await machine.engine.core(Redrives).count(wanted(dead, None, seqs=list(range(1, 20))))
    assert left.count == 8
    which, _ = await redrives.begin(wanted(dead, None), BY)
    assert (await ended(machine, which)).requeued == 8


async def test_it_wakes_who_waits(start: Callable[..., Machine], queue: Policy, dead: Policy) -> None:
    one = start()
    await bad_deployment(one, queue, 1)
    waiting = asyncio.create_task(one.claim(queue, 1, wait=10))

    async def parks() -> bool:
        return one.engine.waiters.count(queue.topic.name) == 1

    await until(parks, "a claim waits")
    began = time.monotonic()
    await one.engine.core(Redrives).requeue((dead.topic.name, dead.topic.id), [1])
    assert len(await waiting) == 1
    assert time.monotonic() - began < 0.3


async def test_failed_jobs_are_requeued_where_they_are_and_expired_ones_are_not(
    machine: Machine, topic: str, make_queue: MakeQueue
) -> None:
    queue = await make_queue(f"{topic}.f", max_deliveries=1, on_exhausted="fail", ttl_ms=60_000)
    await bad_deployment(machine, queue, 10)
    which, matched = await machine.engine.core(Redrives).begin(wanted(queue, None, error="Timeout"), BY)
    assert matched.count == 2
    assert (await ended(machine, which)).requeued == 2
    assert sorted(await drained(machine, queue, 2)) == [5, 10]
