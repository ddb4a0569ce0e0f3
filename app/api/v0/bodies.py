"""What the v0 routes take. Fields that are not listed are ignored, as they are in the original."""

from __future__ import annotations

from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from app.db.horizon import Horizon
from app.topics.config import BIGINT_MAX, TEN_YEARS_MS, Asked

MAX_RECORDS: Final = 10_000
MAX_SEQS: Final = 1_000

Count = Annotated[int, Meta(ge=0)]
Seq = Annotated[int, Meta(ge=0, le=BIGINT_MAX)]
Wait = Annotated[int, Meta(ge=0, le=30_000)]


class Record(msgspec.Struct, gc=False):
    """One job. `data` is any JSON and comes back byte for byte."""

    data: Raw
    tag: str | None = None
    node: str | None = None
    meta: Annotated[Raw, Meta(extra_json_schema={"type": ["object", "null"]})] = msgspec.field(default_factory=Raw)
    priority: Annotated[int, Meta(ge=0, le=9)] | None = None
    delay_ms: Annotated[int, Meta(ge=0, le=TEN_YEARS_MS)] | None = None
    run_at: str | None = None
    ttl_ms: Annotated[int, Meta(ge=0, le=TEN_YEARS_MS)] | None = None
    max_deliveries: Annotated[int, Meta(ge=0, le=10_000)] | None = None
    # Not built yet, and refused: a client that counts on one of these must not take it for granted.
    tenant: None = None
    group: None = None
    key: None = None
    dedupe_id: None = None
    user_id: None = None
    webhook: None = None
    content_type: None = None


class AppendBody(msgspec.Struct):
    """Records for a queue: all of them become jobs, or none does. `config` counts only if this write creates the
    topic."""

    records: list[Record]
    node: str | None = None
    create: bool | None = None
    config: Asked | None = None
    idempotency_key: None = None  # not built yet


class ClaimBody(msgspec.Struct):
    """Who claims, how many jobs (1 to 1000, clamped) and for how long (ms, clamped to 100 ms to 24 h)."""

    node: str
    max: Count | None = None
    lease_ms: Count | None = None
    wait_ms: Wait | None = None


class AckBody(msgspec.Struct):
    """Jobs that `node` holds; `lease_ids`, one each, fence off a holder whose lease was superseded."""

    node: str
    seqs: list[Seq]
    lease_ids: list[str] | None = None


class NackBody(msgspec.Struct):
    """The same, with how long the jobs stay hidden (ms, clamped to 24 h), and what went wrong with each."""

    node: str
    seqs: list[Seq]
    lease_ids: list[str] | None = None
    delay_ms: Count | None = None
    errors: list[str | None] | None = None


class ExtendBody(msgspec.Struct):
    """The same, with the new length of the leases from now (ms, clamped to 100 ms to 24 h)."""

    node: str
    seqs: list[Seq]
    lease_ms: Count
    lease_ids: list[str] | None = None


class Performance(msgspec.Struct, omit_defaults=True):
    """How long the answer took, in ms. fsync_ms: of it, the durable commit, the wait for its group included."""

    server_total_ms: float
    fsync_ms: float | UnsetType = UNSET
    throttle_wait_ms: float | UnsetType = UNSET


class ResolvedConfig(msgspec.Struct):
    """A topic's configuration, defaults filled in and clamps applied."""

    type: str
    durable: bool
    durability: str
    lease_ms: int
    claim_jitter_ms: int
    max_deliveries: int
    dead_letter: str | None
    on_exhausted: str
    ttl_ms: int
    cap_records: int
    cap_bytes: int
    discard: str
    idempotency_window_ms: int
    priority: int | None
    auto_priority: bool
    auto_create: bool
    dedupe_node: bool
    leases_durable: bool


class PutAnswer(msgspec.Struct):
    """The topic as it is now."""

    topic: str
    created: bool
    config: ResolvedConfig
    performance: Performance


class QueueCounts(msgspec.Struct):
    """ready and in_flight now; dead_lettered over the life of the topic."""

    ready: int
    in_flight: int
    dead_lettered: int


class StateAnswer(msgspec.Struct):
    """A topic. count and bytes are of what is live."""

    topic: str
    type: str
    head_seq: int
    earliest_seq: int
    next_seq: int
    count: int
    bytes: int
    config: ResolvedConfig
    effective_priority: int
    last_write_ts: int | None
    last_read_ts: int | None
    performance: Performance
    queue: QueueCounts | UnsetType = UNSET


class ListItem(msgspec.Struct):
    """A topic in a list."""

    topic: str
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    durable: bool
    effective_priority: int


class ListAnswer(msgspec.Struct):
    """A page of topics by name; `next_cursor` is absent on the last one."""

    topics: list[ListItem]
    performance: Performance
    next_cursor: str | UnsetType = UNSET


class DeleteAnswer(msgspec.Struct):
    """Whether there was such a topic."""

    topic: str
    deleted: bool
    routers_removed: list[str]
    performance: Performance


class AppendAnswer(msgspec.Struct):
    """The seqs of the new jobs, ascending, in the order of the records."""

    topic: str
    first_seq: int
    last_seq: int
    head_seq: int
    count: int
    created: bool
    deduped: bool
    performance: Performance
    seqs: list[int] | UnsetType = UNSET


class JobShown(msgspec.Struct, kw_only=True):
    """A leased job. `deadline` and `$ts` are in ms since 1970."""

    seq: int = msgspec.field(name="$seq")
    lease_id: str
    deadline: int
    ts: int = msgspec.field(name="$ts")
    deliveries: int
    data: Raw
    tag: str | UnsetType = msgspec.field(name="$tag", default=UNSET)
    meta: dict[str, Any] | UnsetType = UNSET
    token: str


class ClaimAnswer(msgspec.Struct):
    """The jobs leased, ascending by $seq; fewer than asked for when the queue is nearly empty."""

    topic: str
    claimed: list[JobShown]
    count: int
    ready: int
    performance: Performance


class AckAnswer(msgspec.Struct):
    """How many were completed; those in `skipped` were not this holder's."""

    topic: str
    acked: int
    skipped: list[int]
    ready: int
    in_flight: int
    performance: Performance


class NackAnswer(msgspec.Struct):
    """How many were returned; those in `skipped` were not this holder's."""

    topic: str
    nacked: int
    skipped: list[int]
    ready: int
    in_flight: int
    performance: Performance


class ExtendAnswer(msgspec.Struct):
    """How many leases were extended, and their deadlines in ms since 1970, by seq."""

    topic: str
    extended: int
    skipped: list[int]
    deadlines: dict[str, int]
    performance: Performance


class HorizonAnswer(Horizon, frozen=True):
    """Who holds back PostgreSQL's xmin horizon, the oldest first, 100 at most."""

    performance: Performance
