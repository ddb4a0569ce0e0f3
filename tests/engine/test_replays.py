"""Replayable topics: what is completed is archived with its ack, and replayed once each, in order, come what may."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
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
from tests.engine.archives import archived, complete, counted, drain, in_batches, sources
from tests.engine.machines import Machine, parked
from tests.queue.calls import events, held

Make = Callable[..., Awaitable[Policy]]
Start = Callable[..., Machine]


@pytest.fixture
async def queue(topic: str, make_queue: Make) -> Policy:
    """A replayable one."""
    return await make_queue(topic, replayable=True)


async def test_an_ack_archives_what_it_completes(machine: Machine, queue: Policy, pools: Pools) -> None:
    records = Batch(
        payloads=[b'{"a":1}'], tags=["red"], metadata=['{"k":"v"}'], priorities=[7], tenants=["x"], max_deliveries=[5]
    )
    (seq,) = await machine.enqueue(queue, records)
    (job,) = await machine.claim(queue)
    assert await machine.engine.settlements.ack(queue, [held(job)]) == {0}
    assert await machine.engine.settlements.ack(queue, [held(job)]) == set()
    (kept,) = await archived(pools, queue)
    assert (kept.seq, kept.payload, kept.metadata, kept.deliveries) == (seq, b'{"a":1}', '{"k":"v"}', 1)
    assert kept.created_at < kept.finished_at
    assert machine.log.count("ack") == 0
    row = await pools.rest.fetchrow("SELECT * FROM holdfast.archive WHERE topic_id = $1", queue.topic.id)
    assert row is not None
    assert (row["tag"], row["priority"], row["tenant"], row["node"]) == ("red", 7, "x", "worker")
    assert (row["max_deliveries"], row["outcome"]) == (5, "completed")
    assert await events(pools.rest, queue, seq) == ["enqueued", "claimed", "acked"]
    assert await counted(pools, queue) == 0


async def test_what_is_not_its_holders_is_not_archived(machine: Machine, queue: Policy, pools: Pools) -> None:
    await machine.enqueue(queue, 2)
    mine, other = await machine.claim(queue, 2)
    stranger = HeldJob(other.seq, UUID(bytes(16)), None)
    done = await machine.engine.settlements.ack(queue, sorted([held(mine), stranger], key=lambda h: h.seq))
    assert len(done) == 1
    assert [row.seq for row in await archived(pools, queue)] == [mine.seq]


async def test_other_topics_pay_nothing_and_a_change_takes_effect_at_the_next_call(
    machine: Machine, topic: str, make_queue: Make, pools: Pools
) -> None:
    plain = await make_queue(topic)
    await complete(machine, plain, 3)
    assert (machine.log.count("ack"), machine.log.count("ack_and_record")) == (1, 0)
    with pytest.raises(NotReplayable):
        await machine.engine.core(Replays).replay(plain, None)
    replayable = await make_queue(topic, replayable=True)
    await complete(machine, replayable, 2)
    assert len(await archived(pools, plain)) == 2


async def test_a_replay_enqueues_each_once_in_the_order_of_the_acks(
    machine: Machine, queue: Policy, pools: Pools
) -> None:
    await machine.enqueue(queue, Batch(payloads=[b"%d" % i for i in range(250)], metadata=['{"k":"v"}'] * 250))
    jobs = await machine.claim(queue, 250)
    order = []
    for job in reversed(jobs):  # acked one by one, the last enqueued first
        await machine.engine.settlements.ack(queue, [held(job)])
        order.append(job.seq)
    done = await in_batches(machine.engine, 40).replay(queue, None)
    assert (done.enqueued, done.done, done.joined) == (250, True, False)
    assert await sources(pools, queue) == order
    again = await machine.claim(queue, 1_000)
    assert [job.payload for job in again] == [job.payload for job in reversed(jobs)]
    assert {(job.deliveries, job.metadata, job.original_topic) for job in again} == {(1, '{"k":"v"}', None)}
    assert {job.seq for job in again}.isdisjoint(order)
    assert len(await archived(pools, queue)) == 250
    assert await counted(pools, queue) == 0


async def test_lanes_and_limits_of_a_job_come_back_with_it(machine: Machine, queue: Policy, pools: Pools) -> None:
    records = Batch(
        payloads=[b"1", b"2"], priorities=[3, 8], tenants=["a", "b"], tags=["t", None], max_deliveries=[None, 2]
    )
    await machine.enqueue(queue, records)
    await drain(machine, queue)
    await pools.rest.execute("DELETE FROM holdfast.lanes WHERE topic = $1", queue.topic.name)
    assert (await machine.engine.core(Replays).replay(queue, None)).enqueued == 2
    rows = await pools.rest.fetch(
        "SELECT payload, priority, tenant, tag, max_deliveries FROM holdfast.jobs WHERE topic = $1", queue.topic.name
    )
    assert sorted(map(tuple, rows)) == [(b"1", 3, "a", "t", None), (b"2", 8, "b", None, 2)]
    assert len(await machine.claim(queue, 10)) == 2


async def test_a_payload_comes_back_as_what_it_is(machine: Machine, queue: Policy, pools: Pools) -> None:
    await machine.enqueue(queue, Batch(payloads=[b"\xff\x00", b"{}"], content_types=["image/png", None]))
    await drain(machine, queue)
    await machine.engine.core(Replays).replay(queue, None)
    assert [(job.payload, job.content_type) for job in await machine.claim(queue, 2)] == [
        (b"\xff\x00", "image/png"),
        (b"{}", None),
    ]


async def test_jobs_acked_during_a_replay_do_not_come_back_in_it(machine: Machine, queue: Policy, pools: Pools) -> None:
    first = await complete(machine, queue, 120)

    async def work() -> None:
        await drain(machine, queue)

    machine.log.after["replay"] = work  # each batch is acked before the next
    done = await in_batches(machine.engine, 25).replay(queue, None)
    assert done.enqueued == 120
    assert await sources(pools, queue) == first
    assert len(await archived(pools, queue)) == 240
    del machine.log.after["replay"]
    assert (await machine.engine.core(Replays).replay(queue, None)).enqueued == 240  # another one has all of them
    assert await counted(pools, queue) == 0


async def test_workers_and_producers_go_on_meanwhile(machine: Machine, queue: Policy, pools: Pools) -> None:
    first = await complete(machine, queue, 300)
    worked: list[int] = []

    async def work() -> None:
        while len(worked) < 400:
            jobs = await machine.claim(queue, 20, wait=5)
            await machine.engine.settlements.ack(queue, [held(job) for job in jobs])
            worked.extend(job.seq for job in jobs)

    begun = asyncio.Event()

    async def begins() -> None:
        begun.set()

    async def produce() -> None:
        await begun.wait()  # what was done before it began would be replayed
        for _ in range(20):
            await machine.enqueue(queue, 5)

    machine.log.after["replay"] = begins
    replayed, *_ = await asyncio.gather(in_batches(machine.engine, 10).replay(queue, None), work(), work(), produce())
    assert replayed.enqueued == 300
    assert await sources(pools, queue) == first
    assert len(worked) == len(set(worked)) == 400
    assert await counted(pools, queue) == 0


async def test_after_a_crash_the_same_call_goes_on_where_it_stopped(start: Start, queue: Policy, pools: Pools) -> None:
    machine = start()
    first = await complete(machine, queue, 100)
    batches = 0

    async def crash() -> None:
        nonlocal batches
        batches += 1
        if batches == 3:  # committed, and nobody hears of it
            raise asyncpg.ConnectionDoesNotExistError

    machine.log.after["replay"] = crash
    with pytest.raises(asyncpg.ConnectionDoesNotExistError):
        await in_batches(machine.engine, 15).replay(queue, None)
    assert len(await sources(pools, queue)) == 45
    other = start()
    done = await in_batches(other.engine, 15).replay(queue, None)
    assert (done.enqueued, done.joined) == (100, True)
    assert await sources(pools, queue) == first
    assert await counted(pools, queue) == 0


async def test_a_batch_that_was_rolled_back_is_not_left_out(machine: Machine, queue: Policy, pools: Pools) -> None:
    first = await complete(machine, queue, 50)
    rolled = 0

    async def deadlock() -> None:
        nonlocal rolled
        rolled += 1
        if rolled == 2:
            raise asyncpg.DeadlockDetectedError

    machine.log.before["replay"] = deadlock
    assert (await in_batches(machine.engine, 20).replay(queue, None)).enqueued == 50
    assert await sources(pools, queue) == first


async def test_callers_of_the_same_replay_share_it(start: Start, queue: Policy, pools: Pools) -> None:
    first = await complete(start(), queue, 400)
    machines = [start() for _ in range(4)]
    begun = asyncio.Barrier(4)

    async def all_begun() -> None:
        await begun.wait()

    for machine in machines:
        machine.log.after["begin_replay"] = all_begun
    done = await asyncio.gather(*(in_batches(machine.engine, 20).replay(queue, None) for machine in machines))
    assert await sources(pools, queue) == first
    assert [run.enqueued for run in done] == [400] * 4
    assert sum(run.joined for run in done) == 3
    assert await counted(pools, queue) == 0


async def test_two_replays_from_different_times_are_two(machine: Machine, queue: Policy, pools: Pools) -> None:
    early = await complete(machine, queue, 10)
    late = await complete(machine, queue, 5)
    newest = (await archived(pools, queue))[0].finished_at
    assert (await machine.engine.core(Replays).replay(queue, newest)).enqueued == 5
    assert await sources(pools, queue) == late
    assert (await machine.engine.core(Replays).replay(queue, None)).enqueued == 15
    assert await sources(pools, queue) == late + early + late


async def test_one_that_was_left_long_ago_is_not_joined(
    machine: Machine, queue: Policy, pools: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    await complete(machine, queue, 5)
    left = await replays.begin(pools.rest, queue.topic, None, 0)
    assert left is not None
    await complete(machine, queue, 5)
    monkeypatch.setattr(replays, "JOIN_MS", 0)
    done = await machine.engine.core(Replays).replay(queue, None)
    assert (done.enqueued, done.joined) == (10, False)
    # Who was at the old one finds that it is over.
    assert await replays.look(pools.rest, queue.topic, left) is None
    assert await replays.replay(pools.rest, queue.topic, left, BatchLimits(), 0) is None


async def test_the_window_bounds_what_is_replayed(machine: Machine, queue: Policy, make_queue: Make) -> None:
    await complete(machine, queue, 3)
    day = await make_queue(queue.topic.name, replayable=True, replay_window_ms=86_400_000)
    now = datetime.now(UTC)
    for bad in (now - timedelta(days=2), now + timedelta(days=1)):
        with pytest.raises(OutsideWindow):
            await machine.engine.core(Replays).replay(day, bad)
    done = await machine.engine.core(Replays).replay(day, now - timedelta(hours=23))
    assert done.enqueued == 3
    instant = await make_queue(queue.topic.name, replayable=True, replay_window_ms=1)
    over = await replays.begin(machine.pools.rest, instant.topic, None, 1)
    assert over is not None
    assert over.until_time - over.from_time == timedelta(milliseconds=1)


async def test_a_window_of_zero_has_no_end(machine: Machine, queue: Policy, make_queue: Make) -> None:
    await complete(machine, queue, 3)
    for_ever = await make_queue(queue.topic.name, replayable=True, replay_window_ms=0)
    since = datetime(2001, 2, 3, tzinfo=UTC)
    done = await machine.engine.core(Replays).replay(for_ever, since)
    assert (done.enqueued, done.from_time) == (3, since)
    assert (await machine.engine.core(Replays).replay(for_ever, None)).from_time == datetime(1970, 1, 1, tzinfo=UTC)
    with pytest.raises(OutsideWindow):
        await machine.engine.core(Replays).replay(for_ever, datetime.now(UTC) + timedelta(days=1))


async def test_large_payloads_make_small_batches(machine: Machine, queue: Policy, pools: Pools) -> None:
    await machine.enqueue(queue, Batch(payloads=[b"x" * 50_000] * 7))
    first = await drain(machine, queue)
    done = await in_batches(machine.engine, 1_000, 100_000).replay(queue, None)
    assert done.enqueued == 7
    assert machine.log.count("replay") == 5  # two, two, two, one, and the look that finds no more
    assert (await in_batches(machine.engine, 1_000, 1).replay(queue, None)).enqueued == 7
    assert await sources(pools, queue) == first * 2


async def test_it_wakes_who_waits(start: Start, queue: Policy) -> None:
    machine = start()
    await complete(machine, queue, 1)
    waiting = asyncio.create_task(machine.claim(queue, 1, wait=20))
    await parked(machine, queue, 1)
    await machine.engine.core(Replays).replay(queue, None)
    assert len(await waiting) == 1
    assert machine.log.count("probe") <= 1, "found by polling"


async def test_a_service_that_stops_leaves_it_at_a_batch(start: Start, queue: Policy, pools: Pools) -> None:
    machine = start()
    first = await complete(machine, queue, 30)
    replays = in_batches(machine.engine, 10)

    async def stop() -> None:
        replays.stop()

    machine.log.after["replay"] = stop
    with pytest.raises(ShuttingDown):
        await replays.replay(queue, None)
    assert await sources(pools, queue) == first[:10]
    assert (await start().engine.core(Replays).replay(queue, None)).enqueued == 30
    assert await sources(pools, queue) == first


async def test_a_topic_of_the_same_name_has_an_archive_of_its_own(
    machine: Machine, queue: Policy, make_queue: Make, pools: Pools
) -> None:
    await complete(machine, queue, 3)
    await store.delete(pools.rest, queue.topic.name, if_empty=False)
    anew = await make_queue(queue.topic.name, replayable=True)
    assert await archived(pools, anew) == []
    assert (await machine.engine.core(Replays).replay(anew, None)).enqueued == 0
    with pytest.raises(TopicNotFound):  # a process that has not heard of the deletion
        await machine.engine.core(Replays).replay(queue, None)
    assert await sources(pools, queue) == []
