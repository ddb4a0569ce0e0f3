"""A topic's configuration, and the policy that follows. docs/semantics.md has the meaning."""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta

from app.errors import InvalidRequest
from app.queue.backoff import Backoff
from app.queue.bounds import Bounds
from app.queue.log import Limits
from app.queue.model import Budget, Topic
from app.topics.control import FREE, Control
from app.topics.ingestion import ACCEPTS, Ingest
from app.topics.webhook import Webhook

if TYPE_CHECKING:
    from app.settings import Settings

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


class Defaults(msgspec.Struct, frozen=True):
    """What the service gives a topic that was left to it."""

    max_retries: int = 3
    dlq_threshold: int = 3
    ttl_ms: int = 86_400_000
    lease_ms: int = 30_000


DEFAULTS: Final = Defaults()


def defaults_of(settings: Settings) -> Defaults:
    """Those that the operator has set."""
    return Defaults(
        settings.max_retries,
        settings.dlq_threshold,
        settings.message_ttl_seconds * 1000,
        settings.visibility_timeout_seconds * 1000,
    )


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


class Policy(msgspec.Struct, frozen=True):
    """What the engine needs to know of a topic: `config` is in effect, whoever chose it; `chosen` is what is stored."""

    topic: Topic
    config: Config
    version: int  # counts the changes of this topic's row
    chosen: Chosen
    schema_version: int | None = None  # of the schema that payloads must fit; None: there is none. See checks.py
    control: Control = FREE

    @property
    def max_retries(self) -> int:
        """How often a job of it is tried, in the words of the messages dialect; 0 is once, or without end where that
        was chosen as max_deliveries."""
        config = self.config
        return config.max_deliveries if config.max_retries is None else config.max_retries

    @property
    def budget(self) -> Budget:
        """How many deliveries its jobs get."""
        return Budget(self.config.on_exhausted is not OnExhausted.REDELIVER, self.config.max_deliveries)

    @property
    def bounds(self) -> Bounds | None:
        """What it may hold, if it is a queue; None: any number of jobs."""
        config = self.config
        if config.max_depth == config.cap_records == config.cap_bytes == 0:
            return None
        evicts = config.discard == "old" and config.cap_records + config.cap_bytes > 0
        return Bounds(config.max_depth, config.cap_records, config.cap_bytes, evicts)

    @property
    def log_limits(self) -> Limits:
        """What it may hold, if it is a log."""
        config = self.config
        return Limits(
            config.cap_records,
            config.cap_bytes,
            config.discard == "reject",
            config.ttl_ms,
            config.idempotency_window_ms,
        )


def check_name(name: str) -> str:
    """The name, if a topic can have it. Raises InvalidRequest."""
    if NAME.match(name) is None:
        raise InvalidRequest(
            "A topic's name starts with a letter or digit and has up to 255 letters, digits, '.', '_', ':' and '-'.",
            {"topic": name[:300]},
        )
    return name


def in_effect(name: str, chosen: Chosen, defaults: Defaults) -> Config:
    """What counts for a topic. docs/semantics.md, section 2, has the rule for deliveries."""
    filled: dict[str, Any] = {field: getattr(chosen, field) for field in FIELDS}
    filled["lease_ms"] = defaults.lease_ms if chosen.lease_ms is None else chosen.lease_ms
    filled["ttl_ms"] = defaults.ttl_ms if chosen.ttl_ms is None else chosen.ttl_ms
    if chosen.max_deliveries is None:
        retries = defaults.max_retries if chosen.max_retries is None else chosen.max_retries
        threshold = chosen.dlq_threshold
        if threshold is None:  # the topic's own max_retries is the threshold, unless the service has no dead letters
            threshold = retries if chosen.max_retries is not None and defaults.dlq_threshold else defaults.dlq_threshold
        filled |= {"max_retries": retries, "dlq_threshold": threshold}
        filled["max_deliveries"] = max(min(retries, threshold or retries), 1)
        filled["on_exhausted"] = OnExhausted.FAIL
        if 0 < threshold <= retries:
            filled["on_exhausted"] = OnExhausted.DEAD_LETTER
            filled["dead_letter"] = chosen.dead_letter or name + DEAD_LETTERS
    return Config(**filled)


def of_messages(name: str) -> Chosen:
    """What is chosen for a topic that the messages dialect makes: a durable queue, the rest left to the service.

    Raises InvalidRequest for a name that no topic can have, or that is kept for dead letters, or leaves no room for the
    name of its own dead letters' topic.
    """
    check_name(name)
    if name.endswith(DEAD_LETTERS):
        raise InvalidRequest(f"Names that end in {DEAD_LETTERS} are kept for dead letters.", {"topic": name})
    check_name(name + DEAD_LETTERS)
    return Chosen(type=TopicType.QUEUE, durability=Durability.FSYNC, configured=False)


def clamp_lease(lease_ms: int) -> int:
    """The nearest length that a lease may have, in ms."""
    return min(max(lease_ms, 100), 86_400_000)


def clamp_window(window_ms: int) -> int:
    """The nearest time that acknowledged jobs may be kept, in ms."""
    return min(window_ms, TEN_YEARS_MS)
