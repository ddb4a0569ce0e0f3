"""What may be asked for of a topic in v0's words, and the configuration that it makes."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
from msgspec import Meta

from app.errors import InvalidRequest
from app.queue.backoff import Backoff
from app.topics.config import check_name, clamp_lease, clamp_window
from app.topics.ingestion import ACCEPTS, MOST_TYPES, Ingest, MediaType, media_types
from app.topics.settings import (
    BIGINT_MAX,
    FIELDS,
    FOURTEEN_DAYS_MS,
    MOST_DELIVERIES,
    ONE_DAY_MS,
    PATTERN,
    SEVEN_DAYS_MS,
    TEN_YEARS_MS,
    Config,
    Durability,
    OnExhausted,
    PriorityOrder,
    RetryOrder,
    Tenant,
    TopicType,
)
from app.topics.webhook import Webhook

MOST_TENANTS: Final = 1_000  # that a topic's settings name

Unbounded = Annotated[int, Meta(ge=0)]  # clamped to what can be kept
Deliveries = Annotated[int, Meta(ge=0, le=MOST_DELIVERIES)]


def _about(description: str, default: Any = None, **schema: Any) -> Meta:
    """What a setting means, and what it is if it is absent or null."""
    return Meta(
        description=description, extra_json_schema=schema if default is None else {"x-default": default, **schema}
    )


class AskedBackoff(Backoff, frozen=True, forbid_unknown_fields=True):
    """How long a job waits that was returned without a delay, by how often it was delivered. cap_ms is the most that it
    waits. jitter: full takes off up to all of it, equal up to half, by chance."""


class AskedWebhook(Webhook, frozen=True, forbid_unknown_fields=True):
    """Who is told of jobs that end. Without url, only what records name. secret signs what is sent; it is never shown
    again: what stands for it, sent back, leaves it as it is."""


class Asked(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Settings of a topic in v0's words. Null or absent is the default; a setting that is not listed is a 400."""

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
        Deliveries | None,
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
        AskedBackoff | None, _about("How long a job waits that was returned without a delay. Absent: not at all.")
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
        Annotated[int, Meta(ge=-(2**31), le=2**31 - 1)] | None,
        _about("Shown as effective_priority, clamped to ±1000. Claims don't look at it."),
    ] = None
    auto_priority: Annotated[
        bool | None,
        _about("Without priority: effective_priority is 500 after a read, halved every 30 s; false: 0.", True),
    ] = None
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
    wait_goal_ms: Annotated[
        Annotated[int, Meta(ge=0, le=TEN_YEARS_MS)] | None,
        _about("How long a job that could be claimed may wait before its queue is late; 0: it never is.", 60_000),
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
        Annotated[int, Meta(ge=0, le=TEN_YEARS_MS)] | None,
        _about("How long the results of completed jobs are kept; 0: for ever.", ONE_DAY_MS),
    ] = None
    event_ttl_ms: Annotated[
        Annotated[int, Meta(ge=0, le=TEN_YEARS_MS)] | None,
        _about("How long the events of its jobs are shown; 0: for ever.", SEVEN_DAYS_MS),
    ] = None
    dead_ttl_ms: Annotated[
        Annotated[int, Meta(ge=0, le=TEN_YEARS_MS)] | None,
        _about(
            "How long dead letters in it, and its failed and expired jobs, are kept; 0: for ever.", FOURTEEN_DAYS_MS
        ),
    ] = None
    accepts: Annotated[
        Annotated[list[MediaType], Meta(min_length=1, max_length=MOST_TYPES)] | None,
        _about("Which media types /in takes for it.", list(ACCEPTS)),
    ] = None
    ingest: Annotated[Ingest | None, _about("Who may send to /in: who may write to it, or anybody.", "key")] = None
    user_events: Annotated[
        bool | None, _about("Whether users hear of the ends of their jobs: completed, failed, dead_lettered.", False)
    ] = None
    webhook: Annotated[AskedWebhook | None, _about("Who is told over HTTP of jobs that end. Absent: nobody.")] = None
    auto_create: Annotated[bool | None, _about("In a config of an append: false makes no topic.", True)] = None
    dedupe_node: Annotated[bool | None, _about("Whether a reader may leave out nodes.", True)] = None
    leases_durable: Annotated[
        bool | None, _about("Leases always survive a restart: false is refused.", True, enum=[True, None])
    ] = None


MaxRetries = Annotated[
    Deliveries | None, _about("How often a job is tried at most. 0: once, and it is no dead letter.")
]
DlqThreshold = Annotated[
    Deliveries | None,
    _about(
        "After how many tries a job is a dead letter, if max_retries lets it come so far; 0: never. "
        "Absent: the topic's own max_retries, if it has one."
    ),
]


class AskedOfEither(Asked, frozen=True, kw_only=True):
    """Every setting that a topic has: v0's, and the two by which the messages dialect says how often a job is tried."""

    max_retries: MaxRetries = None
    dlq_threshold: DlqThreshold = None


class AskedInFull(Asked, frozen=True, kw_only=True):
    """The body of a PUT in the v0 dialect. Null or absent is the default; a setting that is not listed is a 400."""

    schema: Annotated[
        dict[str, Any] | list[Any] | str | bool | None,
        _about("What data must fit: a JSON Schema, or an Avro schema; up to 256 KiB. Absent: anything does."),
    ] = None
    schema_format: Annotated[
        Literal["json_schema", "avro"] | None, _about("What schema is. Absent: as its shape says.")
    ] = None


def to_stored(value: Any) -> Any:
    """A setting as it is stored. A version that does not know a field of it yet can still read it."""
    match value:
        case AskedBackoff():
            return msgspec.convert(value, Backoff, from_attributes=True)
        case AskedWebhook():
            return msgspec.convert(value, Webhook, from_attributes=True)
        case _:
            return value


def check_leases(asked: Asked) -> None:
    """Refuse leases that end with the service, which there are not. Raises InvalidRequest."""
    if asked.leases_durable is False:
        raise InvalidRequest(
            "leases_durable can't be false: leases always survive a restart here. Leave it out, or send true.",
            {"field": "leases_durable"},
        )


def resolve(topic: str, asked: Asked) -> Config:
    """Fill in defaults and clamp. Raises InvalidRequest for what can't be: a dead-letter topic, leases_durable."""
    check_leases(asked)
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
        name: to_stored(value)
        for name in FIELDS
        if name not in _WORKED_OUT and (value := getattr(asked, name, None)) is not None
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
        accepts=media_types(asked.accepts),
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
    "accepts",
}
