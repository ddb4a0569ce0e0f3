"""Topics and their settings."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Annotated, Any, Final, Literal

from holdfast.models.marks import Named

Durability = Literal["ephemeral", "memory", "disk", "fsync"]
DEAD_LETTERS: Final = ".dlq"


@dataclass(frozen=True, slots=True, kw_only=True)
class Backoff:
    """How long a returned job waits until its retry, unless the nack has a delay. docs/retries.md."""

    kind: Literal["none", "fixed", "linear", "exponential"] | None = None
    base_ms: int | None = None
    cap_ms: int | None = None
    jitter: Literal["none", "full", "equal"] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Webhook:
    """The webhook that is called when a job ends. Answers never have the secret. docs/webhooks.md."""

    url: str | None = None
    on: tuple[Literal["completed", "failed", "dead_lettered"], ...] | None = None
    secret: str | None = field(default=None, repr=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicConfig:
    """The settings of a topic. None stands for the service's default. docs/semantics.md, section 24.

    By default the topic is a durable queue. A failed job is delivered up to 20 times with growing pauses and then
    becomes a dead letter. A `dead_letter` that begins with a dot is a suffix of the topic's name."""

    durable: bool | None = True
    schema: Any = None
    schema_format: Literal["avro", "json_schema"] | None = None
    # made by `make reference` from app/kernel/topics/settings.py
    type: Literal["log", "queue"] = "queue"
    durability: Durability | None = None
    lease_ms: int | None = None
    claim_jitter_ms: int | None = None
    max_deliveries: int | None = 20
    dead_letter: str | None = DEAD_LETTERS
    on_exhausted: Literal["redeliver", "fail", "dead_letter"] | None = None
    ttl_ms: int | None = None
    cap_records: int | None = None
    cap_bytes: int | None = None
    discard: Literal["old", "reject"] | None = None
    idempotency_window_ms: int | None = None
    dedupe_window_ms: int | None = None
    priority: int | None = None
    auto_priority: bool | None = None
    max_depth: int | None = None
    throughput_limit: int | None = None
    priority_order: Literal["highest_first", "lowest_first"] | None = None
    retry_order: Literal["front", "back"] | None = None
    aging_ms: int | None = None
    wait_goal_ms: int | None = None
    tenant_weights: Mapping[str, int] | None = None
    tenant_limits: Mapping[str, int] | None = None
    replayable: bool | None = None
    replay_window_ms: int | None = None
    result_ttl_ms: int | None = None
    event_ttl_ms: int | None = None
    dead_ttl_ms: int | None = None
    accepts: tuple[str, ...] | None = None
    ingest: Literal["key", "public"] | None = None
    user_events: bool | None = None
    auto_create: bool | None = None
    dedupe_node: bool | None = None
    leases_durable: bool | None = None
    backoff: Backoff | None = Backoff(kind="exponential", base_ms=1_000, cap_ms=600_000, jitter="full")
    webhook: Webhook | None = None
    # end


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicPut:
    """A topic's current settings, and whether the call created it."""

    topic: str
    created: bool
    config: TopicConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueCounts:
    """How many jobs are ready and leased. `dead_lettered`: how many became dead letters since the topic was created;
    `topic.totals().dead` counts the failed jobs that exist now."""

    ready: int
    in_flight: int
    dead_lettered: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicState:
    """A topic's settings and counts. `queue` is None for a log."""

    topic: str
    type: Literal["queue", "log"]
    head_seq: int
    earliest_seq: int
    next_seq: int
    count: int
    bytes: int
    config: TopicConfig
    effective_priority: int
    last_write_at: Annotated[datetime | None, Named("last_write_ts")]
    last_read_at: Annotated[datetime | None, Named("last_read_ts")]
    queue: QueueCounts | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicSummary:
    """A topic in a list."""

    topic: str
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    durable: bool
    effective_priority: int


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRemoved:
    """`deleted` is False if the topic did not exist."""

    topic: str
    deleted: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Control:
    """Whether a topic or some of its tenants are paused, and whether it is draining."""

    topic: str
    paused: bool
    paused_tenants: tuple[str, ...]
    draining: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Drained(Control):
    """The progress of a drain.

    - left: jobs that wait or run.
    - empty: no jobs are left, and no new ones can arrive.
    - closes_in_ms: how long a process that has not heard of the drain may still accept jobs.
    """

    left: int
    closes_in_ms: int
    empty: bool
