"""What groups cost: a claim reads no job that is blocked, and the rest costs the same behind many groups as at the
first, with generic plans that were made for an empty table, while an old snapshot keeps
what was changed from being cleaned up."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from uuid import uuid4

import asyncpg
import pytest

from app.base.db.pool import PLANNER
from app.kernel.claim import consumer
from app.kernel.enqueue import producer
from app.kernel.groups import groups
from app.kernel.model import Batch, Lane
from app.kernel.topics import store
from app.kernel.topics.policy import DEFAULTS, AskedSettings, Policy, resolve
from tests.queue import plans, statements
from tests.queue.calls import Session, held, take
from tests.queue.test_plans import held_snapshot

N = 100
# Pages that a call for N jobs may look at: about twice what was measured on 18.
BOUNDS = {"enqueue_keyed": 4_000, "promote": 7_000, "freed_topics": 80, "group_topics": 80, "claim": 3_500}


async def _put(db: Session, policy: Policy, names: Sequence[str]) -> None:
    made = Batch(payloads=[b"x" * 200] * len(names), groups=list(names))
    await producer.upsert(db, policy.topic, policy.budget, made, ttl_ms=0)


async def _complete(db: Session, policy: Policy, count: int) -> None:
    jobs = sorted(await take(db, policy, count), key=lambda job: job.seq)
    assert len(await consumer.ack(db, policy.topic, [held(job) for job in jobs])) == count


async def _pages(db: Session, policy: Policy) -> dict[str, int]:
    """How many pages each statement looks at; what it changes is undone. There are N departures to see to, and N jobs
    without a group to claim beside those that are blocked."""
    topic = policy.topic
    nothing: list[list[object]] = [[]] * 10
    slots = [str(uuid4()) for _ in range(N)], [1] * N, ["w"], [30_000]
    names = [f"g{i}" if i % 2 else f"new{i}" for i in range(N)]
    given: dict[str, tuple[object, ...]] = {
        "enqueue_keyed": (
            *(topic.name, topic.id, topic.sequence, [b"y" * 200] * N, *nothing, [None] * N, 0, True, 3),
            names,
        ),
        "promote": (topic.name, topic.id, topic.sequence, N),
        "freed_topics": (0, 100),
        "group_topics": (100,),
        "claim": (topic.name, [""], [0], [0], [0], [], [1], [N], *slots, 3, False, 1 << 26),
    }
    found = {}
    for name, arguments in given.items():
        for _ in range(2):  # the first reads pages in, and sets hint bits
            plan = await plans.explain(db, statements.named(name), *arguments)
        assert not plan.kinds() & {"Seq Scan", "Hash Join", "Merge Join", "Bitmap Heap Scan"}, name
        if name == "claim":
            assert plan.indexes() == {"jobs_due", "jobs_ready"}
            assert plan.met() <= N
        found[name] = plan.root["Shared Hit Blocks"] + plan.root["Shared Read Blocks"]
    return found


@pytest.mark.parametrize("analyzed", [False, True])
async def test_they_cost_the_same_behind_many_groups(
    analyzed: bool, new_database: Callable[[], Awaitable[str]]
) -> None:
    url = await new_database()
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        await store.put(pool, "busy", resolve("busy", AskedSettings(type="queue")))
        policy = await store.get(pool, "busy", DEFAULTS)
    assert policy is not None
    db = await asyncpg.connect(url, server_settings={"timezone": "UTC", **PLANNER})
    try:
        for table in ("jobs", "groups", "freed_groups"):
            await db.execute(f"ALTER TABLE holdfast.{table} SET (autovacuum_enabled = false)")
        await producer.add_lanes(db, policy.topic, [Lane("", 0)])
        if analyzed:
            await db.execute("ANALYZE")
        for name in BOUNDS:
            await plans.prepare(db, statements.named(name))
        for _ in range(7):
            await _pages(db, policy)
        async with held_snapshot(url):
            await _put(db, policy, [f"g{i}" for i in range(N)] * 2)
            await _complete(db, policy, N)
            before = await _pages(db, policy)
            for start in range(0, 5_000, 1_000):
                await _put(db, policy, [f"g{i}" for i in range(start, start + 1_000)])
            for _ in range(3):
                await _put(db, policy, [f"g{i}" for i in range(1_000)] * 3)
                await _complete(db, policy, 1_000)
                while (await groups.promote(db, policy.topic, 1_000)).freed:
                    pass
            await _complete(db, policy, N)
            after = await _pages(db, policy)
        assert {name: pages for name, pages in before.items() if pages > BOUNDS[name]} == {}
        assert {name: pages for name, pages in after.items() if pages > BOUNDS[name]} == {}
    finally:
        await db.close()
