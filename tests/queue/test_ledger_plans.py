"""What a look at one job's events costs beside those of all the others."""

from __future__ import annotations

import json
from collections.abc import Awaitable, Callable
from typing import Any

import asyncpg
import pytest

from app.base.db import schema
from app.base.db.pool import PLANNER
from app.kernel.topics import store
from app.kernel.topics.policy import DEFAULTS, AskedSettings, Policy, resolve
from tests.queue.calls import Session, batch, put

OTHERS = 100_000
# Every topic has jobs 0 and 1, so no filter of the BRIN leaves a range out; and nothing is summarised yet.
EVENTS = f"""
INSERT INTO holdfast.lease_events (topic, topic_id, seq, event, deliveries)
SELECT 'another', 1000000 + n / 10, n % 10, 'enqueued', 0 FROM generate_series(1, {OTHERS}) n
"""
LOOKS = (
    "SELECT * FROM holdfast.job_events({id}, {seq}, '-infinity', 100)",
    "SELECT * FROM holdfast.last_events({id}, {seq}, 100)",
    "SELECT * FROM holdfast.recent_events({id}, 60)",
    "SELECT * FROM holdfast.jobs_as_of('{name}', {id}, clock_timestamp(), 'ready', {seq} - 1, 100)",
)


@pytest.mark.parametrize("look", LOOKS)
async def test_a_look_reads_each_page_of_the_ledger_once_at_most(
    look: str, new_database: Callable[[], Awaitable[str]]
) -> None:
    url = await new_database()
    await schema.upgrade(url)
    db: Session = await asyncpg.connect(url, server_settings={"timezone": "UTC", **PLANNER})
    try:
        queue = await make(url, "q")
        (seq,) = await put(db, queue, batch(1))
        await db.execute(EVENTS)
        pages = await db.fetchval(
            "SELECT sum(pg_relation_size(inhrelid)) / 8192 FROM pg_inherits "
            "WHERE inhparent = 'holdfast.lease_events'::regclass"
        )
        asked = look.format(name="q", id=queue.topic.id, seq=seq)
        assert len(await db.fetch(asked)) == 1
        assert pages < await looked_at(db, asked) < 2 * pages
        # Of a topic that was made after all that, only what is not summarised yet is read.
        young = await make(url, "young")
        (seq,) = await put(db, young, batch(1))
        await db.execute(
            "SELECT brin_summarize_new_values(inhrelid) FROM pg_inherits "
            "WHERE inhparent = 'holdfast.lease_events_read'::regclass"
        )
        asked = look.format(name="young", id=young.topic.id, seq=seq)
        assert len(await db.fetch(asked)) == 1
        assert await looked_at(db, asked) < pages / 4
    finally:
        await db.close()


async def make(url: str, name: str) -> Policy:
    async with asyncpg.create_pool(url, min_size=1, max_size=1) as pool:
        await store.put(pool, name, resolve(name, AskedSettings(type="queue")))
        policy = await store.get(pool, name, DEFAULTS)
    assert policy is not None
    return policy


async def looked_at(db: Session, asked: str) -> int:
    """How many pages a statement looked at, those of the function's own statements included."""
    (plan,) = json.loads(await db.fetchval(f"EXPLAIN (ANALYZE, BUFFERS, FORMAT JSON) {asked}"))
    node: dict[str, Any] = plan["Plan"]
    return int(node["Shared Hit Blocks"]) + int(node["Shared Read Blocks"])
