"""What users' events cost does not grow with the events that are kept, nor with the jobs that wait."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from app.base.db import schema
from app.base.db.pool import PLANNER
from app.kernel.topics import store
from app.kernel.topics.policy import DEFAULTS, AskedSettings, resolve
from tests.queue import plans, statements
from tests.queue.calls import Session, batch, put

N = 100
FILL = """
INSERT INTO holdfast.user_events (user_id, event, data)
SELECT 'u' || n % 1000, 'progress', repeat('x', 100) FROM generate_series(1, 100000) n
"""
USERS = [f"u{n}" for n in range(N)]
# Pages that a statement may look at: about twice what was measured on 18.
BOUNDS = {
    "read_user_events": 32,
    "user_events_from": 14,
    "user_events_after": 800,
    "send_user_events": 1_700,
    "sweep_user_events": 820,
    "users_of": 840,
}
GIVEN: dict[str, tuple[object, ...]] = {
    "read_user_events": ("u7", 0, 16),
    "user_events_from": ("u7", 50_007),
    "user_events_after": (USERS, [99_000] * N),
    "send_user_events": (USERS, ["e"] * N, ["7"] * N, 50),
    "sweep_user_events": ("5 minutes", 50_000, N),
    "users_of": ("busy", list(range(N))),
}


@pytest.mark.parametrize("analyzed", [False, True])
async def test_they_cost_the_same_among_many(analyzed: bool, new_database: Callable[[], Awaitable[str]]) -> None:
    """With generic plans that were made for an empty table."""
    url = await new_database()
    await schema.upgrade(url)
    db: Session = await asyncpg.connect(url, server_settings={"timezone": "UTC", **PLANNER})
    try:
        async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
            await store.put(pool, "busy", resolve("busy", AskedSettings(type="queue")))
            policy = await store.get(pool, "busy", DEFAULTS)
        assert policy is not None
        for name, arguments in GIVEN.items():
            await plans.prepare(db, statements.named(name))
            for _ in range(7):
                await plans.run(db, statements.named(name), *arguments)
        await db.execute(FILL)
        for _ in range(20):
            await put(db, policy, batch(1_000))
        if analyzed:
            await db.execute("ANALYZE")
        for name, arguments in GIVEN.items():
            for _ in range(2):  # the first reads pages in, and sets hint bits
                plan = await plans.explain(db, statements.named(name), *arguments)
            assert not plan.kinds() & {"Seq Scan", "Merge Join", "Bitmap Heap Scan"}, name
            looked_at = plan.root["Shared Hit Blocks"] + plan.root["Shared Read Blocks"]
            assert looked_at <= BOUNDS[name], (name, looked_at)
    finally:
        await db.close()
