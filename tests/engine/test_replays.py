"""Replayable topics: what is completed is archived with its ack, and replayed once each, in order, come what may."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest
from asyncpg.pgproto.pgproto import UUID

from app.base.db.pool import Pools
from app.errors import NotReplayable, OutsideWindow, ShuttingDown, TopicNotFound
from app.features.archive import replays
from app.features.archive.replays import BatchLimits, Replays
from app.kernel.model import Batch, HeldJob
from app.kernel.topics import store
from app.kernel.topics.policy import Policy
from tests.engine.archives import archived, complete, counted, replay, sources
from tests.engine.machines import Machine, Make, Start, parked
from tests.queue.calls import events, held


@pytest.fixture
async def queue(make: Make) -> Policy:
    """A replayable one."""
    return await make(replayable=True)


async def test_an_ack_archives_what_it_completes(machine: Machine, queue: Policy, pools: Pools) -> None:
    records = Batch(
        payloads=[b'{"a":1}'], tags=["red"], metadata=['{"k":"v"}'], priorities=[7], tenants=["x"], max_deliveries=[5]
    )
    (seq,) = await machine.enqueue(queue, records)
    (job,) = await machine.claim(queue)
    (other,) = await machine.enqueue(queue)
    assert await machine.claim(queue) != []
    stranger = HeldJob(other, UUID(bytes(16)), None)
    assert await machine.engine.settlements.ack(queue, [held(job), stranger]) == {0}
    assert await machine.engine.settlements.ack(queue, [held(job)]) == set()
    (kept,) = await archived(pools, queue)
    assert (kept.seq, kept.payload, kept.metadata, kept.deliveries) == (seq, b'{"a":1}', '{"k":"v"}', 1)
    assert kept.created_at < kept.finished_at
    row = await pools.rest.fetchrow("SELECT * FROM holdfast.archive WHERE topic_id = $1", queue.topic.id)
    assert row is not None
    assert (row["tag"], row["priority"], row["tenant"], row["node"]) == ("red", 7, "x", "worker")
    assert (row["max_deliveries"], row["outcome"]) == (5, "completed")
    assert await events(pools.rest, queue, seq) == ["enqueued", "claimed", "acked"]
    assert await counted(pools, queue) == 0


async def test_other_topics_pay_nothing_and_a_change_takes_effect_at_the_next_call(
    machine: Machine, make: Make, pools: Pools
) -> None:
    plain = await make()
    await complete(machine, plain, 3)
    assert (machine.log.count("ack"), machine.log.count("ack_and_record")) == (1, 0)
    with pytest.raises(NotReplayable):
        await replay(machine, plain)
    await complete(machine, await make(replayable=True), 2)
    assert len(await archived(pools, plain)) == 2


async def test_a_replay_enqueues_each_once_in_the_order_of_the_acks(
    machine: Machine, queue: Policy, pools: Pools
) -> None:
    await machine.enqueue(queue, Batch(payloads=[b"%d" % i for i in range(250)], metadata=['{"k":"v"}'] * 250))
    jobs = (await machine.claim(queue, 250))[::-1]
    for job in jobs:  # acked one by one, the last enqueued first
        await machine.ack(queue, [job])
    done = await replay(machine, queue, 40)
    assert (done.enqueued, done.done, done.joined) == (250, True, False)
    assert await sources(pools, queue) == [job.seq for job in jobs]
    again = await machine.claim(queue, 1_000)
    assert [job.payload for job in again] == [job.payload for job in jobs]
    assert {(job.deliveries, job.metadata, job.original_topic) for job in again} == {(1, '{"k":"v"}', None)}
    assert {job.seq for job in again}.isdisjoint(job.seq for job in jobs)
    assert len(await archived(pools, queue)) == 250
    assert await counted(pools, queue) == 0


async def test_a_job_comes_back_as_what_it_was(machine: Machine, queue: Policy, pools: Pools) -> None:
    """In its lane, which may be gone by then."""
    records = Batch(
        payloads=[b"\xff\x00", b"{}"],
        content_types=["image/png", None],
        priorities=[3, 8],
        tenants=["a", "b"],
        tags=["t", None],
        max_deliveries=[None, 2],
    )
    await machine.enqueue(queue, records)
    await complete(machine, queue)
    await pools.rest.execute("DELETE FROM holdfast.lanes WHERE topic = $1", queue.topic.name)
    assert (await replay(machine, queue)).enqueued == 2
    rows = await pools.rest.fetch(
        "SELECT payload, content_type, priority, tenant, tag, max_deliveries FROM holdfast.jobs WHERE topic = $1",
        queue.topic.name,
    )
    assert set(map(tuple, rows)) == {(b"\xff\x00", "image/png", 3, "a", "t", None), (b"{}", None, 8, "b", None, 2)}
    assert len(await machine.claim(queue, 10)) == 2


async def test_jobs_acked_during_a_replay_do_not_come_back_in_it(machine: Machine, queue: Policy, pools: Pools) -> None:
    first = await complete(machine, queue, 120)

    async def work() -> None:
        await complete(machine, queue)

    machine.log.after["replay"] = work  # each batch is acked before the next
    assert (await replay(machine, queue, 25)).enqueued == 120
    assert await sources(pools, queue) == first
    assert len(await archived(pools, queue)) == 240
    del machine.log.after["replay"]
    assert (await replay(machine, queue)).enqueued == 240  # another one has all of them
    assert await counted(pools, queue) == 0


async def test_workers_and_producers_go_on_meanwhile(machine: Machine, queue: Policy, pools: Pools) -> None:
    first = await complete(machine, queue, 150)
    worked: list[int] = []
    begun = asyncio.Event()

    async def work() -> None:
        while len(worked) < 200:
            jobs = await machine.claim(queue, 20, wait=1)
            await machine.ack(queue, jobs)
            worked.extend(job.seq for job in jobs)

    async def begins() -> None:
        begun.set()

    async def produce() -> None:
        await begun.wait()  # what was done before it began would be replayed
        for _ in range(10):
            await machine.enqueue(queue, 5)

    machine.log.after["replay"] = begins
    replayed, *_ = await asyncio.gather(replay(machine, queue, 10), work(), work(), produce())
    assert replayed.enqueued == 150
    assert await sources(pools, queue) == first
    assert len(worked) == len(set(worked)) == 200
    assert await counted(pools, queue) == 0


async def test_after_a_crash_the_same_call_goes_on_where_it_stopped(start: Start, queue: Policy, pools: Pools) -> None:
    machine = start()
    first = await complete(machine, queue, 100)

    async def crash() -> None:
        if machine.log.count("replay") == 3:  # committed, and nobody hears of it
            raise asyncpg.ConnectionDoesNotExistError

    machine.log.after["replay"] = crash
    with pytest.raises(asyncpg.ConnectionDoesNotExistError):
        await replay(machine, queue, 15)
    assert len(await sources(pools, queue)) == 45
    done = await replay(start(), queue, 15)
    assert (done.enqueued, done.joined) == (100, True)
    assert await sources(pools, queue) == first
    assert await counted(pools, queue) == 0


async def test_a_batch_that_was_rolled_back_is_not_left_out(machine: Machine, queue: Policy, pools: Pools) -> None:
    first = await complete(machine, queue, 50)

    async def deadlock() -> None:
        if machine.log.count("replay") == 2:
            raise asyncpg.DeadlockDetectedError

    machine.log.before["replay"] = deadlock
    assert (await replay(machine, queue, 20)).enqueued == 50
    assert await sources(pools, queue) == first


async def test_callers_of_the_same_replay_share_it(start: Start, queue: Policy, pools: Pools) -> None:
    first = await complete(start(), queue, 200)
    machines = [start() for _ in range(4)]
    begun = asyncio.Barrier(4)

    async def all_begun() -> None:
        await begun.wait()

    for machine in machines:
        machine.log.after["begin_replay"] = all_begun
    done = await asyncio.gather(*(replay(machine, queue, 20) for machine in machines))
    assert await sources(pools, queue) == first
    assert [run.enqueued for run in done] == [200] * 4
    assert sum(run.joined for run in done) == 3
    assert await counted(pools, queue) == 0


async def test_two_replays_from_different_times_are_two(machine: Machine, queue: Policy, pools: Pools) -> None:
    early = await complete(machine, queue, 10)
    late = await complete(machine, queue, 5)
    newest = (await archived(pools, queue))[0].finished_at
    assert (await machine.engine.core(Replays).replay(queue, newest)).enqueued == 5
    assert await sources(pools, queue) == late
    assert (await replay(machine, queue)).enqueued == 15
    assert await sources(pools, queue) == late + early + late


async def test_one_that_was_left_long_ago_is_not_joined(
    machine: Machine, queue: Policy, pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    await complete(machine, queue, 5)
    left = await replays.begin(pools.rest, queue.topic, None, 0)
    assert left is not None
    await complete(machine, queue, 5)
    monkeypatch.setattr(replays, "JOIN_MS", 0)
    done = await replay(machine, queue)
    assert (done.enqueued, done.joined) == (10, False)
    # Who was at the old one finds that it is over.
    assert await replays.look(pools.rest, queue.topic, left) is None
    assert await replays.replay(pools.rest, queue.topic, left, BatchLimits(), 0) is None


async def test_the_window_bounds_what_is_replayed(machine: Machine, queue: Policy, make: Make) -> None:
    await complete(machine, queue, 3)
    core, now = machine.engine.core(Replays), datetime.now(UTC)
    day = await make(replayable=True, replay_window_ms=86_400_000)
    for bad in (now - timedelta(days=2), now + timedelta(days=1)):
        with pytest.raises(OutsideWindow):
            await core.replay(day, bad)
    assert (await core.replay(day, now - timedelta(hours=23))).enqueued == 3
    instant = await make(replayable=True, replay_window_ms=1)
    over = await replays.begin(machine.pools.rest, instant.topic, None, 1)
    assert over is not None
    assert over.until_time - over.from_time == timedelta(milliseconds=1)


async def test_a_window_of_zero_has_no_end(machine: Machine, make: Make) -> None:
    for_ever = await make(replayable=True, replay_window_ms=0)
    await complete(machine, for_ever, 3)
    core, since = machine.engine.core(Replays), datetime(2001, 2, 3, tzinfo=UTC)
    done = await core.replay(for_ever, since)
    assert (done.enqueued, done.from_time) == (3, since)
    assert (await core.replay(for_ever, None)).from_time == datetime(1970, 1, 1, tzinfo=UTC)
    with pytest.raises(OutsideWindow):
        await core.replay(for_ever, datetime.now(UTC) + timedelta(days=1))


async def test_large_payloads_make_small_batches(machine: Machine, queue: Policy, pools: Pools) -> None:
    await machine.enqueue(queue, Batch(payloads=[b"x" * 50_000] * 7))
    first = await complete(machine, queue)
    assert (await replay(machine, queue, 1_000, 100_000)).enqueued == 7
    assert machine.log.count("replay") == 5  # two, two, two, one, and the look that finds no more
    assert (await replay(machine, queue, 1_000, 1)).enqueued == 7
    assert await sources(pools, queue) == first * 2


@pytest.mark.usefixtures("no_poll")
async def test_it_wakes_who_waits(machine: Machine, queue: Policy) -> None:
    await complete(machine, queue, 1)
    waiting = asyncio.create_task(machine.claim(queue, 1, wait=30))
    await parked(machine, queue, 1)
    await replay(machine, queue)
    assert len(await waiting) == 1


async def test_a_service_that_stops_leaves_it_at_a_batch(start: Start, queue: Policy, pools: Pools) -> None:
    machine = start()
    first = await complete(machine, queue, 30)
    stopping = Replays(machine.engine)
    stopping.limits = BatchLimits(10)

    async def stop() -> None:
        stopping.stop()

    machine.log.after["replay"] = stop
    with pytest.raises(ShuttingDown):
        await stopping.replay(queue, None)
    assert await sources(pools, queue) == first[:10]
    assert (await replay(start(), queue)).enqueued == 30
    assert await sources(pools, queue) == first


async def test_a_topic_of_the_same_name_has_an_archive_of_its_own(
    machine: Machine, queue: Policy, make: Make, pools: Pools
) -> None:
    await complete(machine, queue, 3)
    await store.delete(pools.rest, queue.topic.name, if_empty=False)
    anew = await make(replayable=True)
    assert await archived(pools, anew) == []
    assert (await replay(machine, anew)).enqueued == 0
    with pytest.raises(TopicNotFound):  # a process that has not heard of the deletion
        await replay(machine, queue)
    assert await sources(pools, queue) == []
