"""What a requeue costs where 200,000 dead letters lie, with plans that were made while there was none.

Rows are loaded in bulk: what is looked at here is how they lie there, not how they came.
"""

from __future__ import annotations

import json
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import asyncpg

from app.base.db.pool import PLANNER
from app.kernel.enqueue import producer
from app.kernel.model import Lane
from app.kernel.topics import store
from app.kernel.topics.policy import DEFAULTS, AskedSettings, Policy, resolve
from tests.queue import plans, statements
from tests.queue.calls import Session

DEAD = 200_000
FAILED = 40_000  # in place
N = 100  # jobs a call; of a search, found among 20 times as many
LOOKS = 20 * N
EVER, BEGAN = datetime(1970, 1, 1, tzinfo=UTC), datetime(2026, 1, 1, tzinfo=UTC)
NONE: list[str] = []
# Pages that a call may look at: about twice what was measured on 18.
BOUNDS = {
    "find_dead": 400,
    "find_failed": 400,
    "find_letters": 800,
    "find_out": 1_400,
    "canary": 1_400,
    "requeue": 5_000,
    "sweep_dead": 800,
}
INDEXES = {
    "find_dead": {"jobs_dead"},
    "find_failed": {"jobs_finished"},
    "find_letters": {"jobs_first"},
    "find_out": {"jobs_pkey", "jobs_first"},
    "canary": {"jobs_pkey", "jobs_first"},
    "requeue": set(),  # a function, whose plans are not shown
    "sweep_dead": {"jobs_dead"},
}
# Dead letters of `busy`, in `dead`, and jobs that failed in place, in `failing`: every twentieth has the tag.
FILL = """
INSERT INTO holdfast.jobs (topic, topic_id, seq, position, state, visible_at, created_at, updated_at, payload,
                           deliveries, tag, last_error, cluster, failed_in, failed_at, original_topic, original_seq,
                           original_deliveries, dlq_moved_at, first_topic_id, first_seq)
SELECT t.name, t.id, n, n, CASE WHEN d.dead THEN 'ready' ELSE 'failed' END::holdfast.job_state, at, at, at,
       decode(repeat('ab', 128), 'hex'), 0, CASE WHEN n % 20 = 0 THEN 'rare' END, 'error ' || n, repeat('a', 16),
       CASE WHEN d.dead THEN 'busy' ELSE t.name END, at, CASE WHEN d.dead THEN 'busy' END, CASE WHEN d.dead THEN n END,
       CASE WHEN d.dead THEN 3 END, CASE WHEN d.dead THEN at END, CASE WHEN d.dead THEN b.id END,
       CASE WHEN d.dead THEN n END
FROM holdfast.topics t CROSS JOIN LATERAL (SELECT t.name = 'dead' AS dead) d
JOIN holdfast.topics b ON b.name = 'busy'
CROSS JOIN LATERAL (SELECT n, $2::timestamptz + n * interval '1 ms' AS at
    FROM generate_series(1, CASE WHEN d.dead THEN $1::integer ELSE $3 END) n) x
WHERE t.name IN ('dead', 'failing')
"""


@asynccontextmanager
async def new_world(new_database: Callable[[], Awaitable[str]]) -> AsyncIterator[tuple[Session, dict[str, Policy]]]:
    url = await new_database()
    policies = {}
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        for name in ("busy", "dead", "failing"):
            await store.put(pool, name, resolve(name, AskedSettings(type="queue")))
            policy = await store.get(pool, name, DEFAULTS)
            assert policy is not None
            policies[name] = policy
    db = await asyncpg.connect(url, server_settings={"timezone": "UTC", **PLANNER})
    try:
        await db.execute("ALTER TABLE holdfast.jobs SET (autovacuum_enabled = false)")
        await producer.add_lanes(db, policies["busy"].topic, [Lane("", 0)])
        for name in BOUNDS:
            await plans.prepare(db, statements.named(name))
        yield db, policies
    finally:
        await db.close()


async def measured(db: Session, policies: dict[str, Policy]) -> dict[str, plans.Plan]:
    """Each statement's plan; what it changes is undone. It looks in the middle of what there is."""
    busy, dead, failing = (policies[name].topic for name in ("busy", "dead", "failing"))
    after, until = BEGAN + timedelta(milliseconds=FAILED // 2), datetime(2999, 1, 1, tzinfo=UTC)
    seqs = list(range(DEAD // 2, DEAD // 2 + N))
    match = (None, "rare", None, None, LOOKS, N, None)
    places = [{"topic": "busy", "topic_id": busy.id, "seq": n, "id_topic": busy.id, "id_seq": n} for n in seqs]
    arguments: dict[str, tuple[object, ...]] = {
        "find_dead": (dead.name, dead.id, after, 0, until, "busy", NONE, *match),
        "find_failed": (failing.name, failing.id, after, 0, until, None, NONE, *match),
        "find_letters": ([busy.id] * N, seqs),
        "find_out": (busy.name, busy.id, seqs, NONE),
        "canary": (json.dumps(places),),
        "requeue": (dead.name, dead.id, seqs, "busy", NONE, 0),
        "sweep_dead": (dead.name, timedelta(days=0), N),
    }
    found = {}
    for name, given in arguments.items():
        for _ in range(2):  # the first reads pages in, and sets hint bits
            found[name] = await plans.explain(db, statements.named(name), *given)
    return found


async def test_it_costs_what_it_looks_at(new_database: Callable[[], Awaitable[str]]) -> None:
    async with new_world(new_database) as (db, policies):
        for _ in range(7):  # plans are made, and kept, while there is nothing
            await measured(db, policies)
        await db.execute(FILL, DEAD, BEGAN, FAILED)
        for name, plan in (await measured(db, policies)).items():
            assert not plan.kinds() & {"Seq Scan", "Hash Join", "Merge Join", "Bitmap Heap Scan"}, name
            assert plan.indexes() == INDEXES[name], name
            assert plan.sorted_rows() <= N, name
            pages = plan.root["Shared Hit Blocks"] + plan.root["Shared Read Blocks"]
            assert pages <= BOUNDS[name], f"{name}: {pages}"
            if name == "sweep_dead":
                assert plan.changed_by() == {"Tid Scan"}
