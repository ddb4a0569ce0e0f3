"""What became of jobs, and what queues held, is read at a cost that does not grow with the days that are kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import datetime, timedelta
from typing import Final

import asyncpg
import pytest

from app.base.db import schema
from app.base.db.pool import PLANNER
from app.features.stats.rows import UNSEEN
from tests.queue import plans, statements
from tests.queue.calls import Session

TOPICS, MINUTES = 20, 60
FILL = f"""
INSERT INTO holdfast.topic_stats (topic_id, minute, topic, tenant, enqueued)
SELECT t, date_trunc('minute', now()) - m * interval '1 min', 't' || t, '', 1
FROM generate_series(1, {TOPICS}) t, generate_series(0, 4999) m
"""
STEPS: Final = 100
# Each has changed every minute of five days, and was looked at each time.
HELD = """
INSERT INTO holdfast.depths (topic_id, minute, ready, in_flight, scheduled, blocked)
SELECT t.id, date_trunc('minute', now()) - m * interval '1 min', m, 0, 0, 0
FROM holdfast.topics t, generate_series(0, 7999) m
"""
LOOKS = "INSERT INTO holdfast.depth_looks SELECT DISTINCT minute FROM holdfast.depths"
QUEUES = f"INSERT INTO holdfast.topics (name, type) SELECT 't' || t, 'queue' FROM generate_series(1, {TOPICS}) t"


@pytest.mark.parametrize("analyzed", [False, True])
async def test_it_costs_an_hour_of_each_topic(analyzed: bool, new_database: Callable[[], Awaitable[str]]) -> None:
    url = await new_database()
    await schema.upgrade(url)
    db: Session = await asyncpg.connect(url, server_settings={"timezone": "UTC", **PLANNER})
    try:
        statement = statements.named("flows")
        await plans.prepare(db, statement)
        await db.execute(FILL)
        if analyzed:
            await db.execute("ANALYZE holdfast.topic_stats")
        for _ in range(7):  # the sixth may be the first with a generic plan
            plan = await plans.explain(db, statement, list(range(1, TOPICS + 1)), MINUTES)
            # A row a minute, most of them on pages of their own as the minutes of all topics come together.
            assert plan.root["Shared Hit Blocks"] + plan.root["Shared Read Blocks"] <= 3 * TOPICS * MINUTES
    finally:
        await db.close()


@pytest.mark.parametrize("analyzed", [False, True])
async def test_what_a_queue_held_costs_two_looks_a_step(
    analyzed: bool, new_database: Callable[[], Awaitable[str]]
) -> None:
    url = await new_database()
    await schema.upgrade(url)
    db: Session = await asyncpg.connect(url, server_settings={"timezone": "UTC", **PLANNER})
    try:
        read = statements.named("topic_depths")
        [write] = [one for one in statements.every() if str(one) == "stats/depths_write"]
        for statement in (read, write):
            await plans.prepare(db, statement)
        for fill in (QUEUES, HELD, LOOKS):
            await db.execute(fill)
        if analyzed:
            await db.execute("ANALYZE holdfast.depths, holdfast.depth_looks")
        now: datetime = await db.fetchval("SELECT now()")
        ids: list[int] = await db.fetchval("SELECT array_agg(id ORDER BY id) FROM holdfast.topics")
        nothing = [[0] * TOPICS] * 4
        for _ in range(7):
            for step in (timedelta(minutes=1), timedelta(hours=2)):
                plan = await plans.explain(db, read, ids[0], now - STEPS * step, STEPS, step, UNSEEN)
                # A walk down two trees of three levels, and the row.
                assert plan.root["Shared Hit Blocks"] + plan.root["Shared Read Blocks"] <= 10 * STEPS
            for scheduled, most in ((0, 10), (1, 20)):  # as it was; and to be written
                held = (*nothing[:2], [scheduled] * TOPICS, *nothing[3:])
                plan = await plans.explain(db, write, ids, *held, timedelta(0))
                assert plan.root["Shared Hit Blocks"] + plan.root["Shared Read Blocks"] <= most * TOPICS
    finally:
        await db.close()
