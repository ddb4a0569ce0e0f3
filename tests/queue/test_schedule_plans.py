"""The plans of schedules' statements: what is due is found at the start of an index, however many schedules there are;
and a million jobs that wait for their time cost a claim nothing."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from uuid import uuid4

import asyncpg
import pytest

from app.base.db.pool import PLANNER
from app.kernel.enqueue import producer
from app.kernel.model import Batch, Lane
from app.kernel.topics import store
from app.kernel.topics.policy import DEFAULTS, AskedSettings, resolve
from tests.queue import plans, statements
from tests.queue.plans import Plan

N = 100  # jobs a claim
AT = datetime(2026, 1, 1, tzinfo=UTC)
# One is due of so many, whose next times are an hour apart.
FILL = """
INSERT INTO holdfast.schedules (name, topic, cron, time_zone, missed, paused, next_fire, due_at, payload, fields)
SELECT 's' || n, 't', '0 * * * *', 'UTC', 'once', false, at, at, repeat('x', 2000)::bytea, '{}'
FROM (SELECT n, $1::timestamptz + n * interval '1 h' AS at FROM generate_series(0, $2) n) one
"""
# Pages that a statement may look at: about twice what was measured on 18.
BOUNDS = {"due": 30, "take": 15, "settle": 40}


def pages(plan: Plan) -> int:
    return int(plan.root["Shared Hit Blocks"] + plan.root["Shared Read Blocks"])


@pytest.mark.parametrize("analyzed", [False, True])
async def test_they_cost_the_same_among_many(analyzed: bool, new_database: Callable[[], Awaitable[str]]) -> None:
    """With generic plans that were made for an empty table."""
    url = await new_database()
    db = await asyncpg.connect(url, server_settings={"timezone": "UTC", **PLANNER})
    try:
        await db.execute("ALTER TABLE holdfast.schedules SET (autovacuum_enabled = false)")
        given = {
            "due": (AT, 10),
            "take": ("t", ["s0", "s1"], AT, 2),
            "settle": (["s0"], [AT], [AT], [1], [AT], [1], ["code"], ["text"]),
        }
        for name in given:
            await plans.prepare(db, statements.named(name, "schedules"))
        for _ in range(7):
            for name, arguments in given.items():
                await plans.run(db, statements.named(name, "schedules"), *arguments)
        await db.execute(FILL, AT, 9_999)
        if analyzed:
            await db.execute("ANALYZE")
        for name, arguments in given.items():
            for _ in range(2):  # the first reads pages in, and sets hint bits
                plan = await plans.explain(db, statements.named(name, "schedules"), *arguments)
            assert not plan.kinds() & {"Seq Scan", "Hash Join", "Merge Join", "Bitmap Heap Scan"}, name
            assert pages(plan) <= BOUNDS[name], name
            indexes = {node["Index Name"] for node in plan.nodes() if "Index Name" in node}
            assert indexes == {"schedules_due" if name == "due" else "schedules_pkey"}, name
    finally:
        await db.close()


async def test_a_claim_does_not_meet_jobs_whose_time_is_yet_to_come(new_database: Callable[[], Awaitable[str]]) -> None:
    """Beside 50,000 of them it finds as many jobs, and looks at as many pages, as without."""
    url = await new_database()
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        await store.put(pool, "later", resolve("later", AskedSettings(type="queue")))
        policy = await store.get(pool, "later", DEFAULTS)
    assert policy is not None
    topic = policy.topic
    db = await asyncpg.connect(url, server_settings={"timezone": "UTC", **PLANNER})
    try:
        await db.execute("ALTER TABLE holdfast.jobs SET (autovacuum_enabled = false)")
        await producer.add_lanes(db, topic, [Lane("", 0)])
        await plans.prepare(db, statements.named("claim"))

        async def claimed() -> tuple[int, int]:
            """How many jobs a claim of N finds by its indexes, and how many pages it looks at."""
            slots = [str(uuid4()) for _ in range(N)], [1] * N, ["w"], [30_000]
            for _ in range(2):  # the first reads pages in, and sets hint bits
                plan = await plans.explain(
                    db,
                    statements.named("claim"),
                    *(topic.name, [""], [0], [0], [0], [], [1], [N]),
                    *slots,
                    *(3, False, 1 << 26),
                )
            return plan.met(), pages(plan)

        await producer.enqueue(db, topic, Batch(payloads=[b"x"] * N), ttl_ms=0)
        before = await claimed()
        for _ in range(5):
            later = Batch(payloads=[b"x"] * 10_000, delays_ms=[3_600_000] * 10_000)
            await producer.enqueue(db, topic, later, ttl_ms=0)
        met, looked = await claimed()
        assert met == before[0]
        assert looked <= before[1] * 1.2
    finally:
        await db.close()
