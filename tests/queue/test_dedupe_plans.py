"""What dedupe costs: the same with a million ids as with none, by generic plans that were made for empty tables, while
an old snapshot keeps all that was changed from being cleaned up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import asyncpg

from app.base.db.pool import PLANNER
from app.kernel.enqueue import producer
from app.kernel.model import Lane
from app.kernel.topics import store
from app.kernel.topics.policy import DEFAULTS, AskedSettings, Policy, resolve
from tests.queue import plans, statements
from tests.queue.calls import Session
from tests.queue.test_plans import held_snapshot

N = 100
# Pages that a call for N records, or N ids, may look at: about twice what was measured on 18.
BOUNDS = {"enqueue_deduped": 5_000, "sweep_dedupe": 900}
FILL = """
INSERT INTO holdfast.dedupe (topic_id, tenant, grp, dedupe_id, seq, expires_at)
SELECT $1, '', '', to_char(n, '0000000'), n,
       now() + CASE WHEN n % 10 = 0 THEN -interval '1 s' ELSE interval '1 day' END
FROM generate_series($2::integer, $3::integer) n
"""


async def _pages(db: Session, policy: Policy) -> dict[str, int]:
    """How many pages each statement looks at; what it changes is undone. Half of the ids are there already, where any
    are."""
    topic = policy.topic
    ids = [f"new{n}" for n in range(0, N, 2)]
    known = "SELECT dedupe_id FROM holdfast.dedupe WHERE topic_id = $1 ORDER BY tenant, grp, dedupe_id LIMIT $2"
    ids += [one["dedupe_id"] for one in await db.fetch(known, topic.id, N // 2)]
    none: list[object] = [None] * len(ids)
    nothing: list[list[object]] = [[]] * 10
    given: dict[str, tuple[object, ...]] = {
        "enqueue_deduped": (
            *(topic.name, topic.id, topic.sequence, [b"y" * 200] * len(ids), *nothing, none, 0, True, 3),
            *([], ids, 60_000, [len(ids)], ["batch"], 60_000),
        ),
        "sweep_dedupe": (N,),
    }
    found = {}
    for name, arguments in given.items():
        for _ in range(2):  # the first reads pages in, and sets hint bits
            plan = await plans.explain(db, statements.named(name), *arguments)
        assert not plan.kinds() & {"Seq Scan", "Hash Join", "Merge Join", "Bitmap Heap Scan", "Sort"}, name
        found[name] = plan.root["Shared Hit Blocks"] + plan.root["Shared Read Blocks"]
    return found


async def test_it_costs_the_same_with_a_million_ids(new_database: Callable[[], Awaitable[str]]) -> None:
    url = await new_database()
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        await store.put(pool, "busy", resolve("busy", AskedSettings(type="queue")))
        policy = await store.get(pool, "busy", DEFAULTS)
    assert policy is not None
    db = await asyncpg.connect(url, server_settings={"timezone": "UTC", **PLANNER})
    try:
        for table in ("jobs", "dedupe", "idempotency"):
            await db.execute(f"ALTER TABLE holdfast.{table} SET (autovacuum_enabled = false)")
        await producer.add_lanes(db, policy.topic, [Lane("", 0)])
        for name in BOUNDS:
            await plans.prepare(db, statements.named(name))
        for _ in range(7):
            await _pages(db, policy)
        async with held_snapshot(url):
            for start in range(0, 1_000_000, 100_000):
                await db.execute(FILL, policy.topic.id, start + 1, start + 100_000)
            found = await _pages(db, policy)
        assert {name: pages for name, pages in found.items() if pages > BOUNDS[name]} == {}
    finally:
        await db.close()
