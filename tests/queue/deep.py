"""A database in which there is much of everything.

Rows are loaded in bulk where it matters how they lie there, not how they came.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from typing import Final

import asyncpg

from app.base.db.pool import PLANNER
from app.features.archive import replays
from app.features.archive.replays import Replay
from app.kernel import groups
from app.kernel.claim import consumer
from app.kernel.enqueue import producer
from app.kernel.logs import log
from app.kernel.logs.log import AppendPart
from app.kernel.model import Batch, Lane, Topic
from app.kernel.topics import store
from app.kernel.topics.policy import DEFAULTS, AskedSettings, Policy, resolve
from tests.queue.calls import Session, batch, held, lease_ended, put, take
from tests.reapers.test_archive import past_days

NewDatabase = Callable[[], Awaitable[str]]

N: Final = 100  # jobs, ids or records a call
SETTINGS: Final[dict[str, dict[str, object]]] = {
    **{name: {} for name in ("deep", "keyed", "grouped", "busy", "dead")},
    **{name: {"replayable": True} for name in ("kept", "kept1", "kept2")},
    "log": {"type": "log"},
}
LIMITED: Final = Topic("limited", 77, 0)
RECORDS: Final = 1_000  # at most in the log
EVER, NEVER = datetime(1970, 1, 1, tzinfo=UTC), datetime(2999, 1, 1, tzinfo=UTC)
BEGAN: Final = datetime(2026, 1, 1, tzinfo=UTC)
OUT, CLUSTERS = 20_000, 120  # of each topic: dead letters of two sources, and jobs that failed in place
COUNTED: Final = 6_100  # of those, at most: where nobody has vacuumed, each may take a page
DAYS, DAY_ROWS = 12, 3_000

# Jobs of `busy` that failed in place; and in `dead` dead letters, every second one of `busy`.
FILL_OUT: Final = """
INSERT INTO holdfast.jobs (topic, topic_id, seq, position, state, visible_at, created_at, updated_at, payload,
                           deliveries, tag, last_error, cluster, failed_in, failed_at, original_topic, original_seq,
                           original_deliveries, dlq_moved_at, first_topic_id, first_seq)
SELECT t.name, t.id, x.seq, x.seq, CASE WHEN d.dead THEN 'ready' ELSE 'failed' END::holdfast.job_state, at, at, at,
       decode(repeat('ab', 128), 'hex'), 0, CASE WHEN n % 20 = 0 THEN 'rare' END, 'error ' || n,
       CASE WHEN d.dead THEN lpad((n % $2)::text, 16, '0') ELSE repeat('a', 16) END, x.failed_in, at,
       CASE WHEN d.dead THEN x.failed_in END, CASE WHEN d.dead THEN n END, CASE WHEN d.dead THEN 3 END,
       CASE WHEN d.dead THEN at END, CASE WHEN d.dead THEN b.id END, CASE WHEN d.dead THEN n END
FROM holdfast.topics t CROSS JOIN LATERAL (SELECT t.name = 'dead' AS dead) d
JOIN holdfast.topics b ON b.name = 'busy'
CROSS JOIN LATERAL (
    SELECT n, CASE WHEN d.dead THEN n ELSE 1000000 + n END AS seq, $3::timestamptz + n * interval '1 ms' AS at,
           CASE WHEN d.dead AND n % 2 = 1 THEN 'other' ELSE 'busy' END AS failed_in
    FROM generate_series(1, $1::integer) n) x
WHERE t.name IN ('busy', 'dead')
"""
FILL: Final = f"""
INSERT INTO holdfast.archive (finished_at, topic, topic_id, seq, outcome, created_at, deliveries, priority, tenant,
                              payload)
SELECT date_trunc('day', now()) - (n / {DAY_ROWS}) * interval '1 day' + (n % {DAY_ROWS}) * interval '1 second',
       t.name, t.id, n, 'completed', now(), 1, 0, '', decode(repeat('ab', 100), 'hex')
