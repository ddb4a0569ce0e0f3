"""Who holds jobs, and which groups wait."""

from __future__ import annotations

import time
from datetime import UTC, datetime, timedelta
from uuid import UUID

from app.http.bounds import DAY_MS
from app.kernel.claim import consumer, ordering
from app.kernel.claim.consumer import Return
from app.kernel.counts import holders
from app.kernel.counts.holders import StuckGroups
from app.kernel.model import Job
from app.kernel.topics.policy import Policy
from tests.queue.calls import Session, batch, held, place, put, take, until


async def give_back(db: Session, queue: Policy, *jobs: Job, back: Return | None = None) -> None:
    """Nack these jobs alike."""
    await consumer.nack(db, queue.topic, queue.budget, [held(job) for job in jobs], [back or Return()] * len(jobs))


async def stuck(db: Session, queue: Policy, goal_ms: int) -> StuckGroups:
    return (await holders.stuck_groups(db, [(queue.topic, goal_ms)], {}))[queue.topic.name]


async def waiting(db: Session, queue: Policy, goal_ms: int) -> list[str]:
    """The groups that wait, those first whose head holds them up for so long."""
    return [group.grp for group in await holders.waiting_groups(db, queue.topic, 9, goal_ms)]


async def an_hour_passes(db: Session, queue: Policy) -> None:
    """For jobs that are blocked."""
    query = "UPDATE holdfast.jobs SET visible_at = visible_at - interval '1 h' WHERE state = 'blocked' AND topic = $1"
    await db.execute(query, queue.topic.name)


async def test_they_say_who_and_what_for(db: Session, queue: Policy) -> None:
    await place(db, queue, batch(7, groups=list("aabbbbc"), tenants=["t"] * 7))
    [first] = await take(db, queue, 1, node="w1")
    await take(db, queue, 1, node="w2")
    found = {one.grp: one for one in await holders.waiting_groups(db, queue.topic, 9)}
    assert list(found) == ["b", "a"], "nothing waits in c"
    assert (found["b"].behind, found["a"].behind, found["a"].tenant) == (3, 1, "t")
    assert (found["a"].seq, found["a"].state, found["a"].node) == (first.seq, "leased", "w1")
    assert [(one.node, one.held) for one in await holders.holders(db, queue.topic, 9)] == [("w1", 1), ("w2", 1)]
    assert [one.node for one in await holders.holders(db, queue.topic, 1)] == ["w1"]


async def test_a_workers_leases_are_found_look_by_look(db: Session, queue: Policy) -> None:
    """Beside delays that end at one time, beyond what a look is at, and without those that it took meanwhile."""
    soon = datetime.now(UTC) + timedelta(minutes=1)
    await put(db, queue, batch(20, run_ats=[soon] * 20))
    await put(db, queue, batch(30, priorities=[n % 3 for n in range(30)], tenants=["t"] * 30))
    theirs = await take(db, queue, 9, node="hung")
    await take(db, queue, 9, node="well")
    theirs += await take(db, queue, 2, node="hung", lease_ms=DAY_MS)
    lanes, found = await ordering.read_lanes(db, queue.topic), []
    async for some in holders.leases_of_node(db, queue.topic, lanes, "hung", most=2):
        found += some
        await take(db, queue, 1, node="hung")
    assert sorted((one.seq, str(one.lease)) for one in found) == sorted((j.seq, str(UUID(j.lease))) for j in theirs)
    assert {one.node for one in found} == {"hung"}


async def test_groups_that_dont_move(db: Session, queue: Policy) -> None:
    """Leased for longer than the goal, or returned with a delay; not one that waits to be claimed, is delayed as it was
    asked, or has failed again and again for less."""
    names = [name for name in "abcdef" for _ in range(3)]
    await place(db, queue, batch(18, groups=names, delays_ms=[60_000 if name == "e" else None for name in names]))
    none = await stuck(db, queue, 1)
    assert (none.groups, none.behind, none.oldest_ms is not None) == (0, 0, True)
    _, b, c, d = await take(db, queue, 4, node="w")
    for _ in range(2):
        await give_back(db, queue, b, c)
        b, c = await take(db, queue, 2, node="w")
    await give_back(db, queue, b, d)
    await give_back(db, queue, c, back=Return(delay_ms=60_000))

    async def waited() -> bool:
        return await waiting(db, queue, 200) == list("acbdef")

    await until(waited, "a is leased for so long, and c is delayed: they come first")
    one = await stuck(db, queue, 200)
    assert (one.groups, one.behind, one.ms >= 200, (one.oldest_ms or 0) >= 200) == (2, 4, True, True)
    assert [(await stuck(db, queue, goal)).groups for goal in (3_600_000, 0)] == [0, 0]
    parts: list[StuckGroups] = []
    behind: dict[str, tuple[str, str]] = {}
    while not parts or parts[-1].last is not None:
        parts.append((await holders.stuck_groups(db, [(queue.topic, 200)], behind, 2))[queue.topic.name])
        if parts[-1].last is not None:
            behind[queue.topic.name] = parts[-1].last
    assert [part.groups for part in parts] == [1, 1, 0, 0][: len(parts)]
    assert parts[0].plus(parts[1]).behind == 4
    assert await holders.long_leases(db, [(queue.topic, 120_000)]) == {}
    assert (await holders.long_leases(db, [(queue.topic, 30_000)]))[queue.topic.name].leases == 1


async def test_a_busy_head_has_not_waited_for_as_long_as_the_jobs_behind_it(db: Session, queue: Policy) -> None:
    """One that fails twice at once after an hour in which nobody claimed; and one that is delayed as it was asked."""
    await place(db, queue, batch(2, groups=["later"] * 2, delays_ms=[DAY_MS, None]))
    await an_hour_passes(db, queue)
    assert await stuck(db, queue, 60_000) == holders.NOT_STUCK, "a delay that was asked for is no wait"
    await place(db, queue, batch(5, groups=["g"] * 5))
    await an_hour_passes(db, queue)
    for _ in range(2):
        await give_back(db, queue, *await take(db, queue))
    await take(db, queue)
    seen = await stuck(db, queue, 60_000)
    assert (seen.groups, seen.ms, (seen.oldest_ms or 0) >= 3_600_000) == (0, 0, True)


async def test_a_head_that_fails_for_longer_than_the_goal_holds_up_its_group(db: Session, queue: Policy) -> None:
    """However short its leases and its delays are. A delivery that was given back unused is none of its tries."""
    await place(db, queue, batch(7, groups=[*"ggg", *["later"] * 4]))
    assert await waiting(db, queue, 500) == ["later", "g"], "that in which most jobs wait comes first"

    async def tried(goal_ms: int, refunds: int | None = 0) -> StuckGroups:
        await give_back(db, queue, *await take(db, queue), back=Return(refunds=refunds))
        return await stuck(db, queue, goal_ms)

    async def waited() -> bool:
        return ((await tried(500, refunds=None)).oldest_ms or 0) >= 500

    async def held_up() -> bool:
        seen = await tried(500)
        assert not seen.groups or time.monotonic() - failing >= 0.5
        return seen.groups == 1

    await until(waited, "the jobs behind it have waited for so long")
    failing = time.monotonic()
    await until(held_up, "it has failed for so long")
    seen = await tried(500)
    assert (seen.groups, seen.behind, seen.ms >= 500, seen.last) == (1, 2, True, None)
    assert (await tried(60_000)).groups == 0
    assert await waiting(db, queue, 500) == ["g", "later"], "that whose first job fails comes first"
