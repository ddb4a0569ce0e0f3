"""Reads a topic's statistics by minute, and its depth, from topic_stats and depths. docs/explain.md."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from app.base.db import sql
from app.kernel.model import Connection, Topic

UNSEEN: Final = timedelta(minutes=5)  # with no look at the queues for so long, it is not known what they held

_SQL: Final = sql.load_all(__package__)
_STEPS = _SQL["topic_stats"]
_FLOWS = _SQL["flows"]
_UNTOLD = _SQL["untold"]
_TOLD = _SQL["topic_stats_told"]
_DEPTHS = _SQL["topic_depths"]


class Durations(msgspec.Struct, frozen=True):
    """How many, and percentiles by nearest rank in whole ms; null: of none. Exact where a step is one minute of one
    tenant, else up to an eighth too high."""

    count: int
    p50_ms: int | None
    p95_ms: int | None
    p99_ms: int | None


class StatsStep(msgspec.Struct, frozen=True):
    """What became of the jobs from `at` (ms since 1970) on, for a step. `failed` went out, `dead_lettered` of those;
    `retried` are deliveries that were not a job's first."""

    at: int
    enqueued: int
    completed: int
    failed: int
    retried: int
    dead_lettered: int
    expired: int
    cancelled: int
    wait: Annotated[Durations, Meta(description="Of each delivery: from when the job could be had to its claim.")]
    processing: Annotated[Durations, Meta(description="Of each completion: from the claim to the ack.")]


class DepthStep(msgspec.Struct, frozen=True):
    """What the queue held at the end of the step that begins at `at`, or holds in one that is not over."""

    at: int
    ready: int
    in_flight: int
    scheduled: int
    blocked: int


class Flow(msgspec.Struct, frozen=True):
    """What became of a topic's jobs in the minutes in which anything did, by time. `ago`: how many minutes before the
    current one each is."""

    topic_id: int
    ago: Sequence[int]
    enqueued: Sequence[int]
    claimed: Sequence[int]
    completed: Sequence[int]
    failed: Sequence[int]
    dead_lettered: Sequence[int]


async def read_flows(db: Connection, topics: Sequence[Topic], minutes: int) -> dict[int, Flow]:
    """What became of topics' jobs in the last minutes, the current one included, by topic id. A topic of which nothing
    is known is left out."""
    rows = await db.fetch(_FLOWS, [topic.id for topic in topics], minutes)
    return {row["topic_id"]: Flow(**dict(row)) for row in rows}


async def count_untold(db: Connection) -> int:
    """How many minutes are not counted yet, the current one included; a day's at most."""
    minutes: int = await db.fetchval(_UNTOLD)
    return minutes


async def read_progress(db: Connection) -> tuple[int, datetime]:
    """Up to when all minutes are counted, in ms since 1970, and the database's time."""
    row = await db.fetchrow(_TOLD)
    assert row is not None, "it is made with the table"
    return row["filled_to_ms"], row["at"]


async def read_steps(
    db: Connection, topic: Topic, window: tuple[datetime, datetime], step: timedelta, tenant: str | None = None
) -> list[StatsStep]:
    """The steps of a half-open window in which anything happened, by time; of one tenant, or of all."""
    return [_step_of(tuple(row)) for row in await db.fetch(_STEPS, topic.id, *window, step, tenant)]


async def read_depths(
    db: Connection, topic: Topic, window: tuple[datetime, datetime], step: timedelta
) -> list[DepthStep]:
    """The steps of a half-open window of whole steps for which it is known what the queue held, by time."""
    since, before = window
    rows = await db.fetch(_DEPTHS, topic.id, since, (before - since) // step, step, UNSEEN)
    return [DepthStep(**row) for row in rows]


def _step_of(row: tuple[Any, ...]) -> StatsStep:
    fields = (*row[:8], Durations(*row[8:12]), Durations(*row[12:]))
    return StatsStep(*fields)
