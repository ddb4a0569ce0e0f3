"""What a list of failures, a purge of one kind and the counts of failed jobs cost, however many jobs are out.

Rows are loaded in bulk: what is looked at here is how they lie there, not how they came.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import asyncpg
import pytest

from app.base.db.pool import PLANNER
from app.kernel.model import Topic
from app.kernel.topics import store
from app.kernel.topics.policy import DEFAULTS, AskedSettings, Policy, resolve
from tests.queue import plans, statements
from tests.queue.calls import Session

N = 100  # jobs a call
CLUSTERS = 120  # of those dead letters, in two sources; and one of what failed in place
# Pages that a call may look at: about twice what was measured on 18.
BOUNDS = {"failures": 1_500, "failure_places": 25, "purge_cluster": 2_000, "survey": 300, "tenant_stats": 12_000}
LETTERS = 5_000  # counted at most, in each of two topics
COUNTED = 6_100  # jobs, at 100 a cluster: where nobody has vacuumed, each may take a page
FILL = """
INSERT INTO holdfast.jobs (topic, topic_id, seq, position, state, visible_at, created_at, updated_at, payload,
                           deliveries, original_topic, original_seq, original_deliveries, dlq_moved_at, last_error,
                           cluster, failed_in, failed_at)
SELECT t.name, t.id, n, n, CASE WHEN t.name = 'busy' THEN 'failed' ELSE 'ready' END::holdfast.job_state,
       now(), now(), now(), decode(repeat('ab', 256), 'hex'), 0,
       CASE WHEN t.name = 'dead' THEN f.failed_in END, n, 3, now(), 'error ' || n,
       CASE WHEN t.name = 'busy' THEN repeat('a', 16) ELSE lpad((n % $2)::text, 16, '0') END, f.failed_in,
       now() + n * interval '1 ms'
FROM holdfast.topics t, generate_series(1, $1::integer) n,
     LATERAL (SELECT CASE WHEN t.name = 'busy' OR n % 2 = 0 THEN 'busy' ELSE 'other' END AS failed_in) f
WHERE t.name IN ('busy', 'dead')
"""
EVER = datetime(1970, 1, 1, tzinfo=UTC)


@asynccontextmanager
async def new_world(new_database: Callable[[], Awaitable[str]]) -> AsyncIterator[tuple[Session, Policy]]:
    url = await new_database()
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        for name in ("busy", "dead"):
            await store.put(pool, name, resolve(name, AskedSettings(type="queue")))
        policy = await store.get(pool, "busy", DEFAULTS)
    assert policy is not None
    # What is committed without a flush is not seen as visible to all by the VACUUM right behind it.
    settings = {"timezone": "UTC", "synchronous_commit": "on", **PLANNER}
    db = await asyncpg.connect(url, server_settings=settings)
    try:
        await db.execute("ALTER TABLE holdfast.jobs SET (autovacuum_enabled = false)")
        for name in BOUNDS:
            await plans.prepare(db, statements.named(name))
        yield db, policy
    finally:
        await db.close()


async def measured(db: Session, busy: Topic) -> dict[str, plans.Plan]:
    """Each statement's plan: 5,000 jobs counted at most, and N jobs purged."""
    arguments: dict[str, tuple[object, ...]] = {
        "failures": ("busy", "dead", EVER, 1_000, 5_000, 20),
        "failure_places": ("dead", None, 1_000),
        "purge_cluster": ("dead", "busy", "0" * 16, EVER, 0, datetime(2999, 1, 1, tzinfo=UTC), N),
        "survey": (["busy"], [busy.sequence], [busy.id], ["dead"], N, LETTERS),
        "tenant_stats": ("busy", "", N, None, LETTERS, False, 0, "dead", [], [], [], []),
    }
    found = {}
    for name, given in arguments.items():
        for _ in range(2):  # the first reads pages in, and sets hint bits
            found[name] = await plans.explain(db, statements.named(name), *given)
    return found


@pytest.mark.parametrize("analyzed", [False, True])
async def test_it_costs_what_it_counts_or_changes(analyzed: bool, new_database: Callable[[], Awaitable[str]]) -> None:
    async with new_world(new_database) as (db, busy):
        if not analyzed:
            for _ in range(7):  # plans are made, and kept, while there is nothing
                await measured(db, busy.topic)
        await db.execute(FILL, 40_000, CLUSTERS)
        await db.execute("INSERT INTO holdfast.lanes (topic, tenant, priority) VALUES ('busy', '', 0)")
        await db.execute("ANALYZE" if analyzed else "VACUUM holdfast.jobs")
        for name, plan in (await measured(db, busy.topic)).items():
            assert not plan.kinds() & {"Seq Scan", "Hash Join", "Merge Join", "Bitmap Heap Scan"}, name
            states = {"jobs_ready", "jobs_due", "jobs_blocked"} if name == "tenant_stats" else set()
            assert plan.indexes() <= {"jobs_failures", "jobs_pkey"} | states, name
            assert "jobs_failures" in plan.indexes(), name
            assert plan.sorted_rows() <= 2 * CLUSTERS, name
            more = {"failures": 2 * COUNTED, "survey": LETTERS}.get(name, 0) if analyzed else 0
            assert plan.pages() <= BOUNDS[name] + more, f"{name}: {plan.pages()}"
            if name == "purge_cluster":
                assert plan.changed_by() == {"Tid Scan"}
            if name == "failures":
                assert plan.root["Actual Rows"] == 20
                # What it counts it reads from the index alone.
                counting = [n for n in plan.nodes() if n["Node Type"] == "Index Only Scan"]
                assert COUNTED <= sum(n["Actual Rows"] * n["Actual Loops"] for n in counting) <= 1.1 * COUNTED
