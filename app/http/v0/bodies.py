"""Bodies and answers of the v0 routes. A field that a body does not list is a 400."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from app.http.bounds import MAX_NODE_BYTES, MAX_NODES, Count, Holder, LeaseMs, Seq, Tags, Tenants, Wait, about, text
from app.kernel.topics.settings import PATTERN

MAX_WATCHED = 256  # topics of one watch
MAX_CLAIMED_TOPICS = 32  # topics of one claim
_TAG_PATTERN = {"type": "string", "maxLength": 256}
_MATCH: dict[str, Any] = {
    "oneOf": [
        {"type": "string", "maxLength": 256, "pattern": "^[^*\\u0000]*\\*?$"},
        {
            "type": "array",
            "prefixItems": [{"const": "tag"}, {"const": "Eq"}, {**_TAG_PATTERN, "pattern": "^[^\\u0000]*$"}],
            "items": False,
            "minItems": 3,
        },
        {
            "type": "array",
            "prefixItems": [{"const": "tag"}, {"const": "Glob"}, {**_TAG_PATTERN, "pattern": "^[^*\\u0000]*\\*$"}],
            "items": False,
            "minItems": 3,
        },
        {"type": "null"},
    ]
}


Nodes = Annotated[
    Annotated[str, text("A name.", most=MAX_NODE_BYTES)]
    | Annotated[list[Annotated[str, text("A name.", most=MAX_NODE_BYTES)]], about("Names.", maxItems=MAX_NODES)]
    | None,
    about("Whose records are left out, byte for byte."),
]


class DiffBody(msgspec.Struct, forbid_unknown_fields=True):
    """From where to read, and how much."""

    from_seq: Annotated[Seq | None, about("The last seq that the reader has.", 0)] = None
    limit: Annotated[Count | None, about("Most records; 0 is the default, clamped to 1000.", 256)] = None
    node: Nodes = None
    include_tags: Annotated[bool | None, about("Whether to show $tag.", False)] = None
    include_meta: Annotated[bool | None, about("Whether to show meta.", True)] = None
    include_data: Annotated[bool | None, about("Whether to show data.", True)] = None
    wait_ms: Annotated[Count | None, about("How long to wait if there is nothing, clamped to 30000.", 0)] = None
    max_batch_bytes: Annotated[
        Count | None, about("Most bytes of data and meta; 0 is the default, clamped to 8 MiB.", 1024 * 1024)
    ] = None


class WatchFrom(msgspec.Struct, forbid_unknown_fields=True):
    """Where a topic is watched from: after this seq; or, with `tail`, after what it has now."""

    from_seq: Annotated[Seq | None, about("The last seq that the client has.", 0)] = None
    tail: Annotated[bool | None, about("Whether only what comes from now on is told.", False)] = None


class WatchBody(msgspec.Struct, forbid_unknown_fields=True):
    """1 to 256 topics to watch, and how much comes at a time."""

    topics: Annotated[
        dict[str, WatchFrom | None],
        Meta(
            description="Topics by name; null is from the beginning.",
            min_length=1,
            max_length=MAX_WATCHED,
            extra_json_schema={"propertyNames": {"pattern": PATTERN}},
        ),
    ]
    node: Nodes = None
    limit: Annotated[Count | None, about("Most records of an event; 0 is the default, clamped to 1000.", 256)] = None
    max_batch_bytes: Annotated[
        Count | None,
        about("Most bytes of data and meta of an event; 0 is the default, clamped to 1 MiB.", 256 * 1024),
    ] = None
    heartbeat_ms: Annotated[
        Count | None, about("After how long without a frame a comment comes, clamped to 1000 to 60000.", 15_000)
    ] = None
    include_meta: Annotated[bool | None, about("Whether to show meta.", True)] = None
    include_tags: Annotated[bool | None, about("Whether to show $tag.", False)] = None
    include_data: Annotated[bool | None, about("Whether to show data.", True)] = None
    consistency: Annotated[Literal["eventual", "strong"] | None, about("Changes nothing.")] = None


class DeleteBody(msgspec.Struct, forbid_unknown_fields=True):
    """What to delete: what is below a seq, what has a tag, or what is both."""

    RULES: ClassVar[dict[str, Any]] = {
        "anyOf": [
            {"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in ("before_seq", "match")
        ]
    }
    before_seq: Annotated[Seq | None, about("What has a lower seq.")] = None
    match: Annotated[
        str | list[str] | None,
        about(
            '["tag", "Eq", "x"]; ["tag", "Glob", "x*"]; or a text, which is the second if it ends in a star, else the '
            "first.",
            **_MATCH,
        ),
    ] = None


class ClaimBody(msgspec.Struct, forbid_unknown_fields=True):
    """Who claims, how many jobs and for how long."""

    node: Holder
    max: Annotated[Count | None, about("Most jobs, clamped to 1 to 1000.", 1)] = None
    lease_ms: Annotated[LeaseMs | None, about("The topic's if absent.")] = None
    wait_ms: Annotated[Wait | None, about("How long to wait for the first job, in ms.", 0)] = None
    tenants: Tenants = None
    tags: Tags = None


class ClaimAnyBody(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Who claims, from which topics, how many jobs in all and for how long."""

    topics: Annotated[
        list[Annotated[str, Meta(extra_json_schema={"pattern": PATTERN})]],
        Meta(
            description="1 to 32 queues, in the order in which they are asked.",
            min_length=1,
            max_length=MAX_CLAIMED_TOPICS,
        ),
    ]
    node: Holder
    max: Annotated[Count | None, about("Most jobs in all, clamped to 1 to 1000.", 1)] = None
    lease_ms: Annotated[LeaseMs | None, about("Each job's topic's if absent.")] = None
    wait_ms: Annotated[Wait | None, about("How long to wait for the first job, in ms.", 0)] = None
    tenants: Tenants = None
    tags: Tags = None


