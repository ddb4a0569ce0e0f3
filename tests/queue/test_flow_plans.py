"""What became of all topics' jobs in the last hour is read at a cost that does not grow with the days that are kept."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from app.db import schema
from app.db.pool import PLANNER
from tests.queue import plans, statements
from tests.queue.calls import Session

TOPICS, MINUTES = 20, 60
FILL = f"""
INSERT INTO holdfast.topic_stats (topic_id, minute, topic, tenant, enqueued)
SELECT t, date_trunc('minute', now()) - m * interval '1 min', 't' || t, '', 1
FROM generate_series(1, {TOPICS}) t, generate_series(0, 4999) m
"""


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
