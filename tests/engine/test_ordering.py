"""The order that jobs come in, and the one that a topic's settings ask for. docs/semantics.md, section 4."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta

import pytest

from app.base.db.pool import Pools
from app.kernel.claim.consumer import Return
from app.kernel.claim.ordering import Ages
from app.kernel.model import Batch, Job, Seq
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine, Make, Start
from tests.queue.calls import batch, events, held, lease_ended, outlived, until


def seqs(jobs: Sequence[Job]) -> list[Seq]:
    return [job.seq for job in jobs]


async def drained(machine: Machine, queue: Policy, most: int) -> list[Seq]:
    """Claim so many at a time until nothing comes."""
    taken: list[Seq] = []
    while jobs := await machine.claim(queue, most):
        taken += seqs(jobs)
    return taken


@pytest.mark.parametrize("most", [1, 10])
async def test_jobs_come_by_priority_then_what_is_due_then_by_age(most: int, machine: Machine, queue: Policy) -> None:
    """Of those that are due, the longest overdue comes first. Any small number is a priority, however low."""
    first = await machine.enqueue(queue, batch(6, priorities=[0, 5, -32_768, 5, 32_767, 0]))
    jobs = {job.seq: job for job in await machine.claim(queue, 10)}
    assert list(jobs) == [first[i] for i in (4, 1, 3, 0, 5, 2)]
    for i in (3, 1, 0, 2):
        await machine.nack(queue, [jobs[first[i]]])
    fresh = await machine.enqueue(queue, batch(3, priorities=[5, 0, -32_768]))
    expected = [first[3], first[1], fresh[0], first[0], fresh[1], first[2], fresh[2]]
    assert await drained(machine, queue, most) == expected


@pytest.mark.parametrize("most", [1, 6])
async def test_low_priorities_come_first_where_that_is_asked(most: int, machine: Machine, make: Make) -> None:
    queue = await make()
    made = await machine.enqueue(queue, batch(7, priorities=[5, 0, 9, -3, 0, 5, 10]))
    assert seqs(await machine.claim(queue)) == [made[6]]
    lowest_first = await make(priority_order="lowest_first")  # counts for the next claim
    assert await drained(machine, lowest_first, most) == [made[i] for i in (3, 1, 4, 0, 5, 2)]


# retry_order


@pytest.fixture
async def back(make: Make) -> Policy:
    """A queue whose jobs go to the end of their priority when their time comes."""
    return await make(retry_order="back")


@pytest.mark.parametrize("most", [1, 2, 3, 5, 100])
async def test_a_returned_job_is_behind_those_that_waited_before(most: int, machine: Machine, back: Policy) -> None:
    first = await machine.enqueue(back, 4)
    await machine.nack(back, await machine.claim(back))
    later = await machine.enqueue(back, 2)
    assert await drained(machine, back, most) == [*first[1:], first[0], *later]


async def test_what_comes_later_in_the_same_millisecond_is_behind_it(
    machine: Machine, back: Policy, pools: Pools
) -> None:
    (returned,) = await machine.enqueue(back, 1)
    jobs = await machine.claim(back)
    (later,) = await machine.enqueue(back, 1)
    await machine.nack(back, jobs)
    now = datetime.now(UTC)
    last = now - timedelta(milliseconds=1, microseconds=now.microsecond % 1_000)
    for seq, us in ((returned, 300), (later, 450)):
        at = last + timedelta(microseconds=us)
        await pools.rest.execute(
            "UPDATE holdfast.jobs SET created_at = $1, visible_at = $1 WHERE topic = $2 AND seq = $3",
            *(at, back.topic.name, seq),
        )
    assert seqs(await machine.claim(back, 10)) == [returned, later]


async def test_those_that_were_returned_come_by_the_time_of_their_return(machine: Machine, back: Policy) -> None:
    """Each in its priority."""
    (high,) = await machine.enqueue(back, batch(1, priorities=[5]))
    (first_high,) = await machine.claim(back)
    first = await machine.enqueue(back, 3)
    jobs = await machine.claim(back, 3)
    await machine.nack(back, jobs[2:])
    between, other_high = await machine.enqueue(back, batch(2, priorities=[0, 5]))
    for job in (jobs[0], jobs[1], first_high):
        await machine.nack(back, [job])
    assert seqs(await machine.claim(back, 10)) == [other_high, high, first[2], between, first[0], first[1]]


async def test_a_delayed_job_is_behind_what_waited_when_its_time_came(machine: Machine, back: Policy) -> None:
    (delayed,) = await machine.enqueue(back, batch(1, delays_ms=[50]))
    (early,) = await machine.enqueue(back)
    await asyncio.sleep(0.06)  # the only way for its time to come
    (late,) = await machine.enqueue(back)
    assert seqs(await machine.claim(back, 10)) == [early, delayed, late]


async def test_a_lease_that_ends_in_silence_is_behind_what_waited_then(
    machine: Machine, back: Policy, pools: Pools
) -> None:
    """Its key is updated in place meanwhile: waiting for its turn changes no row."""
    (silent,) = await machine.enqueue(back, Batch([b"1"], keys=["k"]))
    (job,) = await machine.claim(back, lease_ms=100)
    early = await machine.enqueue(back, 2)
    await lease_ended(pools.rest, back, job)
    assert await machine.enqueue(back, Batch([b"2"], keys=["k"])) == [silent]
    (late,) = await machine.enqueue(back)
    again = await machine.claim(back, 10)
    assert seqs(again) == [*early, silent, late]
    assert (again[2].payload, again[2].deliveries) == (b"2", 2)
    assert await machine.engine.settlements.ack(back, [held(job)]) == set()  # its holder is too late


async def test_many_that_wait_for_their_turn_are_all_had_in_it(machine: Machine, back: Policy) -> None:
    """Each claim takes as many as it can of both parts, and leaves none of them behind."""
    expected = (await machine.enqueue(back, 200))[60:]
    returned = await machine.claim(back, 60)
    for i in range(0, 60, 20):
        await machine.nack(back, returned[i : i + 20])
        expected += [*seqs(returned[i : i + 20]), *await machine.enqueue(back, 10)]
    assert await drained(machine, back, 17) == expected


async def test_spent_and_outlived_jobs_are_taken_out_in_their_turn(machine: Machine, make: Make, pools: Pools) -> None:
    queue = await make(retry_order="back", max_deliveries=1, on_exhausted="fail")
    (spent,) = await machine.enqueue(queue)
    (job,) = await machine.claim(queue, lease_ms=100)
    (outlived_one,) = await machine.enqueue(queue, batch(1, delays_ms=[1], ttls_ms=[50]))
    await lease_ended(pools.rest, queue, job)
    await outlived(pools.rest, queue)
    (good,) = await machine.enqueue(queue)
    assert await drained(machine, queue, 10) == [good]
    assert (await events(pools.rest, queue, spent))[-1] == "failed"
    assert (await events(pools.rest, queue, outlived_one))[-1] == "expired"


async def test_what_another_process_returned_is_found(start: Start, machine: Machine, back: Policy) -> None:
    other = start()
    (seq,) = await machine.enqueue(back)
    jobs = await other.claim(back)
    early = await machine.enqueue(back, 3)
    assert seqs(await machine.claim(back)) == early[:1]
    await other.nack(back, jobs)
    taken: list[Seq] = []

    async def found() -> bool:
        taken.extend(seqs(await machine.claim(back)))
        return seq in taken

    await until(found, "it comes")
    assert taken == [*early[1:], seq]


async def test_what_others_claim_after_the_look_hides_nothing(start: Start, machine: Machine, back: Policy) -> None:
    """The look finds two fresh jobs before the one whose time has come; when the claim is made, they are gone."""
    other = start()
    (seq,) = await machine.enqueue(back)
    jobs = await machine.claim(back)
    await machine.enqueue(back, 2)
    await machine.nack(back, jobs)

    async def be_faster() -> None:
        del machine.log.after["turns"]
        assert len(await other.claim(back, 2)) == 2

    machine.log.after["turns"] = be_faster
    assert seqs(await machine.claim(back, 2)) == [seq]
    assert "turns" not in machine.log.after


async def test_without_the_settings_nothing_more_is_asked(machine: Machine, queue: Policy) -> None:
    first = await machine.enqueue(queue, batch(3, priorities=[0, 5, 5]))
    jobs = await machine.claim(queue, 2)
    await machine.nack(queue, jobs, Return(delay_ms=0))
    assert seqs(await machine.claim(queue, 10)) == [first[1], first[2], first[0]], "to the front of its priority"
    assert machine.log.count("claim") > 0
    assert machine.log.count("turns") == 0
    assert machine.engine.marks.of(queue.topic).ages == Ages()