FROM holdfast.topics t, generate_series(0, {DAY_ROWS * DAYS} - 1) n WHERE t.name LIKE 'kept%';
INSERT INTO holdfast.buckets SELECT now(), 5, n, 0 FROM generate_series(1, 3000) n;
INSERT INTO holdfast.tallies (topic_id, ready) SELECT n % 3000, 1 FROM generate_series(1, 30000) n;
INSERT INTO holdfast.dedupe (topic_id, tenant, grp, dedupe_id, seq, expires_at)
SELECT t.id, '', '', to_char(n, '0000000'), n,
       now() + CASE WHEN n % 10 = 0 THEN -interval '1 s' ELSE interval '1 day' END
FROM holdfast.topics t, generate_series(1, 50000) n WHERE t.name = 'deep';
-- Each has changed every minute of five days, and was looked at each time.
INSERT INTO holdfast.depths (topic_id, minute, ready, in_flight, scheduled, blocked)
SELECT t.id, date_trunc('minute', now()) - m * interval '1 min', m, 0, 0, 0
FROM holdfast.topics t, generate_series(0, 7999) m;
INSERT INTO holdfast.depth_looks SELECT DISTINCT minute FROM holdfast.depths;
INSERT INTO holdfast.topic_stats (topic_id, minute, topic, tenant, enqueued)
SELECT t.id, date_trunc('minute', now()) - m * interval '1 min', t.name, '', 1
FROM holdfast.topics t, generate_series(0, 4999) m;
INSERT INTO holdfast.results (completed_at, topic, topic_id, seq, first_topic_id, first_seq, lease_id, deliveries,
                              result)
SELECT now() + n % 3 * interval '1 day', 'some', 1, n, CASE WHEN n % 10 = 0 THEN 2 END, CASE WHEN n % 10 = 0 THEN n END,
       gen_random_uuid(), 1, to_json(repeat('x', 100))
