"""A look for a result walks an index in each day that there is, however many results lie there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from app.base.db.pool import PLANNER
from tests.queue import plans, statements

FILL = """
INSERT INTO holdfast.results (completed_at, topic, topic_id, seq, first_topic_id, first_seq, lease_id, deliveries,
                              result)
SELECT now() + n % 3 * interval '1 day', 'busy', 1, n, CASE WHEN n % 10 = 0 THEN 2 END, CASE WHEN n % 10 = 0 THEN n END,
       gen_random_uuid(), 1, to_json(repeat('x', 100))
FROM generate_series(1, 50000) n
"""
BOUNDS = {"find_result": 60, "completed": 3_000}


@pytest.mark.parametrize("analyzed", [False, True])
async def test_a_look_costs_the_same_among_many(analyzed: bool, new_database: Callable[[], Awaitable[str]]) -> None:
    url = await new_database()
    db = await asyncpg.connect(url, server_settings={"timezone": "UTC", **PLANNER})
    seqs = list(range(1_000, 1_100))
    lease = "00000000-0000-0000-0000-000000000000"
    arguments: dict[str, tuple[object, ...]] = {
        "find_result": ("busy", 1, 4_711),
        "completed": ("busy", 1, seqs, [lease] * len(seqs)),
    }
    try:
        for name, given in arguments.items():
            await plans.prepare(db, statements.named(name))
            for _ in range(7):
                await plans.run(db, statements.named(name), *given)
        await db.execute(FILL)
        if analyzed:
            await db.execute("ANALYZE holdfast.results")
        for name, given in arguments.items():
            for _ in range(2):  # the first reads pages in, and sets hint bits
                plan = await plans.explain(db, statements.named(name), *given)
            assert not plan.kinds() & {"Seq Scan", "Hash Join", "Merge Join", "Bitmap Heap Scan"}, name
            looked_at = plan.root["Shared Hit Blocks"] + plan.root["Shared Read Blocks"]
            assert looked_at <= BOUNDS[name], name
    finally:
        await db.close()
