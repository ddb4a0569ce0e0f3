"""What the archive's statements cost: what they answer or change, however many days and rows there are besides.

Rows are loaded in bulk, into days past: what is looked at here is how they lie there, not how they came.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta

import asyncpg
import pytest

from app.base.db.pool import PLANNER
from app.features.archive import replays
from app.features.archive.replays import Replay
from app.kernel.model import Topic
from app.kernel.topics import store
from app.kernel.topics.policy import DEFAULTS, AskedSettings, Policy, resolve
from tests.queue import plans, statements
from tests.queue.calls import Session
from tests.queue.statements import Statement
from tests.reapers.test_archive import past_days

N = 100  # rows a call
DAYS = 12
DAY_ROWS = 3_000  # of each of three topics
MOST = 2**40  # bytes
# Pages that a call for N rows may look at: about twice what was measured on 18.
BOUNDS = {"page_archive": 30, "count_archive": 40, "delete_archived": 800, "replay": 900, "archive_overdue": 400}
DAYS_READ = {"archive_overdue": 99, "count_archive": 4}  # days: it looks into each; today, and those ahead
ROWS = {"archive_overdue": 1}
FILL = """
INSERT INTO holdfast.archive (finished_at, topic, topic_id, seq, outcome, created_at, deliveries, priority, tenant,
                              payload)
SELECT date_trunc('day', now()) - (n / $1::integer) * interval '1 day' + (n % $1::integer) * interval '1 second',
       t.name, t.id, n, 'completed', now(), 1, 0, '', decode(repeat('ab', 100), 'hex')
FROM holdfast.topics t, generate_series(0, $1::integer * $2::integer - 1) n
"""


class World:
    """A database with three topics that have an archive of many days, and its statements prepared on one session."""

    def __init__(self, db: Session, policy: Policy) -> None:
        self.db = db
        self.topic: Topic = policy.topic

    async def pages(self, run: Replay, middle: datetime, *, filled: bool = True) -> dict[str, int]:
        """How many pages each statement looks at, for N rows at a time in the middle of the archive."""
        topic, ever = self.topic, datetime(2000, 1, 1, tzinfo=UTC)
        arguments: dict[str, tuple[object, ...]] = {
            "page_archive": (topic.name, topic.id, 0, middle, 0, N, 0, MOST),
            "count_archive": (topic.name, topic.id, 0, N),
            "delete_archived": (topic.name, topic.id, ever, middle, N),
            "replay": (topic.name, topic.id, topic.sequence, None, run.until_time, middle, 0, N, MOST, 0),
            "archive_overdue": ("", 0, 500, 7, False),
        }
        found = {}
        # Where the replay is: in the middle.
        await self.db.execute("UPDATE holdfast.replays SET after_time = $1, after_seq = 0", middle)
        for name, given in arguments.items():
            for _ in range(2):  # the first reads pages in, and sets hint bits
                plan = await plans.explain(self.db, named(name), *given)
            assert not plan.kinds() & {"Hash Join", "Merge Join", "Bitmap Heap Scan"}, name
            read = {node["Relation Name"] for node in plan.nodes() if node["Node Type"] == "Seq Scan"}
            assert not {table for table in read if table.startswith("archive")}, name
            assert plan.sorted_rows() <= N + 1, name
            scans = [node for node in plan.nodes() if node.get("Relation Name", "").startswith("archive_")]
            rows = max((node["Actual Rows"] * node["Actual Loops"] for node in scans), default=0)
            days = {node["Relation Name"] for node in scans if node["Actual Loops"]}
            if filled and (rows < ROWS.get(name, N) or len(days) > DAYS_READ.get(name, 2)):
                found[f"{name} meets {rows} rows in {sorted(days)}"] = 10**6
            found[name] = plan.pages()
        return found


def named(name: str) -> Statement:
    return next(s for s in statements.every() if s.name == name)


@asynccontextmanager
async def new_world(new_database: Callable[[], Awaitable[str]]) -> AsyncIterator[World]:
    url = await new_database()
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        for name in ("a", "busy", "c"):
            await store.put(pool, name, resolve(name, AskedSettings(type="queue", replayable=True)))
        policy = await store.get(pool, "busy", DEFAULTS)
    assert policy is not None
    db = await asyncpg.connect(url, server_settings={"timezone": "UTC", **PLANNER})
    try:
        await past_days(db, DAYS)
        for name in BOUNDS:
            await plans.prepare(db, named(name))
        yield World(db, policy)
    finally:
        await db.close()


@pytest.mark.parametrize("analyzed", [False, True])
async def test_it_costs_what_it_answers(analyzed: bool, new_database: Callable[[], Awaitable[str]]) -> None:
    async with new_world(new_database) as world:
        run = await replays.begin(world.db, world.topic, None, 0)
        assert run is not None
        middle = run.until_time.replace(hour=0, minute=30, second=0, microsecond=0) - timedelta(days=DAYS // 2)
        if not analyzed:
            for _ in range(7):  # plans are made, and kept, while there is nothing
                await world.pages(run, middle, filled=False)
        await world.db.execute(FILL, DAY_ROWS, DAYS)
        if analyzed:
            await world.db.execute("ANALYZE")
        found = await world.pages(run, middle)
        assert {name: pages for name, pages in found.items() if pages > BOUNDS.get(name, 0)} == {}
        done = await replays.replay(world.db, world.topic, run, replays.BatchLimits(N), 0)
        assert done is None, "it is in the middle, and not where it began"
