"""A topic's configuration: what may be asked for, and the policy that follows. docs/semantics.md has the meaning."""

from __future__ import annotations

import re
from enum import Enum
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Final, Literal

import msgspec
from msgspec import Meta

from app.errors import InvalidRequest
from app.queue.backoff import Backoff
from app.queue.bounds import Bounds
from app.queue.log import Limits
from app.queue.model import Budget, Topic
from app.topics.control import FREE, Control

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

MOST_TENANTS: Final = 1_000  # that a topic's settings name

MAX_TENANT: Final = 128  # characters
Tenant = Annotated[str, Meta(min_length=1, max_length=MAX_TENANT, pattern=r"^[^\u0000]*$")]
Unbounded = Annotated[int, Meta(ge=0)]  # clamped to what can be kept
Kept = Annotated[int, Meta(ge=0, le=TEN_YEARS_MS)]  # in ms
PriorityOrder = Literal["highest_first", "lowest_first"]
RetryOrder = Literal["front", "back"]


def _about(description: str, default: Any = None) -> Meta:
    """What a setting means, and what it is if it is absent or null."""
    return Meta(description=description, extra_json_schema={} if default is None else {"x-default": default})


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


class Asked(msgspec.Struct, frozen=True, kw_only=True):
    """Settings of a topic in v0's words. Null or absent is the default; fields not listed are ignored."""

    RULES: ClassVar[dict[str, Any]] = {
        "if": {"required": ["on_exhausted"], "properties": {"on_exhausted": {"const": "dead_letter"}}},
        "then": {"required": ["dead_letter"], "properties": {"dead_letter": {"type": "string"}}},
    }
    type: Annotated[Literal["log", "queue"] | None, _about("It stays what it was made as.", "log")] = None
    durable: Annotated[bool | None, _about("true is durability fsync, false is disk.", False)] = None
    durability: Annotated[
        Literal["ephemeral", "memory", "disk", "fsync"] | None,
        _about("fsync: answers come after the flush of their commit. The other three don't wait. Goes before durable."),
    ] = None
    lease_ms: Annotated[Unbounded | None, _about("Length of a lease in ms, clamped to 100 to 86400000.", 30_000)] = None
    claim_jitter_ms: Annotated[Unbounded | None, _about("A claim waits up to so long first, clamped to 5000.", 0)] = (
        None
    )
    max_deliveries: Annotated[
        Annotated[int, Meta(ge=0, le=MOST_DELIVERIES)] | None,
        _about("How often a job is delivered at most; 0: no limit.", 0),
    ] = None
    dead_letter: Annotated[
        Annotated[str, Meta(extra_json_schema={"pattern": PATTERN})] | None,
        _about(
            "Where jobs go whose deliveries are spent: another topic. A log gets records; one that is absent is made."
        ),
    ] = None
    on_exhausted: Annotated[
        Literal["redeliver", "fail", "dead_letter"] | None,
        _about("What becomes of a job whose deliveries are spent. dead_letter if one is named, else redeliver."),
    ] = None
    backoff: Annotated[
        Backoff | None, _about("How long a job waits that was returned without a delay. Absent: not at all.")
    ] = None
    ttl_ms: Annotated[
        Annotated[int, Meta(ge=0, le=TEN_YEARS_MS)] | None, _about("How long a job or record lives; 0: for ever.", 0)
    ] = None
    cap_records: Annotated[Unbounded | None, _about("Most records of a log, live jobs of a queue; 0: no limit.", 0)] = (
        None
    )
    cap_bytes: Annotated[
        Unbounded | None, _about("Most bytes of data and meta of a log, of data of a queue; 0: no limit.", 0)
    ] = None
    discard: Annotated[
        Literal["old", "reject"] | None, _about("What a full topic does: forget the oldest, or refuse.", "old")
    ] = None
    idempotency_window_ms: Annotated[
        Annotated[int, Meta(ge=0, le=SEVEN_DAYS_MS)] | None, _about("How long a batch's key is remembered.", 120_000)
    ] = None
    dedupe_window_ms: Annotated[
        Annotated[int, Meta(ge=0, le=SEVEN_DAYS_MS)] | None,
        _about("How long a queue remembers a job's dedupe_id; 0: not at all.", 300_000),
    ] = None
    priority: Annotated[
        Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] | None, _about("Kept and shown, clamped to ±1000.")
    ] = None
    auto_priority: Annotated[bool | None, _about("Kept and shown.", True)] = None
    max_depth: Annotated[Unbounded | None, _about("Most live jobs of a queue; 0: no limit.", 0)] = None
    throughput_limit: Annotated[
        Annotated[int, Meta(ge=0, le=2**31 - 1)] | None, _about("Most jobs a second that claims get; 0: no limit.", 0)
    ] = None
    priority_order: Annotated[
        PriorityOrder | None,
        _about("Which of a queue's jobs come first: those of high or of low priority.", "highest_first"),
    ] = None
    retry_order: Annotated[
        RetryOrder | None,
        _about("Where a job goes whose time has come: to the front or the back of its priority.", "front"),
    ] = None
    aging_ms: Annotated[
        Annotated[int, Meta(ge=0, le=TEN_YEARS_MS)] | None,
        _about("After how long a waiting job counts as one step of priority better, and so on; 0: never.", 0),
    ] = None
    tenant_weights: Annotated[
        Annotated[dict[Tenant, Annotated[int, Meta(ge=1, le=1_000)]], Meta(max_length=MOST_TENANTS)] | None,
        _about("How much tenants get of claims that name none, beside 1 for those that are not listed.", {}),
    ] = None
    tenant_limits: Annotated[
        Annotated[dict[Tenant, Annotated[int, Meta(ge=1, le=2**31 - 1)]], Meta(max_length=MOST_TENANTS)] | None,
        _about("Most jobs in flight of tenants; those that are not listed have no limit.", {}),
    ] = None
    replayable: Annotated[bool | None, _about("Whether acknowledged jobs are kept for a replay.", False)] = None
    replay_window_ms: Annotated[
        Unbounded | None, _about("How long they are kept in ms, clamped to ten years; 0: for ever.", SEVEN_DAYS_MS)
    ] = None
    result_ttl_ms: Annotated[
        Kept | None, _about("How long the results of completed jobs are kept; 0: for ever.", ONE_DAY_MS)
    ] = None
    event_ttl_ms: Annotated[
        Kept | None, _about("How long the events of its jobs are shown; 0: for ever.", SEVEN_DAYS_MS)
    ] = None
    dead_ttl_ms: Annotated[
        Kept | None,
        _about("How long dead letters in it, failed and expired jobs are kept; 0: for ever.", FOURTEEN_DAYS_MS),
    ] = None
    auto_create: Annotated[bool | None, _about("In a config of an append: false makes no topic.", True)] = None
    dedupe_node: Annotated[bool | None, _about("Whether a reader may leave out nodes.", True)] = None
    leases_durable: Annotated[bool | None, _about("Kept and shown; leases always are durable.", False)] = None


