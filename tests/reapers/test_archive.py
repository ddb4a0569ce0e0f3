"""The archive's sweep: rows past their window, days past every window, and what deleted topics have left."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import timedelta

import pytest

from app.base.db.pool import Pools
from app.features.archive import archive, replays
from app.features.archive.archive import ArchivePart
from app.features.archive.replays import BatchLimits
from app.kernel.model import Connection
from app.kernel.topics import store
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine
from tests.queue.calls import held, until
from tests.reapers.test_partitions import days
from tests.reapers.test_sweeps import at_once

Make = Callable[..., Awaitable[Policy]]
HOUR = 3_600_000
DAY = 24 * HOUR


@pytest.fixture(autouse=True)
async def empty(own: Pools) -> None:
    """What other tests' topics have left is gone."""
    await own.rest.execute("DELETE FROM holdfast.archive")


async def complete(machine: Machine, policy: Policy, count: int) -> None:
    await machine.enqueue(policy, count)
    jobs = await machine.claim(policy, count)
    assert len(await machine.engine.settlements.ack(policy, [held(job) for job in jobs])) == count


async def age(own: Pools, policy: Policy, days_ago: int, count: int) -> None:
    """Rows as they would lie there after some days: time can't be waited for here, so they are put into their day."""
    await own.rest.execute(
        """
        INSERT INTO holdfast.archive (finished_at, topic, topic_id, seq, outcome, created_at, deliveries, priority,
                                      tenant, payload)
        SELECT date_trunc('day', now()) - $3 * interval '1 day' + interval '12 hours', $1, $2, 1000000 + n, 'completed',
               now(), 1, 0, '', '' FROM generate_series(1, $4::integer) n
        """,
        policy.topic.name,
        policy.topic.id,
        days_ago,
        count,
    )


async def past_days(db: Connection, count: int) -> None:
    """Partitions for so many days past, which the service would have made when those were ahead."""
    today = await db.fetchval("SELECT (clock_timestamp() AT TIME ZONE 'UTC')::date")
    for ago in range(1, count + 1):
        day, end = today - timedelta(days=ago), today - timedelta(days=ago - 1)
        await db.execute(
            f"CREATE TABLE IF NOT EXISTS holdfast.archive_{day:%Y%m%d} PARTITION OF holdfast.archive"
            f" FOR VALUES FROM ('{day} 00:00:00+00') TO ('{end} 00:00:00+00')"
        )


async def left(own: Pools, policy: Policy) -> int:
    query = "SELECT count(*) FROM holdfast.archive WHERE topic_id = $1"
    count: int = await own.rest.fetchval(query, policy.topic.id)
    return count


async def too_old(own: Pools, policy: Policy) -> None:
    async def over() -> bool:
        return await archive.page(own.rest, policy.topic, ArchivePart(policy.config.replay_window_ms), 1) == []

    await until(over, "all is past the window")


async def test_what_is_past_its_topics_window_goes_once(machine: Machine, make: Make, own: Pools) -> None:
    short, long = await make("short", replayable=True, replay_window_ms=50), await make("long", replayable=True)
    for_ever = await make("ever", replayable=True, replay_window_ms=0)
    for policy, count in ((short, 2_500), (long, 3), (for_ever, 2)):
        await complete(machine, policy, count)
    await too_old(own, short)
    assert sum(await at_once(own, archive.sweep)) == 2_500
    assert [await left(own, policy) for policy in (short, long, for_ever)] == [0, 3, 2]
    assert await archive.sweep(machine.pools, machine.engine) == 0
    await make("long", replayable=False, replay_window_ms=1)
    machine.policies.forget("long")
    await too_old(own, await machine.policies.queue("long"))
    assert await archive.sweep(machine.pools, machine.engine) == 3, "a window that is made shorter takes effect"


async def test_what_deleted_topics_have_left_goes(machine: Machine, make: Make, own: Pools) -> None:
    gone, stays = await make("gone", replayable=True, replay_window_ms=0), await make("stays", replayable=True)
    await complete(machine, gone, 1_200)
    await complete(machine, stays, 4)
    await store.delete(own.rest, "gone", if_empty=False)
    machine.policies.forget("gone")
    anew = await make("gone", replayable=True)
    await complete(machine, anew, 2)
    assert await archive.sweep(machine.pools, machine.engine) == 1_200
    assert [await left(own, policy) for policy in (gone, anew, stays)] == [0, 2, 4]


async def test_a_day_goes_when_no_window_reaches_into_it(machine: Machine, make: Make, own: Pools) -> None:
    await past_days(own.rest, 6)
    week = await make("a", replayable=True, replay_window_ms=3 * DAY)
    brief = await make("b", replayable=True, replay_window_ms=HOUR)
    for ago in (6, 5, 4, 3, 2):
        await age(own, week, ago, 10 + ago)
        await age(own, brief, ago, 1)
    # Days 6, 5 and 4 go as a whole. Of day 3, what is past its window goes with it tomorrow; of day 2, now.
    assert await archive.sweep(machine.pools, machine.engine) == 16 + 15 + 14 + 3 + 1
    assert await left(own, week) == 13 + 12
    assert await left(own, brief) == 1
    assert [day for day in await days(own, "archive") if day < 0] == [-3, -2, -1]
    assert await archive.sweep(machine.pools, machine.engine) == 0
    await make("c", replay_window_ms=0)
    await make("a", replayable=True, replay_window_ms=HOUR)
    assert await archive.sweep(machine.pools, machine.engine) == 13 + 12 + 1
    assert [day for day in await days(own, "archive") if day < 0] == [-3, -2, -1], "a window without end keeps days"


async def test_a_day_that_is_being_read_goes_another_time(machine: Machine, make: Make, own: Pools) -> None:
    await past_days(own.rest, 4)
    policy = await make("a", replayable=True, replay_window_ms=2 * DAY)
    await age(own, policy, 4, 7)
    short = await make("b", replayable=True, replay_window_ms=1)
    await complete(machine, short, 3)
    await too_old(own, short)
    async with own.rest.acquire() as reader, reader.transaction():
        await reader.fetchval("SELECT count(*) FROM holdfast.archive")
        assert await asyncio.wait_for(archive.sweep(machine.pools, machine.engine), 20) == 3
    assert await archive.sweep(machine.pools, machine.engine) == 7


async def test_replays_that_nobody_can_join_are_forgotten(
    machine: Machine, make: Make, own: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    policy = await make("q", replayable=True)
    begun = await replays.begin(own.rest, policy.topic, None, 0)
    assert begun is not None
    await archive.sweep(machine.pools, machine.engine)
    assert await replays.look(own.rest, policy.topic, begun) is not None
    monkeypatch.setattr(archive, "JOIN_MS", 0)
    await archive.sweep(machine.pools, machine.engine)
    assert await replays.look(own.rest, policy.topic, begun) is None
    assert await replays.replay(own.rest, policy.topic, begun, BatchLimits(), 0) is None


async def test_topics_are_found_a_page_at_a_time(
    machine: Machine, make: Make, own: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(archive, "TOPICS", 2)
    policies = [await make(name, replayable=True, replay_window_ms=1) for name in "abcde"]
    for policy in policies:
        await complete(machine, policy, 2)
    for policy in policies:
        await too_old(own, policy)
    assert await archive.sweep(machine.pools, machine.engine) == 10
