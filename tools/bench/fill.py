"""Depth: rows put into the jobs table in bulk, and the state of the table between measurements."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress

import asyncpg

from app.kernel.enqueue import producer
from app.kernel.model import Batch, Budget, Lane, Topic
from tools.bench.bench import Bench, say
from tools.bench.load import data_of

CHUNK = 500_000
GROUPED = 5_000  # jobs with groups of one statement
BULK_BYTES = 256  # of the data of rows that are never claimed: five million large ones would fill the disk

# As enqueue.sql writes them, with their tally, but without their events. Scheduled ones are spread over a day that
# begins in an hour.
_INSERT = """
WITH tally AS (
    INSERT INTO holdfast.tallies (topic_id, ready, scheduled, blocked, bytes)
    SELECT $2, n * ($4 = 'ready')::integer, n * ($4 = 'scheduled')::integer, n * ($4 = 'blocked')::integer,
           n * octet_length(convert_to($5, 'UTF8')) FROM (SELECT $6::bigint AS n) many
)
INSERT INTO holdfast.jobs (topic, topic_id, seq, position, state, visible_at, created_at, updated_at, payload)
SELECT $1, $2, s.seq, s.seq, $4::text::holdfast.job_state,
       now() + CASE WHEN $4 = 'scheduled' THEN interval '1 hour' + random() * interval '24 hours' ELSE '0' END,
       now(), now(), convert_to($5, 'UTF8')
FROM (SELECT nextval($3::oid::regclass) AS seq FROM generate_series(1, $6)) s
"""


async def fill(bench: Bench, topic: Topic, count: int, state: str = "ready", *, bulk: bool = False) -> None:
    """So many more jobs in a state, all in one lane. `bulk`: never to be claimed, with small data.

    Statistics are left as they fall: nothing is analyzed.
    """
    await producer.add_lanes(bench.pools.hot, topic, [Lane("", 0)])
    data = data_of(min(bench.payload, BULK_BYTES) if bulk else bench.payload)
    for begin in range(0, count, CHUNK):
        part = min(CHUNK, count - begin)
        await bench.db.execute(_INSERT, topic.name, topic.id, topic.sequence, state, data, part, timeout=600)
        if count > CHUNK:
            say(f"{topic.name}: {begin + part:,} of {count:,} {state}")


async def fill_groups(bench: Bench, topic: Topic, groups: int, each: int, *, delay_ms: int | None = None) -> None:
    """So many groups of so many jobs, enqueued as by anybody; the first one of each with a delay, if one is given."""
    await producer.add_lanes(bench.pools.hot, topic, [Lane("", 0)])
    data = data_of(min(bench.payload, BULK_BYTES)).encode()
    for turn in range(each):
        for begin in range(0, groups, GROUPED):
            names: list[str | None] = [f"g{n}" for n in range(begin, min(begin + GROUPED, groups))]
            delays: list[int | None] = [delay_ms] * len(names) if delay_ms and turn == 0 else []
            batch = Batch(payloads=[data] * len(names), groups=names, delays_ms=delays)
            await producer.upsert(bench.pools.hot, topic, Budget(ends=False, max_deliveries=0), batch, ttl_ms=0)


async def top_up(bench: Bench, topic: Topic, count: int) -> None:
    """As many more ready jobs as it takes to have so many."""
    ready = await bench.db.fetchval(
        "SELECT count(*) FROM holdfast.jobs WHERE topic = $1 AND state = 'ready'", topic.name, timeout=600
    )
    await fill(bench, topic, count - ready)


async def settle(bench: Bench) -> None:
    """Write out what a filling left behind, so that no checkpoint of it falls into what is measured next."""
    with suppress(asyncpg.InsufficientPrivilegeError):
        await bench.db.execute("CHECKPOINT", timeout=600)


async def clean(bench: Bench) -> None:
    """Take away what earlier measurements left dead, so that the next begins as they did."""
    await bench.db.execute("VACUUM holdfast.jobs", timeout=600)
    await settle(bench)


async def empty(bench: Bench, topic: Topic) -> None:
    """Delete all that a topic has."""
    await bench.db.execute("DELETE FROM holdfast.jobs WHERE topic = $1", topic.name, timeout=600)
    for table in ("tallies", "groups", "freed_groups"):
        await bench.db.execute(f"DELETE FROM holdfast.{table} WHERE topic_id = $1", topic.id, timeout=600)
    await clean(bench)


@asynccontextmanager
async def old_snapshot(bench: Bench) -> AsyncIterator[None]:
    """A REPEATABLE READ transaction elsewhere that has read something and stays open."""
    holder = await asyncpg.connect(bench.url)
    try:
        async with holder.transaction(isolation="repeatable_read"):
            await holder.fetchval("SELECT count(*) FROM holdfast.topics")
            yield
    finally:
        await holder.close()
