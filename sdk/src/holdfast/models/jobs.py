"""Jobs, as seen without a lease."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Annotated, Any, Literal

from holdfast.models.marks import PAYLOAD

JobState = Literal["ready", "scheduled", "blocked", "leased", "failed", "expired", "cancelled"]
OutcomeState = Literal[
    "pending", "completed", "failed", "dead_lettered", "expired", "cancelled", "superseded", "deleted", "requeued"
]


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A job. `visible_at`: until when it is leased or scheduled. `hidden`: why `data` and `meta` are missing, if they
    are hidden. docs/jobs.md."""

    topic: str
    seq: int
    state: JobState
    priority: int
    tenant: str
    deliveries: int
    created_at: datetime
    updated_at: datetime
    data: Annotated[Any, PAYLOAD] = None
    meta: Mapping[str, Any] | None = None
    hidden: str | None = None
    content_type: str | None = None
    tag: str | None = None
    key: str | None = None
    group: str | None = None
    visible_at: datetime | None = None
    expires_at: datetime | None = None
    node: str | None = None
    leased_at: datetime | None = None
    cancelled: bool = False
    max_deliveries: int | None = None
    crashes: int = 0
    failures: int = 0
    suspected_poison: bool = False
    last_error: str | None = None
    original_topic: str | None = None
    original_seq: int | None = None
    original_deliveries: int | None = None
    original_crashes: int | None = None
    dlq_moved_at: datetime | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Event:
    """One event in a job's history."""

    at: datetime
    event: str
    deliveries: int
    until: datetime | None
    node: str | None
    detail: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """A job's history, oldest event first. `more`: newer events were left out."""

    topic: str
    seq: int
    events: tuple[Event, ...]
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterPlace:
    """The topic and seq of a dead letter."""

    topic: str
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """Progress that a job's worker reported."""

    percent: int
    note: str | None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """A job's outcome. `result`: of a completed job, as passed to ack. `hidden`: why the result is missing, if it is
    hidden. docs/jobs.md."""

    topic: str
    seq: int
    state: OutcomeState
    result: Any = None
    completed_at: datetime | None = None
    expires_at: datetime | None = None
    ended_at: datetime | None = None
    error: str | None = None
    dead_letter: DeadLetterPlace | None = None
    progress: Reported | None = None
    hidden: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class CancelFilter:
    """Selects jobs to cancel, which must match all fields. `node`: the worker that holds the job. `error`: a part of
    the last error. `data`: conditions on the payload, each path=value."""

    state: Literal["ready", "scheduled", "blocked", "leased"] | None = None
    priority: int | None = None
    tag: str | None = None
    key: str | None = None
    tenant: str | None = None
    group: str | None = None
    node: str | None = None
    error: str | None = None
    data: tuple[str, ...] | None = None
    older_than_ms: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Released:
    """`released`: how many leases were ended. `ended`: how many of these jobs ended as well, because they were
    cancelled or had no deliveries left. `skipped`: jobs that were not leased, or whose lease did not match."""

    topic: str
    released: int
    ended: int
    skipped: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """`cancelled`: how many waiting jobs were deleted. `marked`: how many leased jobs were marked. `skipped`: jobs that
    could not be cancelled."""

    topic: str
    cancelled: int
    marked: int
    skipped: tuple[int, ...]
