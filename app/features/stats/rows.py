"""What became of a topic's jobs, minute by minute, and what it held: reading topic_stats and depths. docs/stats.md."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Final

import msgspec

from app.base.db import sql
from app.kernel.model import Connection, Topic

UNSEEN: Final = timedelta(minutes=5)  # where nobody looked for so long, it is not known what a queue held

_SQL: Final = sql.load_all(__package__)
_READ = _SQL["topic_stats"]
_FLOWS = _SQL["flows"]
_UNTOLD = _SQL["untold"]
_TOLD = _SQL["topic_stats_told"]
_DEPTHS = _SQL["topic_depths"]


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


class Held(msgspec.Struct, frozen=True):
    """What a queue held at the end of a step that began at `at_ms`, or holds in the one that is not over."""

    at_ms: int
    ready: int
    in_flight: int
    scheduled: int
    blocked: int


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


async def depths(db: Connection, topic: Topic, window: tuple[datetime, datetime], step: timedelta) -> list[Held]:
    """Steps of a half-open window of whole steps of which it is known what the queue held, by time."""
    since, before = window
    rows = await db.fetch(_DEPTHS, topic.id, since, (before - since) // step, step, UNSEEN)
    return [Held(**dict(row)) for row in rows]