class AskedInFull(Asked, frozen=True, kw_only=True):
    """The body of a PUT in the v0 dialect. Null or absent is the default; fields not listed are ignored."""

    schema: Annotated[
        dict[str, Any] | list[Any] | str | bool | None,
        _about("What data must fit: a JSON Schema, or an Avro schema; up to 256 KiB. Absent: anything does."),
    ] = None
    schema_format: Annotated[
        Literal["json_schema", "avro"] | None, _about("What schema is. Absent: as its shape says.")
    ] = None


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
    tenant_weights: dict[str, int] = {}
    tenant_limits: dict[str, int] = {}
    replayable: bool = False
    replay_window_ms: int = SEVEN_DAYS_MS
    result_ttl_ms: int = ONE_DAY_MS
    event_ttl_ms: int = SEVEN_DAYS_MS
    dead_ttl_ms: int = FOURTEEN_DAYS_MS
    auto_create: bool = True
    dedupe_node: bool = True
    leases_durable: bool = False
    backoff: Backoff | None = None
    configured: bool = True

    @property
    def durable(self) -> bool:
        """Whether an answer waits for the flush of its commit."""
        return self.durability is Durability.FSYNC


FIELDS: Final = Chosen.__struct_fields__
OBJECTS: Final = ("backoff", "tenant_weights", "tenant_limits")  # of them, those that are JSON


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


def resolve(topic: str, asked: Asked) -> Config:
    """Fill in defaults and clamp. Raises InvalidRequest for a dead-letter topic that can't be one."""
    durability = Durability(asked.durability) if asked.durability else None
    if durability is None:
        durability = Durability.FSYNC if asked.durable else Durability.DISK
    if asked.dead_letter is not None:
        check_name(asked.dead_letter)
        if asked.dead_letter == topic:
            raise InvalidRequest("A topic can't be its own dead-letter topic.", {"dead_letter": topic})
    on_exhausted = OnExhausted(
        asked.on_exhausted or ("redeliver" if asked.dead_letter is None else OnExhausted.DEAD_LETTER.value)
    )
    if on_exhausted is OnExhausted.DEAD_LETTER and asked.dead_letter is None:
        raise InvalidRequest('on_exhausted "dead_letter" needs dead_letter, the name of a topic.')
    plain = {
        name: value for name in FIELDS if name not in _WORKED_OUT and (value := getattr(asked, name, None)) is not None
    }
    return Config(
        type=TopicType(asked.type or "log"),
        durability=durability,
        on_exhausted=on_exhausted,
        lease_ms=clamp_lease(30_000 if asked.lease_ms is None else asked.lease_ms),
        claim_jitter_ms=min(asked.claim_jitter_ms or 0, 5_000),
        replay_window_ms=clamp_window(SEVEN_DAYS_MS if asked.replay_window_ms is None else asked.replay_window_ms),
        cap_records=min(asked.cap_records or 0, BIGINT_MAX),
        cap_bytes=min(asked.cap_bytes or 0, BIGINT_MAX),
        max_depth=min(asked.max_depth or 0, BIGINT_MAX),
        **plain,
    )


_WORKED_OUT: Final = {
    "type",
    "durability",
    "on_exhausted",
    "lease_ms",
    "claim_jitter_ms",
    "replay_window_ms",
    "cap_records",
    "cap_bytes",
    "max_depth",
}


def in_effect(name: str, chosen: Chosen, defaults: Defaults) -> Config:
    """What counts for a topic. docs/semantics.md, section 2, has the rule for deliveries."""
    filled: dict[str, Any] = {field: getattr(chosen, field) for field in FIELDS}
    filled["lease_ms"] = defaults.lease_ms if chosen.lease_ms is None else chosen.lease_ms
    filled["ttl_ms"] = defaults.ttl_ms if chosen.ttl_ms is None else chosen.ttl_ms
    if chosen.max_deliveries is None:
        retries = defaults.max_retries if chosen.max_retries is None else chosen.max_retries
        threshold = defaults.dlq_threshold if chosen.dlq_threshold is None else chosen.dlq_threshold
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
