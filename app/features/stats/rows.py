"""Read a topic's statistics per minute (topic_stats) and its depth samples (depths). docs/explain.md."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime, timedelta
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta

from app.base.db import sql
from app.kernel.model import Connection, Topic

UNSEEN: Final = timedelta(minutes=5)  # without a look at the queues for so long, depths are unknown

_SQL: Final = sql.load_all(__package__)
_STEPS = _SQL["topic_stats"]
_FLOWS = _SQL["flows"]
_UNCOUNTED = _SQL["untold"]
_COUNTED_TO = _SQL["topic_stats_told"]
_DEPTHS = _SQL["topic_depths"]


class Durations(msgspec.Struct, frozen=True):
    """A count, and percentiles (nearest rank) in whole ms, null if the count is 0. Percentiles are exact for a step of
    one minute of one tenant, else up to an eighth too high."""

    count: int
    p50_ms: int | None
    p95_ms: int | None
    p99_ms: int | None


class StatsStep(msgspec.Struct, frozen=True):
    """What happened to jobs in the step that begins at `at` (ms since 1970). `failed` counts jobs that failed for good,
    `dead_lettered` how many of those became dead letters. `retried` counts deliveries after a job's first."""

    at: int
    enqueued: int
    completed: int
    failed: int
    retried: int
    dead_lettered: int
    expired: int
    cancelled: int
    wait: Annotated[Durations, Meta(description="For each delivery: the time from ready to claimed.")]
    processing: Annotated[Durations, Meta(description="For each completed job: the time from the claim to the ack.")]


class DepthStep(msgspec.Struct, frozen=True):
    """The depth of the queue at the end of the step that begins at `at`, or now if the step has not ended."""

    at: int
    ready: int
    in_flight: int
    scheduled: int
    blocked: int


class Flow(msgspec.Struct, frozen=True):
    """A topic's statistics for the minutes with any activity, by time. `ago`: the minutes between each and the current
    one."""

    topic_id: int
    ago: Sequence[int]
    enqueued: Sequence[int]
    claimed: Sequence[int]
    completed: Sequence[int]
    failed: Sequence[int]
    dead_lettered: Sequence[int]


async def read_flows(db: Connection, topics: Sequence[Topic], minutes: int) -> dict[int, Flow]:
    """Read the statistics of the last minutes, the current one included, by topic id. Topics without any are left
    out."""
    rows = await db.fetch(_FLOWS, [topic.id for topic in topics], minutes)
    return {row["topic_id"]: Flow(**dict(row)) for row in rows}


async def count_uncounted(db: Connection) -> int:
    """Return how many minutes are not counted yet, the current one included; 1,440 at most."""
    minutes: int = await db.fetchval(_UNCOUNTED)
    return minutes


async def read_progress(db: Connection) -> tuple[int, datetime]:
    """Return up to when all minutes are counted, in ms since 1970, and the database's time."""
    row = await db.fetchrow(_COUNTED_TO)
    assert row is not None, "the migration creates the row"
    return row["filled_to_ms"], row["at"]


async def read_steps(
    db: Connection, topic: Topic, window: tuple[datetime, datetime], step: timedelta, tenant: str | None = None
) -> list[StatsStep]:
    """Read the steps with any activity in a half-open window, by time, for one tenant or for all (None)."""
    return [_step_of(tuple(row)) for row in await db.fetch(_STEPS, topic.id, *window, step, tenant)]


async def read_depths(
    db: Connection, topic: Topic, window: tuple[datetime, datetime], step: timedelta
) -> list[DepthStep]:
    """Read the steps with a known depth in a half-open window of whole steps, by time."""
    since, before = window
    rows = await db.fetch(_DEPTHS, topic.id, since, (before - since) // step, step, UNSEEN)
    return [DepthStep(**row) for row in rows]


def _step_of(row: tuple[Any, ...]) -> StatsStep:
    fields = (*row[:8], Durations(*row[8:12]), Durations(*row[12:]))
    return StatsStep(*fields)
