"""The next of a group is there as soon as the one before it is gone. docs/semantics.md, section 6."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator

import pytest

from app.base.db.pool import Pools
from app.errors import InvalidRequest, Throttled, TopicFull
from app.features.archive.replays import Replays
from app.features.jobs import changes
from app.features.upkeep import sweeps
from app.http.bounds import MAX_RECORDS
from app.kernel.counts import levels
from app.kernel.counts.levels import Levels
from app.kernel.enqueue.producer import Placement
from app.kernel.jobs import Status
from app.kernel.logs.log import TagMatch
from app.kernel.model import Batch
from app.kernel.purges import Purges
from app.kernel.settle import exit_rows as exits
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine, Make, Start, parked
from tests.queue.calls import lease_ended, outlived, until
from tests.queue.tallies import tallied
from tests.queue.test_groups import states


def of(group: str, *payloads: str) -> Batch:
    """Records of one group."""
    return Batch(payloads=[payload.encode() for payload in payloads], groups=[group] * len(payloads))


async def payloads(machine: Machine, queue: Policy) -> list[str]:
    """What can be claimed now."""
    return [job.payload.decode() for job in await machine.claim(queue, 10)]


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


async def test_after_an_ack_the_next_is_there_at_once_and_who_waits_is_woken(machine: Machine, queue: Policy) -> None:
    await machine.enqueue(queue, 1)
    await machine.ack(queue, await machine.claim(queue))
    assert machine.log.count("promote") == 0, "a topic without groups is not looked at"
    await machine.enqueue(queue, of("a", "1", "2", "3"))
    for payload in (b"1", b"2"):
        (job,) = await machine.claim(queue, 10)
        assert (job.payload, job.group) == (payload, "a")
        await machine.ack(queue, [job])
    (job,) = await machine.claim(queue, 10)
    await machine.enqueue(queue, of("a", "4"))
    waiting = asyncio.create_task(machine.claim(queue, wait=30))
    await parked(machine, queue, 1)
    await machine.ack(queue, [job])
    assert [job.payload for job in await waiting] == [b"4"]


@pytest.mark.parametrize("how", ["a last nack", "silence", "a purge"])
async def test_whatever_takes_a_job_out_lets_the_next_through(
    how: str, machine: Machine, make: Make, pools: Pools
) -> None:
    queue = await make(max_deliveries=1, dead_letter="dead")
    await machine.enqueue(queue, of("a", "1", "2"))
    jobs = await machine.claim(queue, lease_ms=100 if how == "silence" else 60_000)
    if how == "a last nack":
        await machine.nack(queue, jobs)
    elif how == "a purge":
        assert await machine.engine.core(Purges).purge(queue, [Status.PROCESSING]) == 1
    else:
        await lease_ended(pools.rest, queue, jobs[0])  # the claim that meets it takes it out
    assert await payloads(machine, queue) == ["2"]


@pytest.mark.parametrize("knows", ["of no group", "by its start", "and is killed behind its commit"])
async def test_another_process_that_takes_a_job_out_lets_the_next_through(
    knows: str, start: Start, queue: Policy, pools: Pools
) -> None:
    """One that knows of no group looks soon, since its next look is seconds away, and nobody else looks."""
    await pools.rest.execute("DELETE FROM holdfast.groups")  # of tests before this one
    await pools.rest.execute("DELETE FROM holdfast.freed_groups")
    one, other = start(), start()
    if knows == "of no group":
        async with looking(other):
            await one.enqueue(queue, of("a", "1", "2"))
            jobs = await one.claim(queue)
            assert not other.engine.groups.any_met
            await other.ack(queue, jobs)
            assert [job.payload for job in await one.claim(queue, wait=30)] == [b"2"]
        return
    await one.enqueue(queue, of("a", "1", "2"))
    jobs = await one.claim(queue)
    if knows == "by its start":
        async with looking(other):
            await other.ack(queue, jobs)
            assert await payloads(other, queue) == ["2"], "it was let through before the answer"
    else:
        await other.ack(queue, jobs)
        assert await one.claim(queue) == []
        async with looking(start()):
            assert [job.payload for job in await one.claim(queue, wait=30)] == [b"2"]


async def test_a_replay_puts_jobs_back_into_their_groups(machine: Machine, make: Make, pools: Pools) -> None:
    queue = await make(replayable=True)
    await machine.enqueue(queue, of("a", "1", "2"))
    await machine.enqueue(queue, of("b", "3"))
    for _ in range(2):
        await machine.ack(queue, await machine.claim(queue, 10))
    await machine.enqueue(queue, of("a", "4"))
    assert (await machine.engine.core(Replays).replay(queue, None)).enqueued == 3
    async with pools.rest.acquire() as db:
        assert list((await states(db, queue)).items()) == [
            ("4", "ready"), ("1", "blocked"), ("3", "ready"), ("2", "blocked"),
        ]  # fmt: skip
        assert await tallied(db, queue)


@pytest.mark.parametrize("marked_by", ["cancel", "delete"])
async def test_a_job_that_was_marked_and_completed_comes_back_into_its_group(
    marked_by: str, machine: Machine, make: Make, pools: Pools
) -> None:
    queue = await make(".fifo", replayable=True)
    await machine.enqueue(queue, of("a", "1"))
    (job,) = await machine.claim(queue)
    for _ in range(2):  # the second finds it marked
        if marked_by == "cancel":
            assert [*(await changes.cancel(pools.rest, queue.topic, [job.seq])).marked] == [job.seq]
        else:
            await exits.delete(pools.rest, queue.topic, TagMatch(), after=0, upto=9, limit=9)
    await machine.ack(queue, [job])
    await machine.enqueue(queue, of("a", "2"))
    assert (await machine.engine.core(Replays).replay(queue, None)).enqueued == 1
    async with pools.rest.acquire() as db:
        assert await states(db, queue) == {"2": "ready", "1": "blocked"}
        assert await tallied(db, queue)


@pytest.mark.parametrize("groups", [[], ["a"], ["a", None], [None, "a"]])
async def test_a_fifo_topic_takes_no_record_without_a_group(
    groups: list[str | None], machine: Machine, make: Make
) -> None:
    queue = await make(".fifo")
    records = Batch(payloads=[b"1", b"2"], groups=groups)
    with pytest.raises(InvalidRequest, match="must have a group"):
        await machine.enqueue(queue, records)
    with pytest.raises(InvalidRequest, match="must have a group"):
        await machine.engine.enqueues.place(queue, records, 2, "key")
    assert await machine.claim(queue) == []


async def test_a_full_topic_counts_blocked_jobs(machine: Machine, make: Make) -> None:
    queue = await make(discard="reject", cap_records=3)
    await machine.enqueue(queue, of("a", "1", "2", "3"))
    with pytest.raises(TopicFull):
        await machine.enqueue(queue, of("b", "4"))
    await machine.ack(queue, await machine.claim(queue))
    await machine.enqueue(queue, of("b", "4"))
    assert await payloads(machine, queue) == ["2", "4"]


async def test_callers_with_groups_are_taken_as_far_as_there_is_room(
    machine: Machine, make: Make, pools: Pools
) -> None:
    """There is none for all of them together. What has outlived its time makes some, and its groups go on."""
    queue = await make(max_depth=3)
    await machine.enqueue(queue, Batch(payloads=[b"1", b"2"], groups=["a", "b"], ttls_ms=[1, 1]))
    await outlived(pools.rest, queue)
    batches = (of("b", "3", "4"), of("a", "5", "6"), of("a", "7"))
    answers = await asyncio.gather(*(machine.enqueue(queue, one) for one in batches), return_exceptions=True)
    assert [type(answer) for answer in answers] == [list, Throttled, list]
    await machine.engine.groups.sweep()
    assert await payloads(machine, queue) == ["3", "7"]
    assert await tallied(pools.rest, queue)


@pytest.mark.parametrize("size", [500, pytest.param(MAX_RECORDS, marks=pytest.mark.slow)])
async def test_the_largest_batch_fits_into_a_statements_time(machine: Machine, queue: Policy, size: int) -> None:
    """What is quadratic in the groups of a batch does not."""
    names: list[str | None] = [f"g{n}" for n in range(size)]
    for ready in (size, 0):
        placed = await machine.engine.enqueues.place(queue, Batch(payloads=[b"1"] * size, groups=names), 1)
        assert isinstance(placed, Placement)
        assert placed.ready == ready
    await machine.ack(queue, await machine.claim(queue, 1_000))
    assert machine.log.refused == []


async def test_of_many_groups_the_next_look_goes_on_where_the_last_one_ended(
    machine: Machine, make: Make, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was found stands until its round is over: five groups don't move, and two are looked at a time."""
    monkeypatch.setattr(levels, "MOST_GROUPS", 2)
    monkeypatch.setattr(levels, "FRESH_SECONDS", 0)
    monkeypatch.setattr(levels, "SHARE", 0)
    late = await make(wait_goal_ms=1)
    for name in "abcde":
        await machine.enqueue(late, of(name, "1", "2"))
    assert len(await machine.claim(late, 10, lease_ms=3_600_000)) == 5
    counts: list[int] = []

    async def all_are_found() -> bool:
        await machine.engine.core(Levels).refresh()
        found = machine.engine.core(Levels).latest()[0]
        counts.extend(seen.stuck.groups for one, seen in found if one.topic == late.topic)
        return 5 in counts

    await until(all_are_found, "each look is at two more")
    assert counts == sorted(counts)
    assert len(set(counts)) > 2
    for _ in range(4):
        await all_are_found()
    assert min(counts[-4:]) == 5, "the next round does not begin at nothing"
