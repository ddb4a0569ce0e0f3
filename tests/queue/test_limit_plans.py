"""What limits cost: a bucket is one row, and what a queue holds is a sum of few, however many others there are."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import asyncpg
import pytest

from app.base.db.pool import PLANNER
from app.kernel.claim import limits
from app.kernel.model import Topic
from tests.queue import plans, statements
from tests.queue.calls import Session
from tests.queue.test_plans import held_snapshot

NewDatabase = Callable[[], Awaitable[str]]
# Pages that a statement may look at: about three times what was measured on 18.
BOUNDS = {"peek_tokens": 10, "take_tokens": 15, "return_tokens": 15, "depth": 15, "lock_depth": 3, "fold": 60}
TOPIC = Topic("busy", 77, 0)


class World:
    def __init__(self, db: Session, url: str) -> None:
        self.db = db
        self.url = url

    async def broken(self, *, above: int = 0) -> dict[str, str]:
        """Each statement that walks what it should not, and how."""
        arguments: dict[str, tuple[object, ...]] = {
            "take_tokens": (TOPIC.id, 5, 1000),
            "peek_tokens": (TOPIC.id, 1000),
            "return_tokens": (TOPIC.id, 5, 1000),
            "depth": (TOPIC.id, above),
            "lock_depth": (TOPIC.id,),
            "fold": ([TOPIC.id], [above], 2**62),
        }
        found = {}
        for name, given in arguments.items():
            for _ in range(2):  # the first reads pages in, and sets hint bits
                plan = await plans.explain(self.db, statements.named(name), *given)
            if plan.kinds() & {"Seq Scan", "Bitmap Heap Scan"}:
                found[name] = str(plan.kinds())
            elif plan.pages() > BOUNDS[name]:
                found[name] = f"{plan.pages()} pages"
        return found


@pytest.fixture
async def world(new_database: NewDatabase) -> AsyncIterator[World]:
    """Three thousand topics with a bucket and ten tallies each; every statement was prepared before there was one."""
    url = await new_database()
    db = await asyncpg.connect(url, server_settings={"timezone": "UTC", **PLANNER})
    try:
        for name in BOUNDS:
            await plans.prepare(db, statements.named(name))
        await db.execute("INSERT INTO holdfast.buckets SELECT now(), 5, n, 0 FROM generate_series(1, 3000) n")
        await db.execute(
            "INSERT INTO holdfast.tallies (topic_id, ready) SELECT n % 3000, 1 FROM generate_series(1, 30000) n"
        )
        yield World(db, url)
    finally:
        await db.close()


async def test_with_many_topics(world: World) -> None:
    assert await world.broken() == {}
    await world.db.execute("ANALYZE holdfast.buckets, holdfast.tallies")
    assert await world.broken() == {}


async def test_while_a_snapshot_is_held(world: World) -> None:
    """What was folded away lies below the mark."""
    async with held_snapshot(world.url):
        await world.db.execute(
            "INSERT INTO holdfast.tallies (topic_id, ready) SELECT $1, 1 FROM generate_series(1, 5000)", TOPIC.id
        )
        await world.db.execute("DELETE FROM holdfast.tallies WHERE topic_id = $1", TOPIC.id)
        above = await world.db.fetchval("SELECT max(id) FROM holdfast.tallies") + 5_000
        assert await world.broken(above=above) == {}
        for _ in range(500):  # takes, too, leave versions behind; they are some ten a second
            await limits.take_tokens(world.db, TOPIC, 1, 1000)
        plan = await plans.explain(world.db, statements.named("take_tokens"), TOPIC.id, 5, 1000)
        assert plan.pages() < 100
