"""What cancels, changes and lists cost in a deep queue, by plans that were made when it was empty."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from uuid import uuid4

import asyncpg
import pytest

from app.base.db.pool import PLANNER
from app.kernel.topics import store
from app.kernel.topics.policy import DEFAULTS, AskedSettings, Policy, resolve
from tests.queue import plans, statements
from tests.queue.calls import Session, batch, put, take

N = 100
# Pages that a call for N jobs may look at: about twice what was measured on 18.
BOUNDS = {"cancel_jobs": 2_600, "cancel_held": 2_000, "change_job": 60, "find_jobs": 4_000, "find_data": 4_000}
BOUNDS |= {"key_seqs": 60}


def _given(policy: Policy) -> dict[str, tuple[object, ...]]:
    topic = policy.topic
    seqs = list(range(1, N + 1))
    find = (None, True, 0, N, N, ["ready"], "", None, None, None, None, 0, None, None, None)
    return {
        "cancel_jobs": (topic.name, topic.id, seqs),
        "cancel_held": (topic.name, seqs, [str(uuid4())] * N, [None] * N),
        "change_job": (topic.name, topic.id, topic.sequence, N + 1, b"x", None, False, None, True, "t", 0, 5, None),
        "find_jobs": (topic.name, topic.id, *find),
        "find_data": (topic.name, topic.id, seqs, ["a"], [1], ["1"], 1_000_000, N),
        "key_seqs": (topic.name, None, "k", N),
    }


async def test_plans_made_for_an_empty_table_stay_good(
    new_database: Callable[[], Awaitable[str]],
) -> None:
    url = await new_database()
    db: Session = await asyncpg.connect(url, server_settings=PLANNER)
    try:
        async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
            await store.put(pool, "deep", resolve("deep", AskedSettings(type="queue")))
            policy = await store.get(pool, "deep", DEFAULTS)
        assert policy is not None
        given = _given(policy)
        for name, arguments in given.items():
            await plans.prepare(db, statements.named(name))
            for _ in range(7):
                await plans.run(db, statements.named(name), *arguments)
        for _ in range(20):
            await put(db, policy, batch(1_000))
        await take(db, policy, N)
        for name, arguments in given.items():
            await plans.explain(db, statements.named(name), *arguments)
            plan = await plans.explain(db, statements.named(name), *arguments)
            assert not plan.kinds() & {"Seq Scan", "Hash Join", "Merge Join", "Bitmap Heap Scan"}, name
            assert plan.changed_by() <= {"Tid Scan"}, name
            assert plan.pages() < BOUNDS[name], (name, plan.pages())
    finally:
        await db.close()


@pytest.mark.parametrize(
    "name", ["explain_job", "show_jobs", "find_jobs", "list_jobs", "change_job", "group_head", "purge"]
)
async def test_a_state_by_its_name_costs_nothing(name: str, connect: Callable[[], Awaitable[Session]]) -> None:
    """The planner puts the expression in the function's place."""
    db, statement = await connect(), statements.named(name)
    await db.execute("SET plan_cache_mode = force_generic_plan")
    await plans.prepare(db, statement)
    nothing = ", ".join(["NULL"] * len(statement.parameters))
    plan = "\n".join(row[0] for row in await db.fetch(f"EXPLAIN (VERBOSE) EXECUTE {name} ({nothing})"))
    assert "THEN 'leased'::text" in plan
    assert "state_now" not in plan
