"""The plan is part of the contract: which index each hot statement walks, and how many pages it looks at.

Every statement is explained as the hot pool runs it, in four worlds that are hard on a planner. Rows are loaded in
bulk, straight into the table: what is looked at here is how they lie there, not how they came.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import timedelta
from uuid import uuid4

import asyncpg

from app.base.db.pool import PLANNER, open_pools
from app.kernel.claim import consumer
from app.kernel.model import HeldJob
from app.kernel.settle import exit_rows as exits
from app.kernel.topics import store
from app.kernel.topics.policy import DEFAULTS, AskedSettings, Policy, resolve
from tests.queue import plans, statements
from tests.queue.calls import Session, take

N = 100  # jobs a statement
NewDatabase = Callable[[], Awaitable[str]]

# A hundred kinds of jobs in turn: fresh ones in three lanes, some of them past their time to live; scheduled ones;
# leases that are good, and leases that ended in silence; failed ones. Every tenth has no tag, and few the rare one.
FILL = """
INSERT INTO holdfast.jobs (topic, topic_id, seq, position, state, tenant, priority, visible_at, created_at, updated_at,
                           expires_at, deliveries, lease_id, node, payload, tag)
SELECT t.name, t.id, n, n,
       CASE WHEN k < 80 THEN 'ready' WHEN k < 90 THEN 'scheduled' WHEN k < 97 THEN 'leased' ELSE 'failed'
       END::holdfast.job_state,
       CASE WHEN k IN (0, 95) THEN 't1' ELSE '' END, CASE WHEN k = 1 THEN 5 ELSE 0 END,
       now() + CASE WHEN k BETWEEN 80 AND 95 THEN interval '1 hour' ELSE interval '-1 minute' END, now(), now(),
       CASE WHEN k = 2 THEN now() - interval '1 minute' WHEN k = 3 THEN now() + interval '1 day' END,
       CASE WHEN k >= 90 THEN 3 ELSE 0 END,
       CASE WHEN k BETWEEN 90 AND 96 THEN gen_random_uuid() END, CASE WHEN k BETWEEN 90 AND 96 THEN 'worker' END,
       decode(repeat('ab', 256), 'hex'), CASE WHEN n % 200 = 7 THEN 'rare' WHEN n % 10 <> 0 THEN 'common' END