class Performance(msgspec.Struct, omit_defaults=True):
    """How long the answer took, in ms. fsync_ms: of it, the durable commit, the wait for its group included."""

    server_total_ms: float
    fsync_ms: float | UnsetType = UNSET
    throttle_wait_ms: float | UnsetType = UNSET


class JobShown(msgspec.Struct, kw_only=True):
    """A leased job. `deadline` and `$ts` are in ms since 1970. Of the deliveries before this one, `crashes`
    ended by their deadline and `failures` otherwise. 0 is left out, and suspected_poison where it is false."""

    seq: int = msgspec.field(name="$seq")
    lease_id: str
    deadline: int
    ts: int = msgspec.field(name="$ts")
    deliveries: int
    crashes: int | UnsetType = UNSET
    failures: int | UnsetType = UNSET
    suspected_poison: bool | UnsetType = UNSET
    data: Raw
    content_type: str | UnsetType = UNSET
    tag: str | UnsetType = msgspec.field(name="$tag", default=UNSET)
    key: str | UnsetType = UNSET
    group: str | UnsetType = UNSET
    tenant: str | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = UNSET
    token: str


class JobClaimed(JobShown, kw_only=True):
    """A job of a claim's answer. `order` is its place in claim order, 1 for the job to begin with."""

    order: int


class ClaimAnswer(msgspec.Struct):
    """The jobs leased, ascending by $seq; fewer than asked for when the queue is nearly empty."""

    topic: str
    claimed: list[JobClaimed]
    count: int
    performance: Performance
    ready: int | UnsetType = UNSET


class JobOfTopic(JobClaimed, kw_only=True):
    """A leased job, and the topic that it is from."""

    topic: str


class ClaimAnyAnswer(msgspec.Struct):
    """The jobs leased, by topic as they were named, ascending by $seq in each. order goes on from topic to topic; ready
    is of all these topics."""

    claimed: list[JobOfTopic]
    count: int
    performance: Performance
    ready: int | UnsetType = UNSET


class RecordShown(msgspec.Struct, kw_only=True):
    """A record of a log, or a job of a queue, as a reader sees it. `$ts` is in ms since 1970."""

    seq: int = msgspec.field(name="$seq")
    ts: int = msgspec.field(name="$ts")
    node: str | UnsetType = msgspec.field(name="$node", default=UNSET)
    tag: str | UnsetType = msgspec.field(name="$tag", default=UNSET)
    data: Raw
    meta: dict[str, Any] | UnsetType = UNSET


class Tombstone(msgspec.Struct):
    """Records from gap_from to gap_to were lost before this reader came: to caps, to age (ttl), to both (mixed), or
    because the topic was made anew; or, on a watch, before the place that its client chose (from_seq_too_old). What was
    deleted counts only as part of a gap."""

    gap_from: int
    gap_to: int
    reason: Literal["cap", "ttl", "mixed", "recreated", "from_seq_too_old"]
    missed_estimate: int
    earliest_seq: int
    head_seq: int


class DiffPerformance(msgspec.Struct):
    """How long the answer took, in ms, waiting included; and how many seqs were looked at."""

    server_total_ms: float
    records_scanned: int


class DiffAnswer(msgspec.Struct):
    """What comes after the cursor; the next call's is next_from_seq, the last seq that was looked at."""

    topic: str
    records: list[RecordShown]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    tombstone: Tombstone | None
    lag: int
    performance: DiffPerformance


class WatchedTopic(msgspec.Struct):
    """Where the watch of a topic begins, and how far the topic goes."""

    from_seq: int
    head_seq: int
    earliest_seq: int


class WatchAnswer(msgspec.Struct):
    """A watch: open `stream_url` within session_ttl_ms, and again so long after a connection has ended."""

    wid: str
    stream_url: str
    session_ttl_ms: int
    topics: dict[str, WatchedTopic]
    performance: Performance


class RecordsDeletedAnswer(msgspec.Struct):
    """How many were deleted, and what is left. marked, of a queue: how many are leased; unless their holders
    acknowledge them, they end with their leases."""

    topic: str
    deleted: int
    earliest_seq: int
    head_seq: int
    count: int
    bytes: int
    performance: Performance
    marked: int | UnsetType = UNSET