FROM generate_series(1, 20000) n;
-- One is due of so many, whose next times are an hour apart.
INSERT INTO holdfast.schedules (name, topic, cron, time_zone, missed, paused, next_fire, due_at, payload, fields)
SELECT 's' || n, 't', '0 * * * *', 'UTC', 'once', false, at, at, repeat('x', 2000)::bytea, '{{}}'
FROM (SELECT n, '{BEGAN}'::timestamptz + n * interval '1 h' AS at FROM generate_series(0, 9999) n) one;
INSERT INTO holdfast.user_events (user_id, event, data)
SELECT 'u' || n % 1000, 'progress', repeat('x', 100) FROM generate_series(1, 50000) n;
"""


class World:
    """A database with some topics, and a session with the hot pool's settings."""

    def __init__(self, db: Session, url: str, policies: dict[str, Policy], run: Replay) -> None:
        self.db = db
        self.url = url
        self.policies = policies
        self.topics = {name: policy.topic for name, policy in policies.items()}
        self.run = run
        self.mark = 0  # what was folded away lies below it
        self.first = 1  # seq of `deep`
        self.prepared: set[str] = set()
        self.middle = run.until_time.replace(hour=0, minute=30, second=0, microsecond=0) - timedelta(days=DAYS // 2)

    async def fill(self) -> None:
        db = self.db
        await db.execute(FILL_OUT, OUT, CLUSTERS, BEGAN)
        await db.execute(FILL)
        await self._deep()
        await self._groups()
        await self._keys()
        for _ in range(120):
            parts = [AppendPart(N, 200 * N)]
            await log.append(db, self.topics["log"], Batch([b"x" * 200] * N), parts, log.Limits(records=RECORDS))
        tagged = Batch([b"1"] * 3, tags=["a:1", "a:2", "b"])
        await log.append(db, self.topics["log"], tagged, [AppendPart(3, 3)], log.Limits())
        await db.execute(
            "INSERT INTO holdfast.tallies (topic_id, ready) SELECT $1, 1 FROM generate_series(1, 5000)", LIMITED.id
        )
        await db.execute("DELETE FROM holdfast.tallies WHERE topic_id = $1", LIMITED.id)
        self.mark = await db.fetchval("SELECT max(id) FROM holdfast.tallies") + 5_000

    async def _deep(self) -> None:
        """Many groups, of which some heads are leased, and many jobs without a group."""
        names = [f"g{n:04}" for n in range(1_000)]
        for _ in range(4):
            await self._place("deep", groups=names)
        for _ in range(10):
            await put(self.db, self.policies["deep"], batch(1_000))
        await take(self.db, self.policies["deep"], N, lease_ms=3_600_000)
        self.first = await self.db.fetchval("SELECT min(seq) FROM holdfast.jobs WHERE topic = 'deep'")

    async def _groups(self) -> None:
        """Groups that went through many heads; and N that nobody has let the next one through of."""
        policy = self.policies["grouped"]
        await self._place("grouped", groups=[f"g{i}" for i in range(2_000)])
        for _ in range(2):
            await self._place("grouped", groups=[f"g{i}" for i in range(1_000)] * 2)
            await self._complete(policy, 1_000)
            while (await groups.promote(self.db, policy.topic, 1_000)).freed:
                pass
        await self._complete(policy, N)

    async def _complete(self, policy: Policy, count: int) -> None:
        jobs = sorted(await take(self.db, policy, count), key=lambda job: job.seq)
        assert len(await consumer.ack(self.db, policy.topic, [held(job) for job in jobs])) == count

    async def _keys(self) -> None:
        """N good leases and N that have ended, with newer jobs of every second one's key; and keys often updated."""
        policy = self.policies["keyed"]
        await self._place("keyed", keys=[f"k{i}" for i in range(2 * N)])
        jobs = await take(self.db, policy, N, lease_ms=3_600_000)
        ended = await take(self.db, policy, N, lease_ms=100)
        await self._place("keyed", keys=[job.key for job in [*jobs, *ended][::2]])
        for job in ended:
            await lease_ended(self.db, policy, job)
        for _ in range(5):
            await self._place("keyed", keys=[f"m{i}" for i in range(1_000)])

    async def _place(self, name: str, **columns: Sequence[str | None]) -> None:
        [count] = map(len, columns.values())
        policy = self.policies[name]
        made = Batch(payloads=[b"x" * 200] * count, **columns)  # type: ignore[arg-type]
        await producer.upsert(self.db, policy.topic, policy.budget, made, ttl_ms=0)


@asynccontextmanager
async def new_world(new_database: NewDatabase) -> AsyncIterator[World]:
    url = await new_database()
    policies = {name: await make(url, name, **settings) for name, settings in SETTINGS.items()}
    # What is committed without a flush is not seen as visible to all by the VACUUM right behind it.
    settings = {"timezone": "UTC", "synchronous_commit": "on", **PLANNER}
    db = await asyncpg.connect(url, server_settings=settings)
    try:
        run = await replays.begin(db, policies["kept"].topic, None, 0)
        assert run is not None
        for table in ("jobs", "groups", "freed_groups", "dedupe", "idempotency", "records", "log_state", "schedules"):
            await db.execute(f"ALTER TABLE holdfast.{table} SET (autovacuum_enabled = false)")
        for name in ("deep", "keyed", "grouped", "busy"):
            await producer.add_lanes(db, policies[name].topic, [Lane("", 0)])
        await past_days(db, DAYS)
        yield World(db, url, policies, run)
    finally:
        await db.close()


async def make(url: str, name: str, **settings: object) -> Policy:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        await store.put(pool, name, resolve(name, AskedSettings(**{"type": "queue", **settings})))
        policy = await store.get(pool, name, DEFAULTS)
    assert policy is not None
    return policy