FROM holdfast.topics t, generate_series($1::bigint, $2::bigint) n, LATERAL (SELECT n % 100 AS k) kind
WHERE t.name = 'busy'
"""
DIGEST = "SELECT seq, lease_id::text AS lease FROM holdfast.jobs WHERE topic = 'busy' AND state = 'leased' "
PLACES = """
SELECT array_agg(quote_ident(ctid::text) ORDER BY seq) FROM holdfast.jobs WHERE topic = 'busy' AND seq = ANY ($1)
"""
FIRST_DUE = """
SELECT (date_part('epoch', least(min(visible_at), now())) * 1000000)::bigint - 2 FROM holdfast.jobs
WHERE topic = 'busy' AND state IN ('leased', 'scheduled')
"""


@dataclass(frozen=True, slots=True)
class Promise:
    """Indexes that a statement walks, and a bound on pages a job: about twice what was measured on 15 and 18, where a
    job took 13 in a claim, 9 in an ack, 5 in a nack, 17 in an extend, 4 in a look at a lease, 17 in a failure, 13 in
    a move to the dead letters, 13 in an expiry, 6 in a deletion or an eviction, and 1 where it is only looked at."""

    indexes: set[str]
    pages: int
    changes: bool = True


PROMISES = {
    "claim": Promise({"jobs_due", "jobs_ready"}, 30),
    "claim_tagged": Promise({"jobs_due", "jobs_tagged"}, 30),
    "in_flight": Promise({"jobs_held"}, 4, changes=False),
    "ack": Promise({"jobs_pkey"}, 20),
    "ack_and_record": Promise({"jobs_pkey"}, 34),
    "nack": Promise({"jobs_pkey"}, 20),
    "extend": Promise({"jobs_pkey"}, 34),
    "unended": Promise({"jobs_pkey"}, 8, changes=False),
    "bury": Promise({"jobs_pkey"}, 34),
    "fail": Promise({"jobs_pkey"}, 34),
    "spent": Promise({"jobs_pkey"}, 14, changes=False),
    "inter": Promise(set(), 24),
    "held": Promise({"jobs_pkey"}, 8, changes=False),
    "leases": Promise({"jobs_pkey"}, 8, changes=False),
    "expire": Promise({"jobs_expiring"}, 30),
    "evict": Promise({"jobs_due", "jobs_ready", "jobs_pkey"}, 14),
    "sweep_finished": Promise({"jobs_finished"}, 14),
    "exhausted": Promise({"jobs_due"}, 3, changes=False),
    "count": Promise({"jobs_due", "jobs_expiring"}, 4, changes=False),
    "probe": Promise({"jobs_due", "jobs_ready"}, 0, changes=False),
    "heads": Promise({"jobs_due", "jobs_ready"}, 0, changes=False),
    "working": Promise({"jobs_due", "jobs_ready"}, 0, changes=False),
    "turns": Promise({"jobs_due", "jobs_ready"}, 3, changes=False),
    "depths": Promise({"jobs_due", "jobs_ready", "jobs_expiring"}, 10, changes=False),
    "enqueue": Promise(set(), 24, changes=False),
    "hook": Promise({"jobs_pkey"}, 90),
}
BACKOFF = '{"kind": "exponential", "base_ms": 1000, "cap_ms": 60000, "jitter": "full"}'
FROM_THE_START = {"exhausted"}
LOOKS_AHEAD = {"heads", "probe", "working"}  # at the next time of any job, past the leases that were given up early
FIXED = 50  # pages that a statement may look at besides: the upper levels of its indexes


class World:
    """A database with a queue `busy`, and every hot statement prepared on one session with the hot pool's settings."""

    def __init__(self, db: Session, url: str, busy: Policy, dead: Policy) -> None:
        self.db = db
        self.url = url
        self.busy = busy
        self.dead = dead

    async def prepare(self) -> None:
        for name in PROMISES:
            await plans.prepare(self.db, statements.named(name))

    async def fill(self, rows: int) -> None:
        """Add so many jobs to those there are."""
        last = await self.db.fetchval(
            "SELECT coalesce(pg_sequence_last_value($1::oid::regclass), 0)", self.busy.topic.sequence
        )
        await self.db.execute(FILL, last + 1, last + rows)
        await self.db.execute("SELECT setval($1::oid::regclass, $2)", self.busy.topic.sequence, last + rows)

    async def arguments(self, name: str, *, after: int = 0, count: int = N) -> tuple[object, ...]:
        """What a statement is called with, for `count` jobs that it is for; a claim starts at position `after`."""
        good = await self.db.fetch(DIGEST + "AND visible_at > now() ORDER BY seq LIMIT $1", count)
        over = await self.db.fetch(DIGEST + "AND visible_at < now() ORDER BY seq LIMIT $1", count)
        seqs, leases = [found["seq"] for found in good], [found["lease"] for found in good]
        spent, nothing = [found["seq"] for found in over], [None] * count
        busy, dead = self.busy.topic, self.dead.topic
        due = [0 if after == 0 else None] * 3
        lanes = ["", "", "t1"], [5, 0, 0], [after] * 3, due
        marks = ["", "", "t1"], [5, 0, 0], [after] * 3, [0 if after == 0 else await self.db.fetchval(FIRST_DUE)] * 3
        slots = [str(uuid4()) for _ in range(count)], [1] * count, ["w"], [30_000]
        every: dict[str, tuple[object, ...]] = {
            "claim": (busy.name, *lanes, [], [2, 3], [count, count], *slots, 3, False, 1 << 26),
            "claim_tagged": (
                *(busy.name, *lanes, [], [2, 3], [count, count], *slots, 3, False, 1 << 26),
                ["none", "rare"],
            ),
            "in_flight": (busy.name, ["t1", "t2"], [count, count]),
            "turns": (busy.name, count, *lanes),
            "ack": (busy.name, seqs, leases, nothing, [False] * count),
            "ack_and_record": (busy.name, seqs, leases, nothing, ["5"] * count, 1_000, True, True, [False] * count),
            "nack": (busy.name, seqs, leases, ["worker"] * count, nothing, nothing, [3] * count, True, 3, BACKOFF),
            "extend": (busy.name, seqs, leases, nothing, [30_000] * count, [5] * count, ["n"] * count),
            "unended": ([busy.name] * count, [busy.id] * count, seqs),
            "held": (busy.name, seqs, leases),
            "leases": (busy.name, seqs, nothing, ["worker"] * count),
            "bury": (busy.name, spent, nothing, nothing, 3, dead.name, dead.id, dead.sequence, False),
            "spent": (busy.name, spent, nothing, 3, 1_000_000),
            "inter": (busy.name, await self.db.fetchval(PLACES, spent), nothing, False),
            "fail": (busy.name, spent, nothing, nothing, 3, False),
            "hook": (busy.name, seqs, ["https://example.org/"] * count),
            "expire": (busy.name, count),
            "evict": (busy.name, count // 3, 0, count // 3, True, 3, *marks),
            "sweep_finished": (busy.name, timedelta(0), count),
            "exhausted": (busy.name, ["", "t1"], [0, 0], 3, count),
            "count": (busy.name, busy.id, True, 3, count, 0, *marks[:2], marks[3]),
            "depths": (
                *([busy.name, dead.name], [busy.id, dead.id], [True, True], [3, 3], [0, 0]),
                *(count, [busy.name] * 3, *marks),
            ),
            "probe": ([busy.name, dead.name], [0, 0], [0, 0], [busy.name] * 3, *marks),
            "heads": ([busy.name] * 3, *marks),
            "working": (busy.name, 0, 0, *marks, 1_000),
            "enqueue": (busy.name, busy.id, busy.sequence, [b"{}"] * count, *([[]] * 10), 0),
        }
        return every[name]

    async def broken(self, *, after: int = 0, dead: int = 0) -> dict[str, str]:
        """Each statement that does not keep its promise here, and how. What has cursors starts at position `after`;
        what has none walks over `dead` jobs that can't be cleaned up."""
        found = {}
        for name, promise in PROMISES.items():
            arguments = await self.arguments(name, after=after)
            await plans.explain(self.db, statements.named(name), *arguments)  # reads pages in, sets hint bits
            plan = await plans.explain(self.db, statements.named(name), *arguments)
            if why := broken(promise, plan, more=dead // 2 if name in FROM_THE_START | LOOKS_AHEAD else 0):
                found[name] = why
        return found


def broken(promise: Promise, plan: plans.Plan, count: int = N, more: int = 0) -> str:
    """How a plan breaks its promise; empty if it does not. `more` pages are allowed."""
    bound = FIXED + promise.pages * count + more
    reasons = {
        f"is for {plan.met()} jobs only": promise.indexes != set() and plan.met() < min(promise.pages, 0.9) * count,
        f"walks {plan.indexes()}": plan.indexes() != promise.indexes,
        f"has {plan.kinds()}": bool(plan.kinds() & {"Seq Scan", "Hash Join", "Merge Join", "Bitmap Heap Scan"}),
        f"finds what it changes by {plan.changed_by()}": plan.changed_by()
        != ({"Tid Scan"} if promise.changes else set()),
        f"sorts {plan.sorted_rows()} rows": plan.sorted_rows() > count,
        f"looks at {plan.pages()} pages, {bound} allowed": plan.pages() > bound,
    }
    return "; ".join(reason for reason, holds in reasons.items() if holds)


@asynccontextmanager
async def new_world(new_database: NewDatabase) -> AsyncIterator[World]:
    url = await new_database()
    pools = await open_pools(url, hot=2, rest=1, prepared_statements=True)
    policies = []
    for name in ("busy", "dead"):
        await store.put(pools.rest, name, resolve(name, AskedSettings(type="queue")))
        policy = await store.get(pools.rest, name, DEFAULTS)
        assert policy is not None
        policies.append(policy)
    await pools.close(5)
    db = await asyncpg.connect(url, server_settings={"timezone": "UTC", **PLANNER})
    try:
        await db.execute("ALTER TABLE holdfast.jobs SET (autovacuum_enabled = false)")
        await db.execute("INSERT INTO holdfast.lanes VALUES ('busy', '', 5), ('busy', '', 0), ('busy', 't1', 0)")
        yield World(db, url, *policies)
    finally:
        await db.close()


@asynccontextmanager
async def held_snapshot(url: str) -> AsyncIterator[None]:
    """A transaction elsewhere that still sees the table as it is now: no later change of it can be cleaned up."""
    reader = await asyncpg.connect(url)
    try:
        await reader.execute("BEGIN ISOLATION LEVEL REPEATABLE READ")
        await reader.fetchval("SELECT count(*) FROM holdfast.jobs WHERE topic = 'none'")
        yield
    finally:
        await reader.close()


async def test_with_statistics_of_an_empty_table(new_database: NewDatabase) -> None:
    async with new_world(new_database) as world:
        await world.db.execute("ANALYZE holdfast.jobs")
        await world.prepare()
        await world.fill(30_000)
        assert await world.broken() == {}


async def test_with_many_rows_and_good_statistics(new_database: NewDatabase) -> None:
    async with new_world(new_database) as world:
        await world.fill(60_000)
        await world.db.execute("ANALYZE holdfast.jobs")
        await world.prepare()
        assert await world.broken() == {}


async def test_prepared_on_an_empty_table_that_was_never_analyzed(new_database: NewDatabase) -> None:
    """The trap of a generic plan: made for no rows, kept for many. With what it walks over not to be cleaned up."""
    async with new_world(new_database) as world:
        await world.prepare()
        for name in PROMISES:
            await plans.explain(world.db, statements.named(name), *await world.arguments(name))
        async with held_snapshot(world.url):
            await world.fill(20_000)
            passed = await _consume(world, 2_000)
            await world.fill(10_000)
            assert await world.broken(after=passed, dead=2_000) == {}


async def test_while_a_snapshot_is_held_and_thousands_are_consumed(new_database: NewDatabase) -> None:
    async with new_world(new_database) as world:
        await world.fill(20_000)
        await world.db.execute("ANALYZE holdfast.jobs")
        await world.prepare()
        async with held_snapshot(world.url):
            passed = await _consume(world, 10_000)
            # Acked jobs leave entries at their deadlines, up to a lease's length ahead: nobody looks that far.
            found = {
                name: await plans.explain(world.db, statements.named(name), *await world.arguments(name, after=passed))
                for name in LOOKS_AHEAD
            }
            # Those of the small lanes, which are empty now, lie before the large one's end.
            assert {name: plan.pages() for name, plan in found.items() if plan.pages() > 3 * FIXED} == {}
            await world.fill(20_000)
            assert await world.broken(after=passed, dead=10_000) == {}

            claim, few = statements.named("claim"), 10
            at_cursor = await plans.explain(world.db, claim, *await world.arguments("claim", after=passed, count=few))
            assert at_cursor.root["Actual Rows"] == few + 1  # the clock
            assert broken(PROMISES["claim"], at_cursor, few) == ""
            # The control: from the start of its lane, it walks over all that was consumed.
            name, _tenants, _priorities, _after, _due, *slots = await world.arguments("claim", count=few)
            lane = [""], [0], [0], [None]
            from_start = await plans.explain(world.db, claim, name, *lane, *slots)
            assert broken(PROMISES["claim"], from_start, few) != ""


async def test_a_look_at_many_lanes_costs_two_descents_each_however_many_have_marks(new_database: NewDatabase) -> None:
    """No join of lanes with marks, which would compare each with all: ten million rows here."""
    lanes, marked = 10_000, 1_000
    async with new_world(new_database) as world:
        await world.prepare()
        await world.fill(10_000)
        await world.db.execute(
            "INSERT INTO holdfast.lanes SELECT 'busy', 'x' || n, 0 FROM generate_series(1, $1::integer) n", lanes
        )
        marks = [*(f"x{n}" for n in range(1, marked)), "t1"], [0] * marked, [0] * marked, [0] * marked
        looks = {
            "working": ("busy", 0, 0, *marks, 1_000),
            "probe": (["busy"], [0], [0], ["busy"] * marked, *marks),
        }
        for name, arguments in looks.items():
            await plans.explain(world.db, statements.named(name), *arguments)
            plan = await plans.explain(world.db, statements.named(name), *arguments)
            assert plan.indexes() == {"jobs_due", "jobs_ready"}
            assert plan.pages() < 10 * lanes
            assert plan.most_rows() < 3 * lanes
            assert not plan.kinds() & {"Hash Join", "Merge Join", "Bitmap Heap Scan"}


def test_but_for_how_jobs_are_found_a_claim_by_tags_is_the_claim_of_all_jobs() -> None:
    claim, tagged = (statements.named(name).text.partition("), seats AS")[2] for name in ("claim", "claim_tagged"))
    assert claim == tagged != ""


async def _consume(world: World, count: int) -> int:
    """Claim and ack so many jobs as a worker does; the position up to which all of lane ('', 0) were taken."""
    await exits.expire(world.db, world.busy.topic.name, 10_000)
    taken, last = 0, 0
    while taken < count:
        jobs = await take(world.db, world.busy, 500)
        done = await consumer.ack(
            world.db, world.busy.topic, sorted((HeldJob(job.seq, None, "worker") for job in jobs), key=lambda h: h.seq)
        )
        assert len(done) == len(jobs) > 0
        taken += len(jobs)
        last = max([last, *(job.seq for job in jobs if 1 < job.seq % 100 < 80)])  # by position, those
    return last
