"""Jobs as an onlooker sees them."""

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
    """A job that is there. `visible_at`: until when it is leased or scheduled; `hidden`: why `data` and `meta`
    are not shown, where that is so. docs/jobs.md."""

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
    """One thing that happened to a job."""

    at: datetime
    event: str
    deliveries: int
    until: datetime | None
    node: str | None
    detail: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class History:
    """What has happened to a job, the oldest first. `more`: what is newer was left out."""

    topic: str
    seq: int
    events: tuple[Event, ...]
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetterPlace:
    """Where a dead letter is."""

    topic: str
    seq: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Reported:
    """How far its holder said a job is."""

    percent: int
    note: str | None
    at: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    """What came of a job. `result` is what was handed in, of a completed one; `hidden`: why it is not shown.
    docs/jobs.md."""

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
    """Which jobs to cancel: those that have all of it. `node`: who holds them; `error`: a part of the last one; `data`:
    what payloads have, each path=value."""

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
    """How many leases were taken back, how many of their jobs ended instead of being claimable, with no delivery left
    or cancelled, and which jobs were not leased, or not as was said."""

    topic: str
    released: int
    ended: int
    skipped: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cancelled:
    """How many waited and are gone, how many are leased and marked, and which were not to be cancelled."""

    topic: str
    cancelled: int
    marked: int
    skipped: tuple[int, ...]
