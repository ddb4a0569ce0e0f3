"""Whatever plan PostgreSQL makes, a hot statement does what it is to do: to so many jobs and no more, to the right
ones, and to each once. A limit in a sub-select can be overrun by a plan that runs the sub-select once a row.

Two tables whose statistics are wrong, one analyzed while it was empty, one while it was three times as full; each
statement planned anew for combinations of the planner's switches below, as a generic plan or as a custom one, with none
of the service's own planner settings. What it did is then looked at, and undone.
"""

from __future__ import annotations

import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from typing import Final

import pytest

from tests.queue import plans, statements
from tests.queue.calls import Session
from tests.queue.statements import Statement
from tests.queue.test_plans import PROMISES, World, new_world

NewDatabase = Callable[[], Awaitable[str]]
N: Final = 10
JOBS: Final = 1_000
SWITCHES: Final = ("enable_hashagg", "enable_sort", "enable_hashjoin", "enable_mergejoin", "enable_material")
PLANS: Final = ("force_generic_plan", "force_custom_plan")

# What a statement changes and deletes of JOBS jobs when it is called for N, and what the ledger has of it. A hundredth
# of the jobs each has a lease that ended without a delivery left, has outlived its time, and so on (test_plans.FILL).
DOES: Final = {
    "claim": (N, 0, N),  # all fresh, of the first lane
    "claim_tagged": (JOBS // 200, 0, JOBS // 200),  # all that have the tag
    "claim_endless": (2 * N, 0, 2 * N),  # and N that are due, of the second
    "ack": (0, N, N),
    "ack_and_record": (0, N, N),
    "nack": (N, 0, N),
    "extend": (N, 0, N),
    "bury": (N, N, 2 * N),
    "fail": (N, 0, N),
    "inter": (0, N, N),
    "expire": (N, 0, N),
    "evict": (0, N // 3, N // 3),
    "sweep_finished": (0, N, N),
    "enqueue": (N, 0, N),
    "enqueue_keyed": (N, 0, N),
    "hook": (N, 0, 0),
    "requeue": (N, 0, N),
    "purge": (0, N, N),
    "delete_jobs": (0, N, N),
    "cancel_jobs": (0, N, N),
}
# Further times for each job, so that what comes first is said by more than the place of its row.
SPREAD: Final = """
UPDATE holdfast.jobs j
SET visible_at = visible_at + x.more, updated_at = updated_at + x.more, expires_at = expires_at + x.more
FROM (SELECT topic, seq, seq * interval '1 us' AS more FROM holdfast.jobs) x WHERE (j.topic, j.seq) = (x.topic, x.seq)
"""
# Seqs that a statement draws are others each time, as a sequence is not set back.
DID: Final = f"""
SELECT (SELECT array_agg(x ORDER BY x) FROM (
            SELECT (topic, CASE WHEN topic = 'busy' AND seq <= {JOBS} THEN seq END, state, deliveries)::text AS x
            FROM holdfast.jobs WHERE xmin = pg_current_xact_id()::xid) j) AS changed,
       (SELECT array_agg(x ORDER BY x) FROM (
            SELECT (event, topic, CASE WHEN topic = 'busy' AND seq <= {JOBS} THEN seq END, deliveries)::text AS x
            FROM holdfast.lease_events) e) AS events,
       (SELECT (count(*), sum(seq), sum(seq * seq))::text FROM holdfast.jobs
        WHERE topic = 'busy' AND seq <= {JOBS}) AS kept,
       (SELECT count(*) FROM holdfast.jobs WHERE topic = 'busy' AND seq <= {JOBS}) AS here,
       (SELECT (sum(ready), sum(scheduled), sum(leased), sum(failed), sum(expired), sum(bytes))::text
        FROM holdfast.tallies) AS tallies
"""
OVERRUN: Final = Statement(
    "queue",
    "overrun",
    """
    UPDATE holdfast.jobs SET state = 'expired' WHERE (topic, seq) IN (
        SELECT j.topic, j.seq FROM holdfast.jobs j WHERE j.topic = 'busy' AND j.state = 'ready'
        ORDER BY j.position LIMIT $1::integer FOR UPDATE SKIP LOCKED)
    """,
)


def cells() -> Iterator[str]:
    """Settings for one transaction: half of all combinations, in which each of any five of the six is there."""
    for switches in itertools.product(("on", "off"), repeat=len(SWITCHES)):
        given = dict(zip(SWITCHES, switches, strict=True)) | {
            "enable_seqscan": "on",
            "enable_bitmapscan": "on",
            "plan_cache_mode": PLANS[switches.count("off") % 2],
        }
        yield "".join(f"SET LOCAL {name} = {value};" for name, value in given.items())


@pytest.fixture(params=["analyzed while empty", "analyzed while full"])
async def world(request: pytest.FixtureRequest, new_database: NewDatabase) -> AsyncIterator[World]:
    async with new_world(new_database) as world:
        if request.param == "analyzed while empty":
            await world.db.execute("ANALYZE")
            await world.fill(JOBS)
            await world.db.execute(SPREAD)
        else:
            await world.fill(3 * JOBS)
            await world.db.execute(SPREAD)
            await world.db.execute("ANALYZE")
            await world.db.execute("DELETE FROM holdfast.jobs WHERE seq > $1", JOBS)
        yield world


async def calls(world: World) -> dict[str, tuple[Statement, tuple[object, ...]]]:
    """Each statement, prepared, and its arguments."""
    topic = world.busy.topic
    failed = await world.db.fetchval(
        "SELECT array_agg(seq ORDER BY seq) FROM holdfast.jobs WHERE topic = 'busy' AND state = 'failed' AND seq <= $1",
        N // 3 * 100 + 99,
    )
    more: dict[str, tuple[object, ...]] = {
        "enqueue_keyed": (
            *(topic.name, topic.id, topic.sequence, [b"{}"] * N, *([[]] * 10), [f"k{n}" for n in range(N)]),
            *(0, True, 3, []),
        ),
        "requeue": (topic.name, topic.id, failed[:N], None, [], 0),
        "purge": (topic.name, 100, JOBS, ["ready"], N + 1),  # one of them has outlived its time
        "delete_jobs": (topic.name, 100, JOBS, None, None, N),
        "cancel_jobs": (topic.name, topic.id, list(range(103, 103 + N))),
    }
    found = {}
    for name in DOES:
        statement = statements.named(name.partition("_endless")[0])
        if name == "claim_endless":
            ended = await world.arguments(statement.name, count=2 * N)
            found[name] = statement, (*ended[:12], None, *ended[13:])
            continue
        await plans.prepare(world.db, statement)
        found[name] = statement, more[name] if name in more else await world.arguments(name, count=N)
    return found


async def done(db: Session, cell: str, statement: Statement, arguments: tuple[object, ...]) -> tuple[object, ...]:
    """What it does with plans that are made under these settings: how much, as in DOES; how many rows it answers; and
    all of it."""
    await db.execute(f"BEGIN; {cell} DISCARD PLANS")
    try:
        answered = await plans.rows(db, statement, *arguments)
        row = await db.fetchrow(DID)
    finally:
        await db.execute("ROLLBACK")
    assert row is not None
    counts = len(row["changed"] or ()), JOBS - row["here"], len(row["events"] or ())
    return counts, answered, tuple(row)


def test_those_that_have_a_promised_plan_are_among_them() -> None:
    assert {name for name, promise in PROMISES.items() if promise.changes} <= DOES.keys()


async def test_each_does_the_same_by_every_plan(world: World) -> None:
    every = await calls(world)
    first: dict[str, tuple[object, ...]] = {}
    wrong: list[str] = []
    for cell in cells():
        for name, (statement, arguments) in every.items():
            did = await done(world.db, cell, statement, arguments)
            if did[0] != DOES[name] or first.setdefault(name, did) != did:
                wrong.append(f"{name}: {did[:2]} under {cell}")
    assert wrong == []


async def test_a_limit_in_a_subselect_is_overrun_in_some_of_them(world: World) -> None:
    """The control: were it kept in all of them, they would show nothing."""
    await plans.prepare(world.db, OVERRUN)
    counts = {(await done(world.db, cell, OVERRUN, (N,)))[0] for cell in cells()}
    assert counts > {(N, 0, 0)}
