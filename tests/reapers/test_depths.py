"""depths: what queues held, minute by minute, written down where it changes; unknown where nobody looked."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any, Final

import pytest

from app.base.db.pool import Pools
from app.features.stats.rows import DepthStep, read_depths
from app.features.stats.sweeps import KEPT, forget, write_depths
from app.kernel.counts.levels import Levels
from app.kernel.topics import store
from app.kernel.topics.policy import AskedSettings, Policy, resolve
from tests.api.minutes import HELD
from tests.api.minutes import looked_before as later
from tests.engine.machines import Machine, new_machine
from tests.queue.calls import batch, held

Make = Callable[..., Awaitable[Policy]]
MINUTE: Final = timedelta(minutes=1)


@pytest.fixture(autouse=True)
async def anew(own: Pools) -> None:
    """Nothing was looked at, in a minute that does not end before the test."""
    await own.rest.execute("SELECT pg_sleep(60.1 - s) FROM date_part('second', clock_timestamp()) s WHERE s > 54")
    for table in HELD:
        await own.rest.execute(f"DELETE FROM holdfast.{table}")


async def rows(own: Pools, policy: Policy) -> list[tuple[Any, ...]]:
    found = await own.rest.fetch(
        "SELECT ready, in_flight, scheduled, blocked FROM holdfast.depths WHERE topic_id = $1 ORDER BY minute",
        policy.topic.id,
    )
    return [tuple(row) for row in found]


async def told(own: Pools, policy: Policy, minutes: int, step: int = 1) -> list[int | None]:
    """How many jobs were ready at the end of each step of the last minutes, the one that runs included."""
    now: datetime = await own.rest.fetchval("SELECT now()")
    before = now.replace(second=0, microsecond=0) + MINUTE
    since = before - minutes * MINUTE
    async with own.rest.acquire() as db:
        found = {one.at: one.ready for one in await read_depths(db, policy.topic, (since, before), step * MINUTE)}
    return [found.get(int((since + n * MINUTE).timestamp()) * 1000) for n in range(0, minutes, step)]


async def test_what_a_queue_holds_is_written_where_it_changes(machine: Machine, make: Make, own: Pools) -> None:
    queue, idle = await make("q"), await make("idle")
    await store.put(own.rest, "log", resolve("log", AskedSettings(type="log")))
    await machine.enqueue(
        queue, batch(5, delays_ms=[None, None, None, None, 60_000], keys=["k", "k", None, None, None])
    )
    (job, *_) = await machine.claim(queue, 1)
    assert await write_depths(machine.pools, machine.engine) == 2
    found = await inspected(machine, queue)
    assert await rows(own, queue) == [found]
    assert found[1:3] == (1, 1)
    assert await rows(own, idle) == [(0, 0, 0, 0)], "once: from then on it is known"
    await later(own)
    assert await write_depths(machine.pools, machine.engine) == 0
    await machine.engine.settlements.ack(queue, [held(job)])
    assert await write_depths(machine.pools, machine.engine) == 1
    assert await rows(own, queue) == [found, await inspected(machine, queue)]


async def inspected(machine: Machine, queue: Policy) -> tuple[int, int, int, int]:
    depth = (await machine.engine.core(Levels).depths([queue]))[queue.topic.name]
    return depth.ready, depth.in_flight, depth.scheduled, depth.blocked


async def test_a_minutes_row_takes_the_last_look(machine: Machine, make: Make, own: Pools) -> None:
    queue = await make("q")
    for expected in (2, 3):
        await machine.enqueue(queue, expected)
        await write_depths(machine.pools, machine.engine)
    found = await rows(own, queue)
    assert found[-1][0] == 5
    assert len(found) == await own.rest.fetchval("SELECT count(DISTINCT minute) FROM holdfast.depths")


async def test_four_at_once_write_each_row_once(machine: Machine, make: Make, own: Pools) -> None:
    queues = [await make(f"q{n}") for n in range(40)]
    for queue in queues[::2]:
        await machine.enqueue(queue, 3)
    machines = [new_machine(own) for _ in range(4)]
    await asyncio.gather(*(write_depths(one.pools, one.engine) for one in machines))
    for n, queue in enumerate(queues):
        assert set(await rows(own, queue)) == {(0 if n % 2 else 3, 0, 0, 0)}
    before = await own.rest.fetchval("SELECT count(*) FROM holdfast.depths")
    await later(own)
    assert await asyncio.gather(*(write_depths(one.pools, one.engine) for one in machines)) == [0] * 4
    assert await own.rest.fetchval("SELECT count(*) FROM holdfast.depths") == before


async def test_of_a_topic_that_is_deleted_meanwhile_nothing_is_written(
    machine: Machine, make: Make, own: Pools, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, other = await make("q"), await make("other")
    looked = machine.engine.core(Levels).depths

    async def deleted_then(queues: list[Policy]) -> Any:
        found = await looked(queues)
        await store.delete(own.rest, "q", if_empty=False)
        return found

    monkeypatch.setattr(machine.engine.core(Levels), "depths", deleted_then)
    assert await write_depths(machine.pools, machine.engine) == 1
    assert (await rows(own, queue), len(await rows(own, other))) == ([], 1)


async def test_what_lies_between_two_rows_is_as_the_earlier_one_says(machine: Machine, make: Make, own: Pools) -> None:
    queue = await make("q")
    held_then = [2, 2, 5, 5, 5, 9]
    for n, expected in enumerate(held_then):
        count = expected - (held_then[n - 1] if n else 0)
        if count:
            await machine.enqueue(queue, count)
        await write_depths(machine.pools, machine.engine)
        await later(own)
    await write_depths(machine.pools, machine.engine)
    assert len(await rows(own, queue)) == 3
    # Before the first row it did not exist, or nobody had looked yet.
    assert (await told(own, queue, 9))[-9:-1] == [None, None, 2, 2, 5, 5, 5, 9]
    assert (await told(own, queue, 9, step=3))[1:] == [5, 9]


async def test_where_nobody_looked_nothing_is_known(machine: Machine, make: Make, own: Pools) -> None:
    """Zero too: that nothing was there is not known either."""
    full, empty = await make("full"), await make("empty")
    await machine.enqueue(full, 4)
    await write_depths(machine.pools, machine.engine)
    await later(own, 12)
    assert (await told(own, full, 13))[-1] is None
    await write_depths(machine.pools, machine.engine)
    for queue, ready in ((full, 4), (empty, 0)):
        # Five minutes are trusted, as looks may come late.
        assert (await told(own, queue, 12))[4:-1] == [None] * 7
        assert (await told(own, queue, 14))[1:4] == [ready] * 3
        assert (await told(own, queue, 12))[-1] == ready
        assert await rows(own, queue) == [(ready, 0, 0, 0)], "a gap takes no row"


async def test_what_is_yet_to_come_is_not_told(machine: Machine, make: Make, own: Pools) -> None:
    queue = await make("q")
    await write_depths(machine.pools, machine.engine)
    now: datetime = await own.rest.fetchval("SELECT now()")
    day = now.astimezone(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
    async with own.rest.acquire() as db:
        found = await read_depths(db, queue.topic, (day, day + timedelta(days=3)), timedelta(days=1))
    assert found == [DepthStep(int(day.timestamp()) * 1000, 0, 0, 0, 0)]


async def test_old_rows_go_and_the_last_from_before_stays(machine: Machine, make: Make, own: Pools) -> None:
    queue = await make("q")
    for _ in range(3):
        await machine.enqueue(queue, 1)
        await write_depths(machine.pools, machine.engine)
        await later(own, 2)
    await later(own, int(KEPT / MINUTE))
    machines = [new_machine(own) for _ in range(4)]
    assert sum(await asyncio.gather(*(forget(one.pools, one.engine) for one in machines))) == 2 + 3  # three looks
    assert await rows(own, queue) == [(3, 0, 0, 0)]
    assert await write_depths(machine.pools, machine.engine) == 0, "it is as it was"
    assert (await told(own, queue, 1)) == [3]
    await store.delete(own.rest, "q", if_empty=False)
    assert await forget(machine.pools, machine.engine) == 1
    assert await rows(own, queue) == []
