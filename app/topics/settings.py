"""The settings of a topic, each declared once. docs/semantics.md, section 24."""

from __future__ import annotations

import re
from enum import Enum
from typing import Annotated, Final, Literal

import msgspec
from msgspec import Meta

from app.queue.backoff import Backoff
from app.topics.ingestion import ACCEPTS, Ingest
from app.topics.webhook import Webhook

PATTERN: Final = "^[A-Za-z0-9][A-Za-z0-9._:-]{0,254}$"
NAME: Final = re.compile(PATTERN.replace("$", r"\Z"))
TEN_YEARS_MS: Final = 315_360_000_000
SEVEN_DAYS_MS: Final = 604_800_000
FOURTEEN_DAYS_MS: Final = 1_209_600_000
ONE_DAY_MS: Final = 86_400_000
BIGINT_MAX: Final = 2**63 - 1
MOST_DELIVERIES: Final = 10_000
DEAD_LETTERS: Final = ".dlq"  # how the names of topics end that dead letters of the messages dialect go to

MAX_TENANT: Final = 128  # characters
Tenant = Annotated[str, Meta(min_length=1, max_length=MAX_TENANT, pattern=r"^[^\u0000]*$")]
PriorityOrder = Literal["highest_first", "lowest_first"]
RetryOrder = Literal["front", "back"]


class TopicType(Enum):
    LOG = "log"
    QUEUE = "queue"


class Durability(Enum):
    """fsync: an answer comes after its commit is flushed. The other three don't wait, and are served alike."""

    EPHEMERAL = "ephemeral"
    MEMORY = "memory"
    DISK = "disk"
    FSYNC = "fsync"


class OnExhausted(Enum):
    """Where a job goes that has had its last delivery."""

    REDELIVER = "redeliver"
    FAIL = "fail"
    DEAD_LETTER = "dead_letter"


class Chosen(msgspec.Struct, frozen=True, kw_only=True):
    """What was chosen for a topic. Field names are the table's columns.

    None for max_deliveries: as max_retries and dlq_threshold say, and on_exhausted is not looked at. None for lease_ms,
    ttl_ms, max_retries and dlq_threshold: the service's default. configured: somebody chose, rather than that the topic
    came about by being used.
    """

    type: TopicType = TopicType.LOG
    durability: Durability = Durability.DISK
    lease_ms: int | None = None
    claim_jitter_ms: int = 0
    max_deliveries: int | None = None
    max_retries: int | None = None
    dlq_threshold: int | None = None
    dead_letter: str | None = None
    on_exhausted: OnExhausted = OnExhausted.REDELIVER
    ttl_ms: int | None = None
    cap_records: int = 0
    cap_bytes: int = 0
    discard: Literal["old", "reject"] = "old"
    idempotency_window_ms: int = 120_000
    dedupe_window_ms: int = 300_000
    priority: int | None = None
    auto_priority: bool = True
    max_depth: int = 0
    throughput_limit: int = 0
    priority_order: PriorityOrder = "highest_first"
    retry_order: RetryOrder = "front"
    aging_ms: int = 0
    wait_goal_ms: int = 60_000
    tenant_weights: dict[str, int] = {}
    tenant_limits: dict[str, int] = {}
    replayable: bool = False
    replay_window_ms: int = SEVEN_DAYS_MS
    result_ttl_ms: int = ONE_DAY_MS
    event_ttl_ms: int = SEVEN_DAYS_MS
    dead_ttl_ms: int = FOURTEEN_DAYS_MS
    accepts: tuple[str, ...] = ACCEPTS  # lower case
    ingest: Ingest = "key"
    user_events: bool = False
    auto_create: bool = True
    dedupe_node: bool = True
    leases_durable: bool = True
    backoff: Backoff | None = None
    webhook: Webhook | None = None
    configured: bool = True

    @property
    def durable(self) -> bool:
        """Whether an answer waits for the flush of its commit."""
        return self.durability is Durability.FSYNC


FIELDS: Final = Chosen.__struct_fields__
OBJECTS: Final = ("backoff", "tenant_weights", "tenant_limits", "webhook")  # of them, those that are JSON


class Config(Chosen, frozen=True, kw_only=True):
    """A configuration in full: every default filled in, every clamp applied. As what is chosen, it is v0's, which
    leaves nothing to the service."""

    lease_ms: int = 30_000
    max_deliveries: int = 0
    ttl_ms: int = 0
