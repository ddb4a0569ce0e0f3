"""What operators ask about a topic and its jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

JobExplanationState = Literal["ready", "scheduled", "blocked", "leased", "failed", "expired", "cancelled", "gone"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantStats:
    """What one tenant has. `at_least`: there may be more of it."""

    tenant: str
    ready: int
    scheduled: int
    in_flight: int
    blocked: int
    dead: int
    at_least: bool
    oldest_claimable_age_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicStats:
    """What a topic has now. `dead`: failed jobs, those kept in the topic and those in its dead-letter topic that came
    from it. There may be more of them where `dead_exact` is false, and of the others where `exact` is.
    `oldest_blocked_age_ms`: for how long the oldest job behind the head of its group has waited."""

    ready: int
    scheduled: int
    in_flight: int
    blocked: int
    dead: int
    exact: bool
    dead_exact: bool
    oldest_claimable_age_ms: int | None
    oldest_blocked_age_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Trouble:
    """Something that is wrong with a topic: bad hurts now, watch will if it stays, note is somebody's intention."""

    code: str
    level: Literal["bad", "watch", "note"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Minutes:
    """What became of a topic's jobs in the last 60 minutes, the last one still running."""

    enqueued: tuple[int, ...]
    claimed: tuple[int, ...]
    completed: tuple[int, ...]
    failed: tuple[int, ...]
    dead_lettered: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOverview:
    """How a topic is. `exact`: no count is cut; `minutes` is None for a log, and where they could not be told in time;
    `troubles`: the worst first."""

    topic: str
    type: Literal["queue", "log"]
    count: int
    bytes: int
    ready: int
    in_flight: int
    scheduled: int
    blocked: int
    dead: int
    exact: bool
    dead_exact: bool
    oldest_claimable_age_ms: int | None
    oldest_blocked_age_ms: int | None
    wait_goal_ms: int | None
    paused: bool
    paused_tenants: int
    draining: bool
    minutes: Minutes | None
    troubles: tuple[Trouble, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Times:
    """How many, and percentiles by nearest rank in whole ms; None: of none."""

    count: int
    p50_ms: int | None
    p95_ms: int | None
    p99_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsStep:
    """What became of a topic's jobs from `at` on, for a step; `wait` of its claims, `processing` of its acks."""

    at: datetime
    enqueued: int
    completed: int
    failed: int
    retried: int
    dead_lettered: int
    expired: int
    cancelled: int
    wait: Times
    processing: Times


@dataclass(frozen=True, slots=True, kw_only=True)
class DepthStep:
    """What a queue held at the end of the step that begins at `at`; of the one that is not over, now."""

    at: datetime
    ready: int
    in_flight: int
    scheduled: int
    blocked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsHistory:
    """Steps of `step_s` seconds in which anything happened; those before `told_to` are whole. `depths`: of steps of
    which it is known what the queue held; none of one tenant."""

    topic: str
    step_s: int
    told_to: datetime
    steps: tuple[StatsStep, ...]
    depths: tuple[DepthStep, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AsOf:
    """What a queue looked like at a moment."""

    topic: str
    at: datetime
    ready: int
    in_flight: int
    scheduled: int
    blocked: int
    failed: int
    expired: int
    dead: int
    oldest_claimable_age_ms: int | None


PastState = Literal["ready", "leased", "scheduled", "blocked", "failed", "expired", "dead_lettered"]


@dataclass(frozen=True, slots=True, kw_only=True)
class PastJob:
    """A job as it was at a moment: since when it was in its state, and how often it had been delivered, None for either
    where nothing that is kept says so; who held it until when. `key`: of one that is still there."""

    seq: int
    state: PastState
    since: datetime | None
    deliveries: int | None
    until: datetime | None
    node: str | None
    key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """Why a job is not running: docs/explain.md has the codes and what is in `detail`."""

    code: str
    message: str
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobExplanation:
    """Why a job is not running, what must be mended first comes first; `wait_ms`: how long until it does."""

    topic: str
    seq: int
    state: JobExplanationState
    reasons: tuple[Reason, ...]
    wait_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicExplanation:
    """The same for a job that came now; of a group, for what it has: then `group` to `behind` are there, and no
    counts."""

    topic: str
    reasons: tuple[Reason, ...]
    wait_ms: int | None
    at_least: bool
    claimable: int | None = None
    scheduled: int | None = None
    blocked: int | None = None
    in_flight: int | None = None
    group: str | None = None
    tenant: str | None = None
    head: int | None = None
    state: str | None = None
    behind: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Scale:
    """What workers of a queue have to do. `depth` is what they have or could have, so without what is ready while the
    topic is paused. `oldest_claimable_age_ms` is 0 where nothing can be claimed."""

    topic: str
    depth: int
    ready: int
    in_flight: int
    scheduled: int
    oldest_claimable_age_ms: int
    paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliveries:
    """How often jobs had been delivered."""

    min: int
    avg: float
    max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedJob:
    """A job that is out, and what it died of."""

    topic: str
    seq: int
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureCluster:
    """Jobs that are out with one kind of error."""

    cluster: str
    title: str
    count: int
    at_least: bool
    deliveries: Deliveries
    first_seen: datetime
    last_seen: datetime
    example: FailedJob


@dataclass(frozen=True, slots=True, kw_only=True)
class Failures:
    """The kinds of errors, the largest first; `more`: there may be others."""

    topic: str
    failures: tuple[FailureCluster, ...]
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDeleted:
    """How many jobs of a kind were deleted."""

    topic: str
    cluster: str
    deleted: int
