"""What all other statements cost among many rows: as much as among few.

Each is planned while its tables are empty, as a service does that has just been installed, and asked once they are
full. An old snapshot keeps what is changed meanwhile from being cleaned up. Then all is analyzed, and asked again.
Rows are loaded in bulk where it matters how they lie there, not how they came.
"""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable, Set
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final
from uuid import uuid4

import asyncpg

from app.base.db.pool import PLANNER
from app.features.archive import replays
from app.features.archive.replays import BatchLimits
from app.features.stats.rows import UNSEEN
from app.kernel.claim import limits
from app.kernel.counts import holders
from app.kernel.model import Topic
from tests.queue import plans, statements
from tests.queue.calls import Session, batch, put
from tests.queue.deep import BEGAN, CLUSTERS, COUNTED, EVER, LIMITED, NEVER, OUT, RECORDS, N, World, make, new_world
from tests.queue.plans import Plan
from tests.queue.test_plans import held_snapshot

NewDatabase = Callable[[], Awaitable[str]]
Arguments = tuple[object, ...]

STEPS: Final = 100
MOST_SORTED: Final = 2 * CLUSTERS
LOOKS: Final = (
    "SELECT * FROM holdfast.job_events({id}, {seq}, '-infinity', 100)",
    "SELECT * FROM holdfast.last_events({id}, {seq}, 100)",
    "SELECT * FROM holdfast.recent_events({id}, 60)",
    "SELECT * FROM holdfast.jobs_as_of('{name}', {id}, clock_timestamp(), 'ready', {seq} - 1, 100)",
)
NAMED: Final = {str(one): one for one in statements.every()}


@dataclass(frozen=True, slots=True)
class Calls:
    """What a statement is called with, in one way or in several, and what each call may cost: pages that it looks at,
    about twice what was measured on 18; indexes of these tables that it walks; days of the archive that it reads."""

    pages: int
    arguments: Arguments | list[Arguments]
    indexes: Set[str] = frozenset()
    days: int = 2


async def all_calls(world: World) -> dict[str, Calls]:
    """For N jobs, ids or records each."""
    return {**of_jobs(world), **of_dead_letters(world), **of_tables(world), **await of_keys(world)}


def of_jobs(world: World) -> dict[str, Calls]:
    deep, grouped = world.topics["deep"], world.topics["grouped"]
    seqs, plain = list(range(world.first, world.first + N)), world.first + 5_000
    slots = [str(uuid4()) for _ in range(N)], [1] * N, ["w"], [30_000]
    found = (None, True, 0, N, N, ["ready"], "", None, None, None, None, 0, None, None, None)
    head = (deep.name, deep.id, 1, "", "g0000", 1, holders.NEVER, datetime.now(UTC) + timedelta(hours=1))
    return {
        "claim/claim": Calls(
            3_500,
            (grouped.name, [""], [0], [0], [0], [], [1], [N], *slots, 3, False, 1 << 26),
            indexes={"jobs_due", "jobs_ready"},
        ),
        "counts/failing_heads": Calls(640, (*([one] for one in head), 10_000, 50)),
        "counts/holders": Calls(40, (deep.name, 1_000, 1_000, 10)),
        "counts/lease_of_group": Calls(20, (deep.name, "", "g0001")),
        "counts/leases_of_node": Calls(25, (deep.name, [""], [0], [holders.NEVER], "worker", None, 50)),
        "counts/long_leases": Calls(40, ([deep.name], [1], 1_000, 1_000)),
        "counts/stuck_groups": Calls(1_000, ([deep.name], [1], [""], [""], 40, 50, 5)),
        "counts/waiting_groups": Calls(1_000, (deep.name, 40, 5, 50, 1)),
        "groups/freed_topics": Calls(50, (0, 100)),
        "groups/group_topics": Calls(80, (100,)),
        "groups/promote": Calls(7_000, (grouped.name, grouped.id, grouped.sequence, N)),
        "jobs/cancel_jobs": Calls(3_600, (deep.name, deep.id, seqs)),
        "jobs/change_job": Calls(
            60, (*(deep.name, deep.id, deep.sequence, plain, b"x", None, False, None, True, "t", 0, 5, None),)
        ),
        "kernel/find_data": Calls(1_800, (deep.name, deep.id, seqs, ["a"], [1], ["1"], 1_000_000, N)),
        "kernel/find_jobs": Calls(1_300, (deep.name, deep.id, *found)),
        "kernel/key_seqs": Calls(60, (deep.name, None, "k", N)),
        "settle/cancel_held": Calls(600, (deep.name, seqs, [str(uuid4())] * N, [None] * N)),
        "user_events/users_of": Calls(1_800, (deep.name, seqs)),
    }


