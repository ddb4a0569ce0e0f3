"""Schedules."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Literal

Missed = Literal["skip", "once", "all"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleError:
    """Why the last run enqueued no job."""

    code: str
    message: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleSummary:
    """A schedule in a list."""

    name: str
    topic: str
    cron: str
    time_zone: str
    missed: Missed
    paused: bool
    next_fire: datetime | None
    last_fire: datetime | None
    last_seq: int | None
    fires: int
    last_error: ScheduleError | None
    last_error_at: datetime | None
    created_at: datetime
    updated_at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Schedule(ScheduleSummary):
    """A schedule with its record and its next times. `hidden`: why the record is missing, if it is hidden."""

    next_fires: tuple[datetime, ...]
    record: Mapping[str, Any] = field(default_factory=dict)
    hidden: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ScheduleRun:
    """The job that a schedule enqueued on demand."""

    name: str
    topic: str
    seq: int
    fire_at: datetime
