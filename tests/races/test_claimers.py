"""Claims at the same time as each other, and as what makes jobs claimable. What an engine has passed it still finds."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from app.kernel.claim import consumer
from app.kernel.claim.consumer import Return
from app.kernel.model import Job
from app.kernel.settle import exit_rows as exits
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine
from tests.queue.calls import batch, events, held, lease_ended, outlived, put, row, take, until
from tests.races.rivals import Rivals

MakeQueue = Callable[..., Awaitable[Policy]]
SLOW = """
CREATE SCHEMA slow;
CREATE FUNCTION slow.now() RETURNS timestamptz LANGUAGE plpgsql STABLE AS $$
BEGIN
    PERFORM pg_catalog.pg_advisory_xact_lock_shared(4712);
    RETURN pg_catalog.now();
END $$
"""
SOON = 30.0  # seconds within which an engine finds what another session did, without Redis


async def found(machine: Machine, queue: Policy) -> Job:
    """The next job, which an engine that looks again and again must find soon."""
    give_up = time.monotonic() + SOON
    while not (jobs := await machine.claim(queue)):
        assert time.monotonic() < give_up, "it was not found"
        await asyncio.sleep(0.01)
    return jobs[0]


async def passed(machine: Machine, queue: Policy, count: int = 20) -> None:
    """Let an engine claim its way past so many jobs, until it finds nothing."""
    await machine.enqueue(queue, count)
    assert len(await machine.claim(queue, count + 1)) == count
    assert await machine.claim(queue) == []


async def test_a_claim_that_is_slow_behind_its_snapshot_leases_nothing_twice(queue: Policy, rivals: Rivals) -> None:
    """It has its snapshot, and no lock yet, when another claim commits: it asks for the time first, by a now() that
    waits."""
    await rivals.one.execute(SLOW)
    await rivals.other.execute("SET search_path = slow, pg_catalog; SET lock_timeout = '30s'")
    try:
        await put(rivals.one, queue, batch())
        assert len(await take(rivals.other, queue)) == 1, "its plan is made"
        await put(rivals.one, queue, batch())
        await rivals.one.execute("SELECT pg_advisory_lock(4712)")
        late = await rivals.behind(take(rivals.other, queue))
        (job,) = await take(rivals.one, queue)
        await rivals.one.execute("SELECT pg_advisory_unlock(4712)")
        assert await late == [], "a job was handed out twice"
    finally:
        await rivals.one.execute("DROP SCHEMA slow CASCADE")
    assert await consumer.ack(rivals.one, queue.topic, [held(job)]) == {0}


async def test_a_row_that_a_reader_locks_hides_no_other(queue: Policy, rivals: Rivals) -> None:
    """A foreign key's check, or a curious session, may lock rows FOR KEY SHARE: a claim goes round them."""
    seqs = await put(rivals.one, queue, batch(4))
    async with rivals.first():
        await rivals.one.fetch(
            "SELECT 1 FROM holdfast.jobs WHERE topic = $1 AND seq = ANY ($2) FOR KEY SHARE", queue.topic.name, seqs[:2]
        )
        assert [job.seq for job in await take(rivals.other, queue, 2)] == seqs[2:]
    assert [job.seq for job in await take(rivals.other, queue, 2)] == seqs[:2]


async def test_earlier_positions_that_commit_late_are_all_claimed(
    machine: Machine, queue: Policy, rivals: Rivals
) -> None:
    await passed(machine, queue)
    async with rivals.first():
        late = await put(rivals.one, queue, batch(50))
        await passed(machine, queue)
    assert [(await found(machine, queue)).seq for _ in late] == late


async def test_a_return_that_commits_late_is_claimed(machine: Machine, queue: Policy, rivals: Rivals) -> None:
    """Its time came long before it could be seen."""
    await put(rivals.one, queue, batch())
    (job,) = await take(rivals.one, queue)
    async with rivals.first():
        await consumer.nack(rivals.one, queue.topic, queue.budget, [held(job)], [Return()])
        await passed(machine, queue)
        due = await rivals.one.fetchval("SELECT clock_timestamp()")

        async def later() -> bool:
            await passed(machine, queue)  # jobs whose time came later are taken meanwhile
            return bool(
                await rivals.observer.fetchval("SELECT clock_timestamp() > $1::timestamptz + interval '200 ms'", due)
            )

        await until(later, "the return is 200 ms old")
    assert (await found(machine, queue)).seq == job.seq


async def test_a_return_enters_the_lane_of_what_is_due(queue: Policy, rivals: Rivals) -> None:
    """A ready job at an old position would lie below what claims have passed."""
    await put(rivals.one, queue, batch(2))
    first, second = await take(rivals.one, queue, 2)
    await consumer.nack(rivals.one, queue.topic, queue.budget, [held(first), held(second)], [Return(), Return(20)])
    for job in (first, second):
        returned = await row(rivals.one, queue, job.seq)
        assert returned is not None
        assert returned["state"] == "scheduled"
    await put(rivals.one, queue, batch())
    assert [job.seq for job in await take(rivals.one, queue, 1)] == [first.seq], "due comes before fresh"


@pytest.mark.parametrize("end", ["rolled back", pytest.param("killed", marks=pytest.mark.alone)])
async def test_a_job_whose_claim_is_undone_elsewhere_is_claimed(
    end: str, machine: Machine, queue: Policy, rivals: Rivals
) -> None:
    await machine.enqueue(queue)
    claiming = rivals.one.transaction()
    await claiming.start()
    (job,) = await take(rivals.one, queue)
    await passed(machine, queue)
    if end == "killed":
        await rivals.observer.execute("SELECT pg_terminate_backend($1, 5000)", rivals.one.get_server_pid())
    else:
        await claiming.rollback()
    again = await found(machine, queue)
    assert (again.seq, again.deliveries) == (job.seq, 1)


@pytest.mark.parametrize("how", ["returned", "lease ended"])
async def test_what_was_held_elsewhere_is_claimed(how: str, machine: Machine, queue: Policy, rivals: Rivals) -> None:
    await put(rivals.one, queue, batch())
    (job,) = await take(rivals.one, queue, lease_ms=60_000 if how == "returned" else 2_000)
    await passed(machine, queue)
    if how == "returned":
        await consumer.nack(rivals.one, queue.topic, queue.budget, [held(job)], [Return()])
    else:
        await lease_ended(rivals.one, queue, job)
    again = await found(machine, queue)
    assert (again.seq, again.deliveries) == (job.seq, 2)


async def test_a_claim_under_way_is_not_expired(queue: Policy, rivals: Rivals) -> None:
    (seq,) = await put(rivals.one, queue, batch(ttls_ms=[1_500]))
    async with rivals.first():
        (job,) = await take(rivals.one, queue)

        await outlived(rivals.observer, queue)
        assert await exits.expire(rivals.other, queue.topic.name, 10) == 0
    assert await exits.expire(rivals.other, queue.topic.name, 10) == 0, "a good lease shields its job"
    assert await consumer.ack(rivals.one, queue.topic, [held(job)]) == {0}
    assert await events(rivals.one, queue, seq) == ["enqueued", "claimed", "acked"]
