"""The order that a topic's settings ask for: which priorities come first, and where returned jobs go."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime, timedelta

import pytest

from app.base.db.pool import Pools
from app.kernel.claim.consumer import Return
from app.kernel.claim.ordering import Ages
from app.kernel.model import Batch, Job, Seq
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine
from tests.queue.calls import batch, events, held, lease_ended, outlived

MakeQueue = Callable[..., Awaitable[Policy]]


def seqs(jobs: Sequence[Job]) -> list[Seq]:
    return [job.seq for job in jobs]


async def nack(machine: Machine, queue: Policy, *jobs: Job, delay_ms: int = 0) -> None:
    again = sorted(jobs, key=lambda job: job.seq)
    done = await machine.engine.settlements.nack(queue, [held(job) for job in again], [Return(delay_ms)] * len(jobs))
    assert len(done) == len(jobs)


async def ack(machine: Machine, queue: Policy, jobs: Sequence[Job]) -> None:
    again = sorted(jobs, key=lambda job: job.seq)
    assert len(await machine.engine.settlements.ack(queue, [held(job) for job in again])) == len(jobs)


# priority_order


@pytest.mark.parametrize("most", [1, 6])
async def test_low_priorities_come_first_where_that_is_asked(
    most: int, machine: Machine, topic: str, make_queue: MakeQueue
) -> None:
    queue = await make_queue(topic, priority_order="lowest_first")
    made = await machine.enqueue(queue, batch(6, priorities=[5, 0, 9, -3, 0, 5]))
    taken = [seq for _ in range(6 // most) for seq in seqs(await machine.claim(queue, most))]
    assert taken == [made[i] for i in (3, 1, 4, 0, 5, 2)]


async def test_a_change_of_the_order_counts_for_the_next_claim(
    machine: Machine, topic: str, make_queue: MakeQueue
) -> None:
    queue = await make_queue(topic)
    made = await machine.enqueue(queue, batch(4, priorities=[1, 2, 3, 4]))
    assert seqs(await machine.claim(queue)) == [made[3]]
    queue = await make_queue(topic, priority_order="lowest_first")
    assert seqs(await machine.claim(queue)) == [made[0]]


# retry_order


@pytest.fixture
async def back(topic: str, make_queue: MakeQueue) -> Policy:
    """A queue whose jobs go to the end of their priority when their time comes."""
    return await make_queue(topic, retry_order="back")


@pytest.mark.parametrize("most", [1, 2, 3, 5, 100])
async def test_a_returned_job_is_behind_those_that_waited_before(most: int, machine: Machine, back: Policy) -> None:
    first = await machine.enqueue(back, 4)
    (job,) = await machine.claim(back)
    await nack(machine, back, job)
    later = await machine.enqueue(back, 2)
    taken: list[Seq] = []
    while jobs := await machine.claim(back, most):
        taken += seqs(jobs)
    assert taken == [*first[1:], first[0], *later]


async def test_what_comes_later_in_the_same_millisecond_is_behind_it(
    machine: Machine, back: Policy, pools: Pools
) -> None:
    (returned,) = await machine.enqueue(back, 1)
    (job,) = await machine.claim(back)
    (later,) = await machine.enqueue(back, 1)
    await nack(machine, back, job)
    now = datetime.now(UTC)
    last = now - timedelta(milliseconds=1, microseconds=now.microsecond % 1_000)
    for seq, us in ((returned, 300), (later, 450)):
        at = last + timedelta(microseconds=us)
        await pools.rest.execute(
            "UPDATE holdfast.jobs SET created_at = $1, visible_at = $1 WHERE topic = $2 AND seq = $3",
            *(at, back.topic.name, seq),
        )
    assert seqs(await machine.claim(back, 10)) == [returned, later]


async def test_the_front_is_where_it_goes_without_the_setting(machine: Machine, queue: Policy) -> None:
    first = await machine.enqueue(queue, 4)
    (job,) = await machine.claim(queue)
    await nack(machine, queue, job)
    assert seqs(await machine.claim(queue, 10)) == first


async def test_those_that_were_returned_come_by_the_time_of_their_return(machine: Machine, back: Policy) -> None:
    first = await machine.enqueue(back, 3)
    jobs = await machine.claim(back, 3)
    await nack(machine, back, jobs[2])
    (between,) = await machine.enqueue(back)
    await nack(machine, back, jobs[0])
    await nack(machine, back, jobs[1])
    assert seqs(await machine.claim(back, 10)) == [first[2], between, first[0], first[1]]


async def test_a_returned_job_stays_in_its_priority(machine: Machine, back: Policy) -> None:
    low, high = await machine.enqueue(back, batch(2, priorities=[0, 5]))
    (job,) = await machine.claim(back)
    assert job.seq == high
    (other,) = await machine.enqueue(back, batch(1, priorities=[5]))
    await nack(machine, back, job)
    assert seqs(await machine.claim(back, 10)) == [other, high, low]


async def test_a_delayed_job_is_behind_what_waited_when_its_time_came(machine: Machine, back: Policy) -> None:
    (delayed,) = await machine.enqueue(back, batch(1, delays_ms=[50]))
    (early,) = await machine.enqueue(back)
    await asyncio.sleep(0.06)  # the only way for its time to come
    (late,) = await machine.enqueue(back)
    assert seqs(await machine.claim(back, 10)) == [early, delayed, late]


async def test_a_lease_that_ends_in_silence_is_behind_what_waited_then(
    machine: Machine, back: Policy, pools: Pools
) -> None:
    (silent,) = await machine.enqueue(back)
    (job,) = await machine.claim(back, lease_ms=100)
    early = await machine.enqueue(back, 2)
    await lease_ended(pools.rest, back, job)
    (late,) = await machine.enqueue(back)
    again = await machine.claim(back, 10)
    assert seqs(again) == [*early, silent, late]
    assert again[2].deliveries == 2
    assert await machine.engine.settlements.ack(back, [held(job)]) == set()  # its holder is too late


async def test_many_that_wait_for_their_turn_are_all_had_in_it(machine: Machine, back: Policy) -> None:
    """Each claim takes as many as it can of both parts, and leaves none of them behind."""
    rounds = []
    for _ in range(5):
        rounds.append(await machine.enqueue(back, 40))
    returned = await machine.claim(back, 60)
    for i in range(0, 60, 20):
        await nack(machine, back, *returned[i : i + 20])
        rounds.append(await machine.enqueue(back, 10))
    expected = [seq for made in rounds[:5] for seq in made][60:]
    for i, made in enumerate(rounds[5:]):
        expected += [*seqs(returned[20 * i : 20 * i + 20]), *made]
    taken: list[Seq] = []
    while jobs := await machine.claim(back, 17):
        taken += seqs(jobs)
    assert taken == expected


async def test_spent_and_outlived_jobs_are_taken_out_in_their_turn(
    machine: Machine, topic: str, make_queue: MakeQueue, pools: Pools
) -> None:
    queue = await make_queue(topic, retry_order="back", max_deliveries=1, on_exhausted="fail")
    (spent,) = await machine.enqueue(queue)
    (job,) = await machine.claim(queue, lease_ms=100)
    (outlived_one,) = await machine.enqueue(queue, batch(1, delays_ms=[1], ttls_ms=[50]))
    await lease_ended(pools.rest, queue, job)
    await outlived(pools.rest, queue)
    (good,) = await machine.enqueue(queue)
    assert seqs(await machine.claim(queue, 10)) == [good]
    assert await machine.claim(queue, 10) == []
    assert (await events(pools.rest, queue, spent))[-1] == "failed"
    assert (await events(pools.rest, queue, outlived_one))[-1] == "expired"


async def test_a_key_whose_lease_ended_is_still_updated_in_place(machine: Machine, back: Policy, pools: Pools) -> None:
    """Waiting for its turn changes no row, so that whatever holds for jobs whose time has come holds here."""
    (one,) = await machine.enqueue(back, Batch([b"1"], keys=["k"]))
    (job,) = await machine.claim(back, lease_ms=100)
    await machine.enqueue(back, 1)
    await lease_ended(pools.rest, back, job)
    assert await machine.enqueue(back, Batch([b"2"], keys=["k"])) == [one]
    assert [(job.seq, job.payload) for job in await machine.claim(back, 10)][1] == (one, b"2")


async def test_what_another_process_returned_is_found(
    start: Callable[[], Machine], machine: Machine, back: Policy
) -> None:
    other = start()
    (seq,) = await machine.enqueue(back)
    (job,) = await other.claim(back)
    early = await machine.enqueue(back, 3)
    assert seqs(await machine.claim(back)) == early[:1]
    await nack(other, back, job)
    taken: list[Seq] = []
    give_up = time.monotonic() + 2
    while seq not in taken:
        assert time.monotonic() < give_up
        taken += seqs(await machine.claim(back))
    assert taken == [*early[1:], seq]


async def test_what_others_claim_after_the_look_hides_nothing(
    start: Callable[[], Machine], machine: Machine, back: Policy
) -> None:
    """The look finds two fresh jobs before the one whose time has come; when the claim is made, they are gone."""
    other = start()
    (seq,) = await machine.enqueue(back)
    (job,) = await machine.claim(back)
    await machine.enqueue(back, 2)
    await nack(machine, back, job)

    async def be_faster() -> None:
        del machine.log.after["turns"]
        assert len(await other.claim(back, 2)) == 2

    machine.log.after["turns"] = be_faster
    assert seqs(await machine.claim(back, 2)) == [seq]
    assert "turns" not in machine.log.after


async def test_without_the_settings_nothing_more_is_asked(machine: Machine, queue: Policy) -> None:
    await machine.enqueue(queue, batch(3, priorities=[0, 5, 9]))
    await nack(machine, queue, *await machine.claim(queue, 2))
    await machine.claim(queue, 10)
    assert machine.log.count("claim") > 0
    assert machine.log.count("turns") == 0
    assert machine.engine.marks.of(queue.topic).ages == Ages()
