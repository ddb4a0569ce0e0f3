"""What the statements of keys cost: the same behind thousands of jobs as at the first, with generic plans that were
made for an empty table, while an old snapshot keeps all that was changed from being cleaned up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from app.base.db.pool import PLANNER
from app.kernel.enqueue import producer
from app.kernel.model import Batch, Lane
from app.kernel.topics import store
from app.kernel.topics.policy import DEFAULTS, AskedSettings, Policy, resolve
from tests.queue import plans, statements
from tests.queue.calls import Session, lease_ended, take
from tests.queue.test_plans import held_snapshot

N = 100
# Pages that a call for N jobs may look at: about twice what was measured on 18.
BOUNDS = {"enqueue_keyed": 7_000, "nack_keyed": 8_000, "delete_key": 60, "supersede": 4_000}


async def _put(db: Session, policy: Policy, names: list[str | None]) -> None:
    made = Batch(payloads=[b"x" * 200] * len(names), keys=names)
    await producer.upsert(db, policy.topic, policy.budget, made, ttl_ms=0)


async def _pages(db: Session, policy: Policy) -> dict[str, int]:
    """How many pages each statement looks at; what it changes is undone. It has N leases to work on, and a waiting job
    for every second one's key."""
    topic = policy.topic
    held = await db.fetch(
        "SELECT seq, key, lease_id::text AS lease FROM holdfast.jobs WHERE topic = $1 AND state = 'leased' "
        "AND visible_at > now() ORDER BY seq LIMIT $2",
        topic.name,
        N,
    )
    seqs, leases, none = [one["seq"] for one in held], [one["lease"] for one in held], [None] * len(held)
    names = [f"k{i}" if i % 2 else f"new{i}" for i in range(N)]
    nothing: list[list[object]] = [[]] * 10
    given: dict[str, tuple[object, ...]] = {
        "enqueue_keyed": (topic.name, topic.id, topic.sequence, [b"y" * 200] * N, *nothing, names, 0, True, 3, []),
        "nack_keyed": (topic.name, seqs, leases, none, [0] * len(seqs), none, [0] * len(seqs), None),
        "delete_key": (topic.name, "", "k1", 1_000),
        "supersede": (topic.name, "", "", 0, N, True, 3),
    }
    found = {}
    for name, arguments in given.items():
        for _ in range(2):  # the first reads pages in, and sets hint bits
            plan = await plans.explain(db, statements.named(name), *arguments)
        assert not plan.kinds() & {"Seq Scan", "Hash Join", "Merge Join", "Bitmap Heap Scan"}, name
        if name in {"delete_key", "supersede"}:
            assert plan.changed_by() == {"Tid Scan"}, name
            assert plan.indexes() <= {"jobs_keyed", "jobs_pkey", "jobs_pending_key"}, name
        found[name] = plan.root["Shared Hit Blocks"] + plan.root["Shared Read Blocks"]
    return found


@pytest.mark.parametrize("analyzed", [False, True])
async def test_they_cost_the_same_behind_many_jobs(analyzed: bool, new_database: Callable[[], Awaitable[str]]) -> None:
    url = await new_database()
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        await store.put(pool, "busy", resolve("busy", AskedSettings(type="queue")))
        policy = await store.get(pool, "busy", DEFAULTS)
    assert policy is not None
    db = await asyncpg.connect(url, server_settings={"timezone": "UTC", **PLANNER})
    try:
        await db.execute("ALTER TABLE holdfast.jobs SET (autovacuum_enabled = false)")
        await producer.add_lanes(db, policy.topic, [Lane("", 0)])
        if analyzed:
            await db.execute("ANALYZE")
        for name in BOUNDS:
            await plans.prepare(db, statements.named(name))
        for _ in range(7):
            await _pages(db, policy)
        async with held_snapshot(url):
            await _put(db, policy, [f"k{i}" for i in range(2 * N)])
            jobs = await take(db, policy, N)
            ended = await take(db, policy, N, lease_ms=100)
            await _put(db, policy, [job.key for job in [*jobs, *ended][::2]])
            for job in ended:
                await lease_ended(db, policy, job)
            before = await _pages(db, policy)
            for start in range(0, 5_000, 1_000):
                await _put(db, policy, [f"m{i}" for i in range(start, start + 1_000)])
            for _ in range(5):
                await _put(db, policy, [f"m{i}" for i in range(1_000)])
            after = await _pages(db, policy)
        assert {name: pages for name, pages in before.items() if pages > BOUNDS[name]} == {}
        assert {name: pages for name, pages in after.items() if pages > BOUNDS[name]} == {}
    finally:
        await db.close()
