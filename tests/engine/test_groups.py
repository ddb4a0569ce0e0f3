"""The next of a group is there as soon as the one before it is gone. docs/semantics.md, section 6."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from app.base.db.pool import Pools
from app.errors import InvalidRequest, Throttled, TopicFull
from app.features.archive.replays import Replays
from app.features.jobs import changes
from app.features.upkeep import sweeps
from app.http.bounds import MAX_RECORDS
from app.kernel.claim.consumer import Return
from app.kernel.counts import levels
from app.kernel.counts.levels import Levels
from app.kernel.enqueue.producer import Placement
from app.kernel.jobs import Status
from app.kernel.logs.log import TagMatch
from app.kernel.model import Batch
from app.kernel.purges import Purges
from app.kernel.settle import exit_rows as exits
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine, parked
from tests.queue.calls import held, lease_ended, outlived, until
from tests.queue.tallies import tallied
from tests.queue.test_groups import states

MakeQueue = Callable[..., Awaitable[Policy]]


def of(group: str, *payloads: str) -> Batch:
    """Records of one group."""
    return Batch(payloads=[payload.encode() for payload in payloads], groups=[group] * len(payloads))


@contextlib.asynccontextmanager
async def looking(machine: Machine) -> AsyncIterator[None]:
    """With its reaper, whose look at the start is over."""
    loop = sweeps.groups(machine.engine)
    loop.start()

    async def looked() -> bool:
        return machine.log.count("freed_topics") > 0

    try:
        await until(looked, "it looks when it starts")
        yield
    finally:
        await loop.stop()


async def test_after_an_ack_the_next_is_there_at_once(machine: Machine, queue: Policy, pools: Pools) -> None:
    await machine.enqueue(queue, of("a", "1", "2", "3"))
    for payload in (b"1", b"2", b"3"):
        (job,) = await machine.claim(queue, 10)
        assert (job.payload, job.group) == (payload, "a")
        assert await machine.engine.settlements.ack(queue, [held(job)]) == {0}
    async with pools.rest.acquire() as db:
        assert await tallied(db, queue)


async def test_who_waits_is_woken_by_the_ack(machine: Machine, queue: Policy) -> None:
    await machine.enqueue(queue, of("a", "1", "2"))
    (job,) = await machine.claim(queue)
    waiting = asyncio.create_task(machine.claim(queue, wait=10))
    await parked(machine, queue, 1)
    await machine.engine.settlements.ack(queue, [held(job)])
    assert [job.payload for job in await asyncio.wait_for(waiting, 5)] == [b"2"]


async def test_a_topic_without_groups_is_not_looked_at(machine: Machine, queue: Policy) -> None:
    await machine.enqueue(queue, 1)
    (job,) = await machine.claim(queue)
    await machine.engine.settlements.ack(queue, [held(job)])
    assert machine.log.count("promote") == 0


async def test_who_knows_of_no_group_and_takes_a_job_out_looks_soon(
    start: Callable[..., Machine], queue: Policy, pools: Pools
) -> None:
    """Its look at the start is over when the first group begins, its next is seconds away, and nobody else looks."""
    await pools.rest.execute("DELETE FROM holdfast.groups")  # of tests before this one
    await pools.rest.execute("DELETE FROM holdfast.freed_groups")
    one, other = start(), start()
    async with looking(other):
        await one.enqueue(queue, of("a", "1", "2"))
        (job,) = await one.claim(queue)
        assert not other.engine.groups.any_met
        assert await other.engine.settlements.ack(queue, [held(job)]) == {0}
        (job,) = await asyncio.wait_for(one.claim(queue, wait=5), 5)
        assert job.payload == b"2"


async def test_a_process_that_starts_learns_which_topics_have_groups(
    start: Callable[..., Machine], queue: Policy
) -> None:
    one, other = start(), start()
    await one.enqueue(queue, of("a", "1", "2"))
    (job,) = await one.claim(queue)
    async with looking(other):
        assert await other.engine.settlements.ack(queue, [held(job)]) == {0}
        assert [job.payload for job in await other.claim(queue)] == [b"2"], "it was let through before the answer"


async def test_what_a_process_left_is_found_when_another_starts(start: Callable[..., Machine], queue: Policy) -> None:
    """It was killed behind the commit of its ack."""
    one, other = start(), start()
    await one.enqueue(queue, of("a", "1", "2"))
    (job,) = await one.claim(queue)
    assert await other.engine.settlements.ack(queue, [held(job)]) == {0}
    assert await one.claim(queue) == []
    async with looking(start()):
        (job,) = await asyncio.wait_for(one.claim(queue, wait=5), 5)
        assert job.payload == b"2"


async def test_a_last_nack_lets_the_next_through(machine: Machine, topic: str, make_queue: MakeQueue) -> None:
    queue = await make_queue(topic, max_deliveries=1, dead_letter=f"{topic}.dead")
    await machine.enqueue(queue, of("a", "1", "2"))
    (job,) = await machine.claim(queue)
    assert await machine.engine.settlements.nack(queue, [held(job)], [Return()]) == {0}
    assert [job.payload for job in await machine.claim(queue, 10)] == [b"2"]


async def test_a_last_delivery_that_ends_in_silence_lets_the_next_through(
    machine: Machine, topic: str, make_queue: MakeQueue, pools: Pools
) -> None:
    queue = await make_queue(topic, max_deliveries=1, on_exhausted="fail")
    await machine.enqueue(queue, of("a", "1", "2"))
    (job,) = await machine.claim(queue, lease_ms=100)
    await lease_ended(pools.rest, queue, job)
    assert [job.payload for job in await machine.claim(queue, 10)] == [b"2"], "by the claim that meets it"


async def test_a_purge_of_what_is_processed_lets_the_next_through(machine: Machine, queue: Policy) -> None:
    await machine.enqueue(queue, of("a", "1", "2"))
    await machine.claim(queue)
    assert await machine.engine.core(Purges).purge(queue, [Status.PROCESSING]) == 1
    assert [job.payload for job in await machine.claim(queue, 10)] == [b"2"]


async def test_a_replay_puts_jobs_back_into_their_groups(
    machine: Machine, topic: str, make_queue: MakeQueue, pools: Pools
) -> None:
    queue = await make_queue(topic, replayable=True)
    await machine.enqueue(queue, of("a", "1", "2"))
    await machine.enqueue(queue, of("b", "3"))
    for _ in range(2):
        jobs = await machine.claim(queue, 10)
        await machine.engine.settlements.ack(queue, [held(job) for job in jobs])
    await machine.enqueue(queue, of("a", "4"))
    assert (await machine.engine.core(Replays).replay(queue, None)).enqueued == 3
    async with pools.rest.acquire() as db:
        assert list((await states(db, queue)).items()) == [
            ("4", "ready"), ("1", "blocked"), ("3", "ready"), ("2", "blocked"),
        ]  # fmt: skip
        assert await tallied(db, queue)
    done = []
    while jobs := await machine.claim(queue):
        done.append(jobs[0].payload)
        await machine.engine.settlements.ack(queue, [held(jobs[0])])
    assert [one for one in done if one != b"3"] == [b"4", b"1", b"2"]


@pytest.mark.parametrize("marked_by", ["cancel", "delete"])
async def test_a_job_that_was_marked_and_completed_comes_back_into_its_group(
    marked_by: str, machine: Machine, topic: str, make_queue: MakeQueue, pools: Pools
) -> None:
    queue = await make_queue(f"{topic}.fifo", replayable=True)
    await machine.enqueue(queue, of("a", "1"))
    (job,) = await machine.claim(queue)
    for _ in range(2):  # the second finds it marked
        if marked_by == "cancel":
            assert [*(await changes.cancel(pools.rest, queue.topic, [job.seq])).marked] == [job.seq]
        else:
            await exits.delete(pools.rest, queue.topic, TagMatch(), after=0, upto=9, limit=9)
    assert await machine.engine.settlements.ack(queue, [held(job)]) == {0}
    await machine.enqueue(queue, of("a", "2"))
    assert (await machine.engine.core(Replays).replay(queue, None)).enqueued == 1
    async with pools.rest.acquire() as db:
        assert await states(db, queue) == {"2": "ready", "1": "blocked"}
        assert await tallied(db, queue)


@pytest.mark.parametrize("groups", [[], ["a"], ["a", None], [None, "a"]])
async def test_a_fifo_topic_takes_no_record_without_a_group(
    groups: list[str | None], machine: Machine, topic: str, make_queue: MakeQueue
) -> None:
    queue = await make_queue(f"{topic}.fifo")
    records = Batch(payloads=[b"1", b"2"], groups=groups)
    with pytest.raises(InvalidRequest, match="must have a group"):
        await machine.enqueue(queue, records)
    with pytest.raises(InvalidRequest, match="must have a group"):
        await machine.engine.enqueues.place(queue, records, 2, "key")
    assert await machine.claim(queue) == []


async def test_a_full_topic_counts_blocked_jobs(machine: Machine, topic: str, make_queue: MakeQueue) -> None:
    queue = await make_queue(topic, discard="reject", cap_records=3)
    await machine.enqueue(queue, of("a", "1", "2", "3"))
    with pytest.raises(TopicFull):
        await machine.enqueue(queue, of("b", "4"))
    (job,) = await machine.claim(queue)
    await machine.engine.settlements.ack(queue, [held(job)])
    await machine.enqueue(queue, of("b", "4"))
    assert [job.payload for job in await machine.claim(queue, 10)] == [b"2", b"4"]


async def test_callers_with_groups_are_taken_as_far_as_there_is_room(
    machine: Machine, topic: str, make_queue: MakeQueue, pools: Pools
) -> None:
    """There is none for all of them together. What has outlived its time makes some, and its groups go on."""
    queue = await make_queue(topic, max_depth=3)
    await machine.enqueue(queue, Batch(payloads=[b"1", b"2"], groups=["a", "b"], ttls_ms=[1, 1]))
    async with pools.rest.acquire() as db:
        await outlived(db, queue)
    batches = (of("b", "3", "4"), of("a", "5", "6"), of("a", "7"))
    answers = await asyncio.gather(*(machine.enqueue(queue, one) for one in batches), return_exceptions=True)
    assert [type(answer) for answer in answers] == [list, Throttled, list]
    await machine.engine.groups.sweep()
    assert [job.payload for job in await machine.claim(queue, 10)] == [b"3", b"7"]
    async with pools.rest.acquire() as db:
        assert await tallied(db, queue)


async def test_the_largest_batch_fits_into_a_statements_time(machine: Machine, queue: Policy) -> None:
    """What is quadratic in the groups of a batch does not."""
    names: list[str | None] = [f"g{n}" for n in range(MAX_RECORDS)]
    for ready in (MAX_RECORDS, 0):
        placed = await machine.engine.enqueues.place(queue, Batch(payloads=[b"1"] * MAX_RECORDS, groups=names), 1)
        assert isinstance(placed, Placement)
        assert placed.ready == ready
    jobs = sorted(await machine.claim(queue, 1_000), key=lambda job: job.seq)
    assert len(await machine.engine.settlements.ack(queue, [held(job) for job in jobs])) == 1_000
    assert machine.log.refused == []


async def test_of_many_groups_the_next_look_goes_on_where_the_last_one_ended(
    machine: Machine, topic: str, make_queue: MakeQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found stands until its round is over: five groups don't move, and two are looked at a time."""
    monkeypatch.setattr(levels, "MOST_GROUPS", 2)
    monkeypatch.setattr(levels, "FRESH_SECONDS", 0)
    monkeypatch.setattr(levels, "SHARE", 0)
    late = await make_queue(topic, wait_goal_ms=1)
    for name in "abcde":
        await machine.enqueue(late, of(name, "1", "2"))
    jobs = await machine.claim(late, 10, lease_ms=3_600_000)
    assert len(jobs) == 5

    counts: list[int] = []

    async def all_are_found() -> bool:
        await machine.engine.core(Levels).refresh()
        counts.extend(
            seen.stuck.groups for one, seen in machine.engine.core(Levels).latest()[0] if one.topic == late.topic
        )
        return 5 in counts

    await until(all_are_found, "each look is at two more")
    assert counts == sorted(counts)
    assert len(set(counts)) > 2
    for _ in range(4):
        await all_are_found()
    assert min(counts[-4:]) == 5, "the next round does not begin at nothing"
