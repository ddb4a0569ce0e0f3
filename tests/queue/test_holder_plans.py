"""Who holds jobs and which groups wait: read at a cost that does not grow with the queue."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from uuid import UUID

import asyncpg

from app.base.db.pool import PLANNER
from app.http.bounds import DAY_MS
from app.kernel.claim import consumer, ordering
from app.kernel.claim.consumer import Return
from app.kernel.counts import holders
from app.kernel.enqueue import producer
from app.kernel.model import Batch
from app.kernel.topics import store
from app.kernel.topics.policy import DEFAULTS, AskedSettings, Policy, resolve
from tests.queue import plans, statements
from tests.queue.calls import Session, batch, held, put, take, until

HELD, LOOKED_AT, GROUPS = 100, 50, 40
# Pages that a look may take: about twice what was measured on 18.
BOUNDS = {
    "holders": 800,
    "waiting_groups": 1_600,
    "lease_of_group": 20,
    "stuck_groups": 1_600,
    "failing_heads": 40,
    "long_leases": 800,
    "leases_of_node": 400,
}


async def test_plans_made_for_an_empty_table_stay_good(new_database: Callable[[], Awaitable[str]]) -> None:
    url = await new_database()
    db: Session = await asyncpg.connect(url, server_settings=PLANNER)
    try:
        policy = await _queue(url)
        head = (
            policy.topic.name,
            policy.topic.id,
            1,
            "",
            "g0000",
            1,
            holders.NEVER,
            datetime.now(UTC) + timedelta(hours=1),
        )
        given: dict[str, tuple[object, ...]] = {
            "holders": (policy.topic.name, 1_000, 1_000, 10),
            "waiting_groups": (policy.topic.name, GROUPS, 5, LOOKED_AT, 1),
            "stuck_groups": ([policy.topic.name], [1], [""], [""], GROUPS, LOOKED_AT, 5),
            "failing_heads": (*([one] for one in head), 10_000, LOOKED_AT),
            "long_leases": ([policy.topic.name], [1], 1_000, 1_000),
            "lease_of_group": (policy.topic.name, "", "g0001"),
            "leases_of_node": (policy.topic.name, [""], [0], [holders.NEVER], "worker", None, 50),
        }
        for name, arguments in given.items():
            await plans.prepare(db, statements.named(name))
            for _ in range(7):
                await plans.run(db, statements.named(name), *arguments)
        names: list[str | None] = [f"g{n:04}" for n in range(1_000)]
        for _ in range(4):
            await producer.upsert(
                db, policy.topic, policy.budget, Batch(payloads=[b"x"] * 1_000, groups=names), ttl_ms=0
            )
        for _ in range(10):
            await put(db, policy, batch(1_000))
        await take(db, policy, HELD)
        for name, arguments in given.items():
            await plans.explain(db, statements.named(name), *arguments)
            plan = await plans.explain(db, statements.named(name), *arguments)
            assert not plan.kinds() & {"Seq Scan", "Hash Join", "Merge Join", "Bitmap Heap Scan"}, name
            assert plan.pages() < BOUNDS[name], (name, plan.pages())
    finally:
        await db.close()


async def test_they_say_who_and_what_for(new_database: Callable[[], Awaitable[str]]) -> None:
    url = await new_database()
    db: Session = await asyncpg.connect(url, server_settings=PLANNER)
    try:
        policy = await _queue(url)
        groups: list[str | None] = ["a", "a", "b", "b", "b", "b", "c"]
        made = Batch(payloads=[b"x"] * 7, groups=groups, tenants=["t"] * 7)
        lanes = sorted(made.lanes(), key=lambda lane: lane.priority)
        await producer.add_lanes(db, policy.topic, lanes)
        await producer.upsert(db, policy.topic, policy.budget, made, ttl_ms=0)
        [first] = await take(db, policy, 1, node="w1")
        await take(db, policy, 1, node="w2")
        found = {one.grp: one for one in await holders.waiting_groups(db, policy.topic, 9)}
        assert list(found) == ["b", "a"]  # nothing waits in c
        assert (found["b"].behind, found["a"].behind, found["a"].tenant) == (3, 1, "t")
        assert (found["a"].seq, found["a"].state, found["a"].node) == (first.seq, "leased", "w1")
        assert [(one.node, one.held) for one in await holders.holders(db, policy.topic, 9)] == [("w1", 1), ("w2", 1)]
        assert [one.node for one in await holders.holders(db, policy.topic, 1)] == ["w1"]
    finally:
        await db.close()


async def test_a_workers_leases_are_found_look_by_look(new_database: Callable[[], Awaitable[str]]) -> None:
    """Beside delays that end at one time, beyond what a look is at, and without those that it took meanwhile."""
    url = await new_database()
    db: Session = await asyncpg.connect(url, server_settings=PLANNER)
    try:
        policy = await _queue(url)
        soon = datetime.now(UTC) + timedelta(minutes=1)
        await put(db, policy, batch(20, run_ats=[soon] * 20))
        await put(db, policy, batch(30, priorities=[n % 3 for n in range(30)], tenants=["t"] * 30))
        theirs = await take(db, policy, 9, node="hung")
        await take(db, policy, 9, node="well")
        theirs += await take(db, policy, 2, node="hung", lease_ms=DAY_MS)
        lanes, found = await ordering.read_lanes(db, policy.topic), []
        async for some in holders.leases_of_node(db, policy.topic, lanes, "hung", most=2):
            found += some
            await take(db, policy, 1, node="hung")
        assert sorted((one.seq, str(one.lease)) for one in found) == sorted((j.seq, str(UUID(j.lease))) for j in theirs)
        assert {one.node for one in found} == {"hung"}
    finally:
        await db.close()


async def test_groups_that_dont_move(new_database: Callable[[], Awaitable[str]]) -> None:
    """Leased for longer than the goal, or returned with a delay; not one that waits to be claimed, is delayed as it was
    asked, or has failed again and again for less."""
    url = await new_database()
    db: Session = await asyncpg.connect(url, server_settings=PLANNER)
    try:
        policy = await _queue(url)
        names: list[str | None] = [name for name in "abcdef" for _ in range(3)]
        delays: list[int | None] = [60_000 if name == "e" else None for name in names]
        made = Batch(payloads=[b"x"] * len(names), groups=names, delays_ms=delays)
        await producer.add_lanes(db, policy.topic, list(made.lanes()))
        await producer.upsert(db, policy.topic, policy.budget, made, ttl_ms=0)

        async def stuck(goal_ms: int, most: int = 100) -> list[holders.StuckGroups]:
            found, behind = [], dict[str, tuple[str, str]]()
            while True:
                one = (await holders.stuck_groups(db, [(policy.topic, goal_ms)], behind, most))[policy.topic.name]
                found.append(one)
                if one.last is None:
                    return found
                behind[policy.topic.name] = one.last

        [none] = await stuck(1)
        assert (none.groups, none.behind, none.oldest_ms is not None) == (0, 0, True)
        _, b, c, d = await take(db, policy, 4, node="w")
        for _ in range(2):
            await consumer.nack(db, policy.topic, policy.budget, [held(b), held(c)], [Return(), Return()])
            b, c = await take(db, policy, 2, node="w")
        returns = [Return(), Return(delay_ms=60_000), Return()]
        await consumer.nack(db, policy.topic, policy.budget, [held(b), held(c), held(d)], returns)

        async def waited() -> bool:
            groups = await holders.waiting_groups(db, policy.topic, 9, 200)
            return [group.grp for group in groups] == list("acbdef")

        await until(waited, "a is leased for so long, and c is delayed: they come first")
        [one] = await stuck(200)
        assert (one.groups, one.behind, one.ms >= 200, (one.oldest_ms or 0) >= 200) == (2, 4, True, True)
        [hour], [none] = await stuck(3_600_000), await stuck(0)
        assert (hour.groups, none.groups) == (0, 0)
        parts = await stuck(200, most=2)
        assert [part.groups for part in parts] == [1, 1, 0, 0][: len(parts)]
        assert parts[0].plus(parts[1]).behind == 4
        assert await holders.long_leases(db, [(policy.topic, 120_000)]) == {}
        assert (await holders.long_leases(db, [(policy.topic, 30_000)]))[policy.topic.name].leases == 1
    finally:
        await db.close()


async def test_a_busy_head_has_not_waited_for_as_long_as_the_jobs_behind_it(
    new_database: Callable[[], Awaitable[str]],
) -> None:
    """One that fails twice at once after an hour in which nobody claimed; and one that is delayed as it was asked."""
    url = await new_database()
    db: Session = await asyncpg.connect(url, server_settings=PLANNER)
    try:
        policy = await _queue(url)
        later = Batch(payloads=[b"x"] * 2, groups=["later"] * 2, delays_ms=[DAY_MS, None])
        await producer.add_lanes(db, policy.topic, list(later.lanes()))
        await producer.upsert(db, policy.topic, policy.budget, later, ttl_ms=0)
        await _an_hour_passes(db)
        seen = (await holders.stuck_groups(db, [(policy.topic, 60_000)], {}))[policy.topic.name]
        assert seen == holders.NOT_STUCK, "a delay that was asked for is no wait"
        await producer.upsert(db, policy.topic, policy.budget, Batch(payloads=[b"x"] * 5, groups=["g"] * 5), ttl_ms=0)
        await _an_hour_passes(db)
        for _ in range(2):
            [job] = await take(db, policy)
            await consumer.nack(db, policy.topic, policy.budget, [held(job)], [Return()])
        await take(db, policy)
        seen = (await holders.stuck_groups(db, [(policy.topic, 60_000)], {}))[policy.topic.name]
        assert (seen.groups, seen.ms, (seen.oldest_ms or 0) >= 3_600_000) == (0, 0, True)
    finally:
        await db.close()


async def test_a_head_that_fails_for_longer_than_the_goal_holds_up_its_group(
    new_database: Callable[[], Awaitable[str]],
) -> None:
    """However short its leases and its delays are. A delivery that was given back unused is none of its tries."""
    url = await new_database()
    db: Session = await asyncpg.connect(url, server_settings=PLANNER)
    try:
        policy = await _queue(url)
        made = Batch(payloads=[b"x"] * 7, groups=["g", "g", "g", "later", "later", "later", "later"])
        await producer.add_lanes(db, policy.topic, list(made.lanes()))
        await producer.upsert(db, policy.topic, policy.budget, made, ttl_ms=0)
        groups = await holders.waiting_groups(db, policy.topic, 9, 500)
        assert [group.grp for group in groups] == ["later", "g"], "that in which most jobs wait comes first"

        async def tried(goal_ms: int, refunds: int | None = 0) -> holders.StuckGroups:
            [job] = await take(db, policy)
            await consumer.nack(db, policy.topic, policy.budget, [held(job)], [Return(refunds=refunds)])
            return (await holders.stuck_groups(db, [(policy.topic, goal_ms)], {}))[policy.topic.name]

        async def waited() -> bool:
            return ((await tried(500, refunds=None)).oldest_ms or 0) >= 500

        async def stuck() -> bool:
            seen = await tried(500)
            assert not seen.groups or time.monotonic() - failing >= 0.5
            return seen.groups == 1

        await until(waited, "the jobs behind it have waited for so long")
        failing = time.monotonic()
        await until(stuck, "it has failed for so long")
        seen = await tried(500)
        assert (seen.groups, seen.behind, seen.ms >= 500, seen.last) == (1, 2, True, None)
        assert (await tried(60_000)).groups == 0
        groups = await holders.waiting_groups(db, policy.topic, 9, 500)
        assert [group.grp for group in groups] == ["g", "later"], "that whose first job fails comes first"
    finally:
        await db.close()


async def _an_hour_passes(db: Session) -> None:
    """For jobs that are blocked."""
    await db.execute("UPDATE holdfast.jobs SET visible_at = visible_at - interval '1 hour' WHERE state = 'blocked'")


async def _queue(url: str) -> Policy:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        await store.put(pool, "deep", resolve("deep", AskedSettings(type="queue")))
        policy = await store.get(pool, "deep", DEFAULTS)
    assert policy is not None
    return policy
