"""Operations: a bad deployment replayed, at its rate, with a canary, and gone on with after a crash."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
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
from tests.engine.machines import Machine, Make, Start, parked
from tests.queue.calls import PATIENCE, held, until
from tests.queue.tallies import tallied

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
async def dead(make: Make) -> Policy:
    return await make(".dead")


@pytest.fixture
async def queue(make: Make, dead: Policy) -> Policy:
    return await make(max_deliveries=1, dead_letter=dead.topic.name)


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

    await until(over, "the operation ends")
    found = await machine.engine.core(Redrives).read(which)
    assert found is not None
    return found


async def drained(machine: Machine, queue: Policy, count: int) -> list[int]:
    """Work on so many jobs: their seqs."""
    seqs: list[int] = []
    while len(seqs) < count:
        jobs = await machine.claim(queue, 100, wait=PATIENCE)
        assert jobs, f"{len(seqs)} of {count} came"
        await machine.ack(queue, jobs)
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


# The most jobs that requeues brought back within any one second, by the ledger.
MOST_IN_A_SECOND = """
SELECT max(n) FROM (SELECT count(*) OVER (ORDER BY at RANGE BETWEEN '1 s' PRECEDING AND CURRENT ROW) AS n
FROM holdfast.lease_events WHERE topic_id = $1 AND event = 'requeued') x
"""


@pytest.mark.parametrize("count", [1_000, pytest.param(20_000, marks=pytest.mark.slow)])
async def test_a_bad_deployment_is_replayed(
    count: int, machine: Machine, queue: Policy, dead: Policy, pools: Pools
) -> None:
    """Jobs fail in five ways: those of a wrong one stop after ten, those of a right one come back at their rate."""
    fifth, rate = count // 5, count // 20
    await bad_deployment(machine, queue, count)
    redrives = machine.engine.core(Redrives)
    shown = await machine.engine.core(FailureReader).read(queue, None, 20)
    assert {one.title: one.count for one in shown.clusters} == dict.fromkeys(TITLES, fifth)
    clusters = {one.title: one.cluster for one in shown.clusters}
    assert (await redrives.count(wanted(queue, dead))).count == count
    right = wanted(queue, dead, cluster=clusters[TITLES[0]], rate=rate, canary=Canary(10, 10, 60_000))
    wrong = wanted(queue, dead, error="no such column", canary=Canary(10, 10, 60_000))
    assert [(await redrives.count(one)).count for one in (right, wrong)] == [fifth, fifth]

    # The wrong one: its jobs fail again.
    which, matched = await redrives.begin(wrong, BY)
    assert (matched.count, matched.exact) == (fifth, True)
    tried: set[int] = set()
    while len(tried) < 10:
        jobs = await machine.claim(queue, 10, wait=PATIENCE)
        tried |= {job.seq for job in jobs}
        await fail(machine, queue, jobs, lambda job: ERRORS[1].format(job.seq))
    stopped = await ended(machine, which)
    assert (stopped.state, stopped.requeued, stopped.skipped) == (OperationState.STOPPED, 10, 0)
    assert 2 <= stopped.failed_again <= 10
    assert "failed again, more than the allowed 10%" in str(stopped.reason)
    assert len(tried) == 10
    assert await machine.claim(queue, 10) == []
    assert (await redrives.count(wrong)).count == fifth, "they are dead letters again"

    # The right one: the first ten do well, and the rest follows at its rate.
    which, _ = await redrives.begin(right, BY)
    came = await drained(machine, queue, 10)
    assert len(came) == 10
    came += await drained(machine, queue, fifth - 10)
    done = await ended(machine, which)
    assert (done.state, done.requeued, done.skipped, done.failed_again) == (OperationState.DONE, fifth, 0, 0)
    assert done.ended_at is not None
    assert (done.ended_at - done.started_at).total_seconds() > 0.85 * fifth / rate, "at its rate"
    most = await pools.rest.fetchval(MOST_IN_A_SECOND, queue.topic.id)
    assert most <= rate * 1.4, "its rate, and what a tick may be late"
    assert sorted(came) == [seq for seq in range(1, count + 1) if seq % 5 == 0], "none lost, none doubled"
    assert (await redrives.count(wanted(queue, dead))).count == count - fifth
    for policy in (queue, dead):
        assert await tallied(pools.rest, policy)
    told = await story(pools, queue)
    starts, ends = ("requeue.started", BY.id), ("requeue.ended", "holdfast")
    assert [(action, actor) for action, actor, _ in told] == [starts, ends] * 2
    said = [[detail.get(key) for key in ("matched", "state", "requeued")] for _, _, detail in told]
    assert [said[0][0], said[2][0]] == [fifth, fifth]
    assert [said[1][1:], said[3][1:]] == [["stopped", 10], ["done", fifth]]


async def test_a_canary_that_nobody_works_on_stops_it(machine: Machine, queue: Policy, dead: Policy) -> None:
    await bad_deployment(machine, queue, 20)
    which, _ = await machine.engine.core(Redrives).begin(wanted(queue, dead, canary=Canary(5, 50, 300)), BY)
    run = await ended(machine, which)
    assert (run.state, run.requeued, run.failed_again) == (OperationState.STOPPED, 5, 0)
    assert run.reason == "5 of the first 5 jobs did not end within 300 ms"


async def test_a_canary_larger_than_what_there_is_ends_with_it(machine: Machine, queue: Policy, dead: Policy) -> None:
    await bad_deployment(machine, queue, 3)
    for there in (3, 0):
        asked = wanted(queue, dead, canary=Canary(10, 10, 60_000))
        which, matched = await machine.engine.core(Redrives).begin(asked, BY)
        assert matched.count == there
        await drained(machine, queue, there)
        run = await ended(machine, which)
        assert (run.state, run.requeued) == (OperationState.DONE, there)


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
    assert await redrives.cancel(which, BY) is not None, "again is no matter"
    told = [action for action, _, _ in await story(pools, queue)]
    assert told == ["requeue.started", "requeue.cancelled", "requeue.ended"]


async def test_what_fails_again_meanwhile_is_left(machine: Machine, queue: Policy, dead: Policy) -> None:
    await bad_deployment(machine, queue, 60)
    which, _ = await machine.engine.core(Redrives).begin(wanted(queue, dead, rate=60), BY)
    times: Counter[int] = Counter()
    running = asyncio.create_task(ended(machine, which))
    while not running.done() or times.total() < 60:
        jobs = await machine.claim(queue, 10, wait=0.1)
        times.update(job.seq for job in jobs)
        await fail(machine, queue, jobs, lambda _job: "no use")
    assert (await running).requeued == 60
    assert await machine.claim(queue, 10) == []
    assert set(times.values()) == {1}
    assert (await machine.engine.core(Redrives).count(wanted(queue, dead))).count == 60


async def taken_over(other: Machine, which: UUID) -> None:
    """Another process takes an operation over, unless it has ended."""

    async def adopted() -> bool:
        return await other.engine.core(Redrives).adopt() == 1

    found = await other.engine.core(Redrives).read(which)
    if found is not None and found.ended_at is None:
        await until(adopted, "the other process takes it over")


async def times_of(pools: Pools, queue: Policy, event: str) -> dict[int, int]:
    """How often the ledger has this event, by seq."""
    rows = await pools.rest.fetch(
        "SELECT seq, count(*) AS n FROM holdfast.lease_events WHERE topic_id = $1 AND event::text = $2 GROUP BY seq",
        *(queue.topic.id, event),
    )
    return {row["seq"]: row["n"] for row in rows}


@pytest.mark.parametrize("end", ["hangs", "stops"])
async def test_another_process_goes_on_with_it(
    end: str, start: Start, queue: Policy, dead: Policy, pools: Pools
) -> None:
    """Neither lost nor doubled, wherever the first process was in its batches; one that hung, too, and wakes."""
    one, other = start(), start()
    for machine in (one, other):
        machine.engine.core(Redrives).tempo = replace(Tempo(), batch=7, dead=0.0 if end == "hangs" else 60.0)
    await bad_deployment(one, queue, 100)
    which, _ = await one.engine.core(Redrives).begin(wanted(queue, dead, rate=100), BY)
    came = await drained(other, queue, 10)
    assert len(came) < 100, "it is under way"
    if end == "stops":
        one.engine.core(Redrives).stop()
        await one.engine.core(Redrives).drain()
    await taken_over(other, which)
    came += await drained(other, queue, 100 - len(came))
    run = await ended(other, which)
    assert (run.state, run.requeued, run.skipped) == (OperationState.DONE, 100, 0)
    assert sorted(came) == list(range(1, 101))
    assert set((await times_of(pools, queue, "requeued")).values()) == {1}
    for policy in (queue, dead):
        assert await tallied(pools.rest, policy)


async def test_another_process_goes_on_with_a_cancel(start: Start, queue: Policy, pools: Pools) -> None:
    """One that hung, and wakes: each job is cancelled once, and neither one that came later nor one that was acked."""
    one, other = start(), start()
    for machine in (one, other):
        machine.engine.core(Redrives).tempo = replace(Tempo(), batch=7, dead=0.0)
    await one.enqueue(queue, 100)
    marked = {job.seq for job in await one.claim(queue, 10)}
    meant = OperationRequest((queue.topic.name, queue.topic.id), rate=100, cancels=JobMatch(priority=0))
    which, matched = await one.engine.core(Redrives).begin(meant, BY)
    assert (matched.count, matched.exact) == (100, True)
    later = await one.enqueue(queue, 3)

    async def under_way() -> bool:
        found = await other.engine.core(Redrives).read(which)
        return found is not None and found.jobs_done >= 20

    await until(under_way, "it is under way")
    await taken_over(other, which)
    run = await ended(other, which)
    assert (run.state, run.gone, run.marked, run.skipped) == (OperationState.DONE, 90, 10, 0)
    assert await times_of(pools, queue, "cancelled") == dict.fromkeys(set(range(1, 101)) - marked, 1)
    assert await tallied(pools.rest, queue)
    assert sorted(job.seq for job in await other.claim(queue, 10)) == later


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
    assert (await redrives.count(wanted(dead, None, seqs=list(range(1, 20))))).count == 8
    which, _ = await redrives.begin(wanted(dead, None), BY)
    assert (await ended(machine, which)).requeued == 8


@pytest.mark.usefixtures("no_poll")
async def test_it_wakes_who_waits(machine: Machine, queue: Policy, dead: Policy) -> None:
    await bad_deployment(machine, queue, 1)
    waiting = asyncio.create_task(machine.claim(queue, 1, wait=PATIENCE))
    await parked(machine, queue, 1)
    await machine.engine.core(Redrives).requeue((dead.topic.name, dead.topic.id), [1])
    assert len(await waiting) == 1


async def test_failed_jobs_are_requeued_where_they_are(machine: Machine, make: Make) -> None:
    queue = await make(".f", max_deliveries=1, on_exhausted="fail", ttl_ms=60_000)
    await bad_deployment(machine, queue, 10)
    which, matched = await machine.engine.core(Redrives).begin(wanted(queue, None, error="Timeout"), BY)
    assert matched.count == 2
    assert (await ended(machine, which)).requeued == 2
    assert sorted(await drained(machine, queue, 2)) == [5, 10]
