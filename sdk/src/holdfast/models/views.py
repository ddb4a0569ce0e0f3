"""Statistics and explanations of topics and jobs."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Literal

JobExplanationState = Literal["ready", "scheduled", "blocked", "leased", "failed", "expired", "cancelled", "gone"]


@dataclass(frozen=True, slots=True, kw_only=True)
class TenantStats:
    """One tenant's counts. `at_least`: there may be more."""

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
    """A topic's current counts.

    - dead: failed jobs in the topic, and its dead letters in the dead-letter topic. If `dead_exact` is False there may
      be more.
    - exact: if False, there may be more of the other jobs.
    - oldest_blocked_age_ms: how long the oldest job behind the head of its group has waited.
    """

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
    """A problem of a topic. `level`: bad is a problem now, watch may become one, note is intended (such as a pause)."""

    code: str
    level: Literal["bad", "watch", "note"]
    text: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Minutes:
    """Outcomes of a topic's jobs in each of the last 60 minutes. The last minute is not over."""

    enqueued: tuple[int, ...]
    claimed: tuple[int, ...]
    completed: tuple[int, ...]
    failed: tuple[int, ...]
    dead_lettered: tuple[int, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicOverview:
    """A topic's state. `exact`: no count is a lower bound. `minutes` is None for a log, and if reading them took too
    long. `troubles`: the worst first."""

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
    """A count, and percentiles by nearest rank in whole ms, None if the count is 0."""

    count: int
    p50_ms: int | None
    p95_ms: int | None
    p99_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsStep:
    """Outcomes of a topic's jobs in the step from `at` on. `wait`: waiting times of claimed jobs. `processing`:
    processing times of acked jobs."""

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
    """A queue's counts at the end of the step from `at` on, or now for the current step."""

    at: datetime
    ready: int
    in_flight: int
    scheduled: int
    blocked: int


@dataclass(frozen=True, slots=True, kw_only=True)
class StatsHistory:
    """Steps of `step_s` seconds in which anything happened. Steps before `told_to` are complete. `depths`: only for
    steps with samples of the queue's depth; empty for a single tenant."""

    topic: str
    step_s: int
    told_to: datetime
    steps: tuple[StatsStep, ...]
    depths: tuple[DepthStep, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class AsOf:
    """A queue's counts at a past time."""

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
    """A job at a past time.

    - since: when it entered the state; None if unknown.
    - deliveries: None if unknown.
    - node, until: its lease.
    - key: only if the job still exists.
    """

    seq: int
    state: PastState
    since: datetime | None
    deliveries: int | None
    until: datetime | None
    node: str | None
    key: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class Reason:
    """A reason why a job is not running. docs/explain.md lists the codes and their `detail`."""

    code: str
    message: str
    detail: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class JobExplanation:
    """Why a job is not running. The first reason is the one to fix first. `wait_ms`: how long until it runs."""

    topic: str
    seq: int
    state: JobExplanationState
    reasons: tuple[Reason, ...]
    wait_ms: int | None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicExplanation:
    """Why a new job would not run, or why a group is stuck. For a group, the fields `group` to `behind` are set instead
    of the counts."""

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
    """A queue's load. `depth`: jobs that workers have or could claim; ready jobs of a paused topic don't count.
    `oldest_claimable_age_ms`: 0 if no job is ready."""

    topic: str
    depth: int
    ready: int
    in_flight: int
    scheduled: int
    oldest_claimable_age_ms: int
    paused: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Deliveries:
    """How often the failed jobs were delivered."""

    min: int
    avg: float
    max: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FailedJob:
    """A failed job and its error."""

    topic: str
    seq: int
    error: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class FailureCluster:
    """Failed jobs with the same kind of error."""

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
    """Clusters of failed jobs, largest first. `more`: there may be others."""

    topic: str
    failures: tuple[FailureCluster, ...]
    more: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterDeleted:
    """How many jobs of a cluster were deleted."""

    topic: str
    cluster: str
    deleted: int
