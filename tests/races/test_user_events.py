"""Events of one user under rivals: ids ascend in the order of commits, so that who reads on after an id misses none."""

from __future__ import annotations

import asyncio
from datetime import timedelta

from app.kernel import user_events as core
from app.kernel.user_events import NewUserEvent
from tests.queue.calls import Session
from tests.races.rivals import Rivals


def some(user: str, count: int) -> list[NewUserEvent]:
    return [NewUserEvent(user, "e", str(n)) for n in range(count)]


async def read(db: Session, user: str, after: int = 0) -> list[int]:
    return [event.id for event in await core.read_events(db, user, after, 10_000)]


async def test_the_second_draws_its_id_after_the_firsts_commit(rivals: Rivals, topic: str) -> None:
    """Else who read the second before the first was committed would go on behind it."""
    async with rivals.first():
        first = await core.keep_events(rivals.one, some(topic, 2), 10)
        late = await rivals.behind(core.keep_events(rivals.other, [*some(f"{topic}.b", 1), *some(topic, 1)], 10))
        free = await core.keep_events(rivals.observer, some(f"{topic}.c", 1), 10)  # nobody else waits
        assert await read(rivals.observer, topic) == []
    second = await late
    assert first[0] < first[1] < free[0] < second[0] < second[1]
    assert await read(rivals.observer, topic, first[0]) == [first[1], second[1]]
    assert await read(rivals.observer, f"{topic}.b") == [second[0]]


async def test_users_in_any_order_meet_without_a_deadlock(rivals: Rivals, topic: str) -> None:
    """And while their oldest are forgotten by the same statements, and by the sweep."""
    users = [f"{topic}.{n}" for n in range(8)]

    async def storm(db: Session, order: list[str]) -> None:
        for _ in range(60):
            await core.keep_events(db, [NewUserEvent(user, "e", "1") for user in order], 5)

    async def sweep() -> None:
        for _ in range(60):
            await core.sweep_events(rivals.observer, timedelta(0), 10**9, 50)

    await asyncio.gather(storm(rivals.one, users), storm(rivals.other, users[::-1]), sweep())
    for user in users:
        ids = await read(rivals.one, user)
        assert ids == sorted(ids)
        assert len(ids) <= 5 + 2  # this one's, and one that a rival put beside it


async def test_a_user_keeps_the_newest(rivals: Rivals, topic: str) -> None:
    db = rivals.one
    first = await core.keep_events(db, some(topic, 30), 20)
    assert await read(db, topic) == first, "those of the call itself stay"
    second = await core.keep_events(db, some(topic, 5), 20)
    assert await read(db, topic) == [*first[-20:], *second]
    assert await core.newest_event(db, topic, first[-1]) == (second[-1], True)
    assert await core.newest_event(db, topic, first[0]) == (second[-1], False)
    assert await core.newest_event(db, topic, 0) == (second[-1], True)


async def test_the_sweep_forgets_what_is_old_and_what_is_too_much(rivals: Rivals, topic: str) -> None:
    db = rivals.one
    while await core.sweep_events(db, timedelta(0), 10**9, 1_000):
        pass
    ids = await core.keep_events(db, some(topic, 30), 100)
    assert await core.sweep_events(db, timedelta(minutes=5), 10**9, 1_000) == 0
    assert await core.sweep_events(db, timedelta(minutes=5), 10, 1_000) == 20
    assert await read(db, topic) == ids[-10:]
    assert await core.sweep_events(db, timedelta(0), 10**9, 4) == 4
    assert await read(db, topic) == ids[-6:]
    assert await core.users_with_more(db, [(topic, ids[-2]), (topic, ids[-1]), (f"{topic}.none", 0)]) == [topic]
