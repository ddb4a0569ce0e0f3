"""What became of a topic's jobs, minute by minute: reading topic_stats. docs/stats.md."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta

import msgspec

from app.db import sql
from app.queue.model import Connection, Topic

_READ = sql.load(__package__, "topic_stats")
_FLOWS = sql.load(__package__, "flows")
_UNTOLD = sql.load(__package__, "untold")
_TOLD = sql.load(__package__, "topic_stats_told")


class Step(msgspec.Struct, frozen=True):
    """What became of a topic's jobs from `at_ms` on, for a step. Percentiles in ms, by nearest rank; None: of none."""

    at_ms: int
    enqueued: int
    completed: int
    failed: int
    retried: int
    dead_lettered: int
    expired: int
    cancelled: int
    wait_count: int
    wait_p50_ms: int | None
    wait_p95_ms: int | None
    wait_p99_ms: int | None
    processing_count: int
    processing_p50_ms: int | None
    processing_p95_ms: int | None
    processing_p99_ms: int | None


class Flow(msgspec.Struct, frozen=True):
    """What became of a topic's jobs in minutes in which anything did, by time: each `ago` so many minutes before the
    one that runs."""

    topic_id: int
    ago: Sequence[int]
    enqueued: Sequence[int]
    claimed: Sequence[int]
    completed: Sequence[int]
    failed: Sequence[int]
    dead_lettered: Sequence[int]


async def flows(db: Connection, topics: Sequence[Topic], minutes: int) -> dict[int, Flow]:
    """What became of topics' jobs in so many minutes, the one that runs included, by topic id; of which nothing is
    known it has none."""
    rows = await db.fetch(_FLOWS, [topic.id for topic in topics], minutes)
    return {row["topic_id"]: Flow(**dict(row)) for row in rows}


async def untold(db: Connection) -> int:
    """How many minutes are not told yet, the one that runs included; a day's at most."""
    minutes: int = await db.fetchval(_UNTOLD)
    return minutes


async def told(db: Connection) -> tuple[int, datetime]:
    """Up to when minutes are told, in ms since 1970, and the database's time."""
    row = await db.fetchrow(_TOLD)
    assert row is not None, "it is made with the table"
    return row["filled_to_ms"], row["at"]


async def read(
    db: Connection, topic: Topic, window: tuple[datetime, datetime], step: timedelta, tenant: str | None = None
) -> list[Step]:
    """Steps of a half-open window in which anything was, by time; of one tenant, or of all."""
    return [Step(**dict(row)) for row in await db.fetch(_READ, topic.id, *window, step, tenant)]