def of_dead_letters(world: World) -> dict[str, Calls]:
    busy, dead = world.topics["busy"], world.topics["dead"]
    after = BEGAN + timedelta(milliseconds=OUT // 2)
    seqs = list(range(OUT // 2, OUT // 2 + 2 * N, 2))
    rare = (None, "rare", None, None, 20 * N, N, None)
    places = [{"topic": "busy", "topic_id": busy.id, "seq": n, "id_topic": busy.id, "id_seq": n} for n in seqs]
    nobody: list[str] = []
    return {
        "counts/survey": Calls(
            300, (["busy"], [busy.sequence], [busy.id], ["dead"], N, 5_000), indexes={"jobs_failures", "jobs_pkey"}
        ),
        "dead_letters/failure_places": Calls(25, ("dead", None, 1_000), indexes={"jobs_failures"}),
        "dead_letters/failures": Calls(1_500, ("busy", "dead", EVER, 1_000, 5_000, 20), indexes={"jobs_failures"}),
        "dead_letters/purge_cluster": Calls(
            2_500, ("dead", "busy", "0" * 16, EVER, 0, NEVER, N), indexes={"jobs_failures", "jobs_pkey"}
        ),
        "jobs/canary": Calls(1_400, (json.dumps(places),), indexes={"jobs_pkey", "jobs_first"}),
        "jobs/find_dead": Calls(400, ("dead", dead.id, after, 0, NEVER, "busy", nobody, *rare), indexes={"jobs_dead"}),
        "jobs/find_failed": Calls(
            400, ("busy", busy.id, after, 0, NEVER, None, nobody, *rare), indexes={"jobs_finished"}
        ),
        "jobs/find_out": Calls(1_400, ("busy", busy.id, seqs, nobody), indexes={"jobs_pkey", "jobs_first"}),
        "jobs/requeue": Calls(
            5_000, ("dead", dead.id, seqs, "busy", nobody, 0)
        ),  # a function, whose plans are not shown
        "jobs/sweep_dead": Calls(800, ("dead", timedelta(days=0), N), indexes={"jobs_dead"}),
        "kernel/find_letters": Calls(800, ([busy.id] * N, seqs), indexes={"jobs_first"}),
        "tenants/tenant_stats": Calls(
            12_000,
            ("busy", "", N, None, 5_000, False, 0, "dead", [], [], [], []),
            indexes={"jobs_failures", "jobs_ready", "jobs_due", "jobs_blocked"},
        ),
    }


def of_tables(world: World) -> dict[str, Calls]:
    kept, logged, ids = world.topics["kept"], world.topics["log"], [one.id for one in world.topics.values()]
    users, seqs, now = [f"u{n}" for n in range(N)], list(range(1_000, 1_000 + N)), datetime.now(UTC)
    minute, long = timedelta(minutes=1), timedelta(hours=2)
    nothing: list[list[object]] = [[]] * 3
    none = [[0] * len(ids)] * 4
    deletion = logged.name, logged.id, 10**6
    return {
        "archive/archive_overdue": Calls(400, ("", 0, 500, 7, False), days=99),  # it looks into each
        "archive/count_archive": Calls(40, (kept.name, kept.id, 0, N), days=4),  # today, and those ahead
        "archive/delete_archived": Calls(800, (kept.name, kept.id, EVER, world.middle, N)),
        "archive/page_archive": Calls(30, (kept.name, kept.id, 0, world.middle, 0, N, 0, 2**40)),
        "archive/replay": Calls(
            900, (*(kept.name, kept.id, kept.sequence, None, world.run.until_time, world.middle, 0, N, 2**40, 0),)
        ),
        "claim/peek_tokens": Calls(10, (LIMITED.id, 1_000)),
        "claim/return_tokens": Calls(15, (LIMITED.id, 5, 1_000)),
        "claim/take_tokens": Calls(15, (LIMITED.id, 5, 1_000)),
        "counts/fold": Calls(15, ([LIMITED.id], [world.mark], 2**62)),
        "counts/read_jobs": Calls(8, (logged.name, 0, 1_000, N, 2**20, [], 10_000, True, True, True)),
        "counts/state": Calls(50, ([logged.name], [logged.id], [logged.sequence], 1)),
        "enqueue/depth": Calls(15, (LIMITED.id, world.mark)),
        "enqueue/lock_depth": Calls(3, (LIMITED.id,)),
        "logs/append_records": Calls(
            1_100,
            (
                *(logged.name, logged.id, [b"x" * 200] * N, *nothing, [N], [200 * N], [None]),
                *(RECORDS, 0, False, 0, 0),
            ),
        ),
        "logs/delete_records": Calls(60, [(*deletion, "b", None, "", 0, 5_000), (*deletion, None, "a:", "", 0, 5_000)]),
        "logs/log_states": Calls(8, ([logged.name], [logged.id], [0], 10_000)),
        "logs/newest": Calls(20, ([logged.name], [logged.id], [logged.id], [logged.sequence])),
        "logs/read_records": Calls(
            40,
            [(logged.name, logged.id, after, N, 2**20, [], 10_000, 0, True, True, True) for after in (0, 11_500)],
        ),
        "schedules/due": Calls(10, (BEGAN, 10), indexes={"schedules_due"}),
        "schedules/settle": Calls(
            40, (["s0"], [BEGAN], [BEGAN], [1], [BEGAN], [1], ["code"], ["text"]), indexes={"schedules_pkey"}
        ),
        "schedules/take": Calls(15, ("t", ["s0", "s1"], BEGAN, 2), indexes={"schedules_pkey"}),
        "settle/completed": Calls(3_000, ("some", 1, seqs, [str(uuid4())] * N)),
        "settle/find_result": Calls(60, ("some", 1, 4_711)),
        # As it was, and to be written.
        "stats/depths_write": Calls(
            250, [(ids, *none[:2], [scheduled] * len(ids), *none[3:], timedelta(0)) for scheduled in (0, 1)]
        ),
        "stats/flows": Calls(300, (ids, 60)),
        "stats/topic_depths": Calls(
            10 * STEPS, [(ids[0], now - STEPS * step, STEPS, step, UNSEEN) for step in (minute, long)]
        ),  # a walk down two trees of three levels, and the row
        "user_events/read_user_events": Calls(32, ("u7", 0, 16)),
        "user_events/send_user_events": Calls(1_700, (users, ["e"] * N, ["7"] * N, 50)),
        "user_events/sweep_user_events": Calls(820, ("5 minutes", 25_000, N)),
        "user_events/user_events_after": Calls(800, (users, [49_000] * N)),
        "user_events/user_events_from": Calls(14, ("u7", 25_007)),
    }


async def of_keys(world: World) -> dict[str, Calls]:
    keyed, grouped, deep = world.topics["keyed"], world.topics["grouped"], world.topics["deep"]
    leased = await world.db.fetch(
        "SELECT seq, lease_id::text AS lease FROM holdfast.jobs WHERE topic = $1 AND state = 'leased' "
        "AND visible_at > now() ORDER BY seq LIMIT $2",
        keyed.name,
        N,
    )
    seqs, leases, none = [one["seq"] for one in leased], [one["lease"] for one in leased], [None] * len(leased)
    known = "SELECT dedupe_id FROM holdfast.dedupe WHERE topic_id = $1 ORDER BY tenant, grp, dedupe_id LIMIT $2"
    ids = [f"new{n}" for n in range(0, N, 2)]
    ids += [one["dedupe_id"] for one in await world.db.fetch(known, deep.id, N // 2)]
    columns: list[list[object]] = [[]] * 10
    names = [[f"{letter}{n}" if n % 2 else f"new{n}" for n in range(N)] for letter in "kg"]
    nothing = [None] * N

    def batch_of(topic: Topic, count: int = N) -> Arguments:
        return topic.name, topic.id, topic.sequence, [b"y" * 200] * count, *columns

    return {
        "claim/nack_keyed": Calls(
            8_000, (keyed.name, seqs, leases, none, [0] * len(seqs), none, [0] * len(seqs), None)
        ),
        "enqueue/enqueue_deduped": Calls(
            5_000,
            (
                *(*batch_of(deep, len(ids)), [None] * len(ids), 0, True, 3, [], ids),
                *(60_000, [len(ids)], ["batch"], 60_000),
            ),
        ),
        "enqueue/enqueue_keyed": Calls(
            7_000,
            [
                (*batch_of(keyed), names[0], 0, True, 3, []),
                (*batch_of(grouped), nothing, 0, True, 3, names[1]),
            ],
        ),
        "enqueue/sweep_dedupe": Calls(900, (N,)),
        "settle/delete_key": Calls(60, (keyed.name, "", "k1", 1_000), indexes={"jobs_keyed", "jobs_pkey"}),
        "settle/supersede": Calls(
            2_400, (keyed.name, "", "", 0, N, True, 3), indexes={"jobs_keyed", "jobs_pkey", "jobs_pending_key"}
        ),
    }


async def all_broken(world: World, more: dict[str, int] | None = None) -> dict[str, str]:
    """Each statement that costs more than it may, and how; `more` pages are allowed. What it changes is undone."""
    # Where the replay is: in the middle.
    await world.db.execute("UPDATE holdfast.replays SET after_time = $1, after_seq = 0", world.middle)
    found = {}
    for name, calls in (await all_calls(world)).items():
        if name not in world.prepared:
            await plans.prepare(world.db, NAMED[name])
            world.prepared.add(name)
        for arguments in calls.arguments if isinstance(calls.arguments, list) else [calls.arguments]:
            await plans.explain(world.db, NAMED[name], *arguments)  # reads pages in, and sets hint bits
            plan = await plans.explain(world.db, NAMED[name], *arguments)
            if why := broken(calls, plan, (more or {}).get(name, 0)):
                found[name] = why
    return found


def broken(calls: Calls, plan: Plan, more: int) -> str:
    """How a plan costs more than it may; empty if it does not."""
    pages, bound = plan.all_pages(), calls.pages + more
    scans = {node.get("Relation Name", "") for node in plan.nodes() if node["Actual Loops"]}
    days = {table for table in scans if table.startswith("archive_")}
    indexes = {index for table in {index.partition("_")[0] for index in calls.indexes} for index in plan.indexes(table)}
    reasons = {
        f"has {plan.kinds()}": bool(plan.kinds() & {"Seq Scan", "Hash Join", "Merge Join", "Bitmap Heap Scan"}),
        f"walks {indexes}": not indexes <= calls.indexes or bool(calls.indexes) != bool(indexes),
        f"finds what it changes by {plan.changed_by()}": not plan.changed_by() <= {"Tid Scan"},
        f"sorts {plan.sorted_rows()} rows": plan.sorted_rows() > MOST_SORTED,
        f"reads {sorted(days)}": len(days) > calls.days,
        f"looks at {pages} pages, {bound} allowed": pages > bound,
        f"looks at {pages} pages, and has found nothing": pages < calls.pages // 10,
    }
    return "; ".join(reason for reason, holds in reasons.items() if holds)


async def test_plans_made_for_empty_tables_stay_good(new_database: NewDatabase) -> None:
    async with new_world(new_database) as world:
        assert await all_broken(world) != {}, "there is nothing yet"
        async with held_snapshot(world.url):
            await world.fill()
            assert await all_broken(world, {"dead_letters/failures": 2 * COUNTED, "counts/survey": 5_000}) == {}
            for _ in range(500):  # takes leave versions behind, some ten a second
                await limits.take_tokens(world.db, LIMITED, 1, 1_000)
            plan = await plans.explain(world.db, NAMED["claim/take_tokens"], LIMITED.id, 5, 1_000)
            assert plan.pages() < 100
        done = await replays.replay(world.db, world.topics["kept"], world.run, BatchLimits(N), 0)
        assert done is None, "it is in the middle, and not where it began"
        await world.db.execute("VACUUM ANALYZE")
        assert await all_broken(world) == {}


async def test_a_state_by_its_name_costs_nothing(db: Session) -> None:
    """The planner puts the expression in the function's place."""
    await db.execute("SET plan_cache_mode = force_generic_plan")
    for name in ("explain_job", "show_jobs", "find_jobs", "list_jobs", "change_job", "group_head", "purge"):
        statement = statements.named(name)
        await plans.prepare(db, statement)
        call = plans.call(statement, [None] * len(statement.parameters))
        plan = "\n".join(row[0] for row in await db.fetch(f"EXPLAIN (VERBOSE) {call}"))
        assert "THEN 'leased'::text" in plan, name
        assert "state_now" not in plan, name


async def test_a_look_reads_each_page_of_the_ledger_once_at_most(new_database: NewDatabase) -> None:
    url = await new_database()
    db: Session = await asyncpg.connect(url, server_settings={"timezone": "UTC", **PLANNER})
    try:
        queue = await make(url, "q")
        [seq] = await put(db, queue, batch())
        # Every topic has jobs 0 and 1, so no filter of the BRIN leaves a range out; and nothing is summarised yet.
        await db.execute("""
            INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries)
            SELECT 'another', 1000000 + n / 10, n % 10, 'enqueued', 0 FROM generate_series(1, 100000) n
        """)
        pages = await db.fetchval(
            "SELECT sum(pg_relation_size(inhrelid)) / 8192 FROM pg_inherits "
            "WHERE inhparent = 'holdfast.lease_events'::regclass"
        )
        for look in LOOKS:
            assert pages < await looked_at(db, look.format(name="q", id=queue.topic.id, seq=seq)) < 2 * pages
        # Of a topic that was made after all that, only what is not summarised yet is read.
        young = await make(url, "young")
        [seq] = await put(db, young, batch())
        await db.execute(
            "SELECT brin_summarize_new_values(inhrelid) FROM pg_inherits "
            "WHERE inhparent = 'holdfast.lease_events_read'::regclass"
        )
        for look in LOOKS:
            assert await looked_at(db, look.format(name="young", id=young.topic.id, seq=seq)) < pages / 4
    finally:
        await db.close()


async def looked_at(db: Session, look: str) -> int:
    """How many pages a look at one job looked at, those of the function's own statements included."""
    assert len(await db.fetch(look)) == 1
    [plan] = json.loads(await db.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {look}"))
    return Plan(plan["Plan"]).all_pages()
