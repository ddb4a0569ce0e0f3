"""POST /v0/topics/:topic/diff (read after a cursor) and /delete (records of a log, or waiting jobs of a queue)."""

from __future__ import annotations

from bisect import bisect_right
from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec
from msgspec import UNSET, Raw, UnsetType
from msgspec.structs import replace
from starlette.responses import Response

from app.errors import InvalidRequest, Unauthorized
from app.features.logs.diffs import Diffs
from app.features.topics.v0 import extent_of
from app.http.bounds import MAX_NODE_BYTES, MAX_NODES, Count, Seq, about, seq_within, text
from app.http.calls import count_as
from app.http.departure import while_connected
from app.http.fields import check_text, encode
from app.http.route import Call
from app.http.sight import must_see_payloads
from app.http.v0.dialect import answer
from app.kernel.audit import trail
from app.kernel.audit.trail import Action
from app.kernel.logs.log import Ask, Diff, Records, TagMatch
from app.kernel.model import MAX_TAG_BYTES, as_json
from app.kernel.topics.policy import Policy, check_name
from app.kernel.topics.settings import TopicType

DEFAULT_LIMIT: Final = 256
MAX_LIMIT: Final = 1_000
DEFAULT_BYTES: Final = 1024 * 1024
MAX_BYTES: Final = 8 * 1024 * 1024
MAX_WAIT_MS: Final = 30_000
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
    about("Nodes whose records are left out. Names are compared byte for byte."),
]


class DiffBody(msgspec.Struct, forbid_unknown_fields=True):
    """The cursor, and how much to read."""

    from_seq: Annotated[Seq | None, about("The last seq that the reader has.", 0)] = None
    limit: Annotated[Count | None, about("Most records, clamped to 1000. 0: the default.", 256)] = None
    node: Nodes = None
    include_tags: Annotated[bool | None, about("Whether to show $tag.", False)] = None
    include_meta: Annotated[bool | None, about("Whether to show meta.", True)] = None
    include_data: Annotated[bool | None, about("Whether to show data.", True)] = None
    wait_ms: Annotated[Count | None, about("How long to wait if there are no records, in ms, clamped to 30000.", 0)] = (
        None
    )
    max_batch_bytes: Annotated[
        Count | None, about("Most bytes of data and meta, clamped to 8 MiB. 0: the default.", 1024 * 1024)
    ] = None


class DeleteBody(msgspec.Struct, forbid_unknown_fields=True):
    """The records to delete: below a seq, with a matching tag, or both."""

    RULES: ClassVar[dict[str, Any]] = {
        "anyOf": [
            {"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in ("before_seq", "match")
        ]
    }
    before_seq: Annotated[Seq | None, about("Records with a lower seq.")] = None
    match: Annotated[
        str | list[str] | None,
        about(
            '["tag", "Eq", "x"], ["tag", "Glob", "x*"], or a text: a glob if it ends with a star, else an exact match.',
            **_MATCH,
        ),
    ] = None


class RecordShown(msgspec.Struct, kw_only=True):
    """A record of a log or a job of a queue. `$ts` is in ms since 1970. There is no `data` if include_data is false."""

    seq: int = msgspec.field(name="$seq")
    ts: int = msgspec.field(name="$ts")
    node: str | UnsetType = msgspec.field(name="$node", default=UNSET)
    tag: str | UnsetType = msgspec.field(name="$tag", default=UNSET)
    data: Raw | UnsetType = UNSET
    meta: dict[str, Any] | UnsetType = UNSET


class Tombstone(msgspec.Struct):
    """Records from gap_from to gap_to were lost before the reader got to them. Reasons: caps, age (ttl), both (mixed),
    or the topic was deleted and created again (recreated). On a watch, from_seq_too_old: before the place that its
    client chose. Deleted records only count as a part of a gap."""

    gap_from: int
    gap_to: int
    reason: Literal["cap", "ttl", "mixed", "recreated", "from_seq_too_old"]
    missed_estimate: int
    earliest_seq: int
    head_seq: int


class DiffPerformance(msgspec.Struct):
    """The time of the call in ms, waiting included, and the number of scanned seqs."""

    server_total_ms: float
    records_scanned: int


class DiffAnswer(msgspec.Struct):
    """Records after the cursor. `next_from_seq`, the last scanned seq, is the cursor of the next call."""

    topic: str
    records: list[RecordShown]
    next_from_seq: int
    head_seq: int
    earliest_seq: int
    caught_up: bool
    tombstone: Tombstone | None
    lag: int
    performance: DiffPerformance


class RecordsDeletedAnswer(msgspec.Struct, kw_only=True):
    """The number of deleted records, and the rest of the topic. `marked`, for a queue: the number of leased jobs. They
    end with their leases unless they are acknowledged before."""

    topic: str
    deleted: int
    marked: int | UnsetType = UNSET
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int


async def diff(call: Call, body: DiffBody) -> Response:
    """Read records after a cursor, oldest first. With `wait_ms`, wait for the first one. In a queue, it reads live jobs
    without claiming them."""
    context = call.context
    context.quota.must_have_room(0)  # the answer may be large, and stays in memory until it is sent
    name = check_name(call.topic)
    if body.include_data is not False or body.include_meta is not False:
        must_see_payloads(call.key, name)
    nodes = nodes_of(body.node)
    diffs = context.core(Diffs)

    def ask(policy: Policy) -> Ask:
        context.engine.reads.note(policy.topic.id)
        return ask_of(policy, body, nodes)

    if body.wait_ms:
        seconds = min(body.wait_ms, MAX_WAIT_MS) / 1000
        count_as(call.request, "diff_wait")  # most of its time is waiting
        reading = context.policies.with_current(name, lambda p: diffs.read(p, ask(p), seconds))
        found = await while_connected(call.request, reading)
        if not context.access.still_good(call.key):
            raise Unauthorized("This key was revoked or has expired.")
    else:
        found = await context.policies.with_current(name, lambda p: diffs.once(p, ask(p)))
    return diff_answer(name, body.from_seq or 0, found, call.began)


async def delete(call: Call, body: DeleteBody) -> RecordsDeletedAnswer:
    """Delete the current records below a seq, or with a tag. This can't be undone, and readers get no tombstone. In a
    queue, leased jobs are marked as cancelled."""
    context, name = call.context, check_name(call.topic)
    if body.before_seq is None and body.match is None:
        raise InvalidRequest("before_seq or match is required.")
    match = match_of(body.match)
    logs, by = context.engine.logs, context.access.actor(call.request)

    async def deletion(policy: Policy) -> RecordsDeletedAnswer:
        # Before the deletion, as an interrupted one has deleted a part.
        asked = {"before_seq": body.before_seq, "match": body.match}
        await trail.record(context.pools.rest, by, Action.RECORDS_DELETED, name, asked)
        marked: int | UnsetType = UNSET
        if policy.config.type is TopicType.LOG:
            deleted = await logs.delete(policy, body.before_seq, match)
        else:
            deleted, marked = await logs.delete_jobs(policy, body.before_seq, match)
        extent, _ = await extent_of(context, policy)
        return RecordsDeletedAnswer(topic=name, deleted=deleted, marked=marked, **extent)

    return await context.policies.with_current(name, deletion)


def nodes_of(node: str | list[str] | None) -> list[str]:
    """Check the nodes whose records a reader leaves out. Raises InvalidRequest."""
    if node is None:
        return []
    nodes = [node] if isinstance(node, str) else node
    if len(nodes) > MAX_NODES:
        raise InvalidRequest(f"node has more than {MAX_NODES} entries.")
    return [check_text(one, "node", MAX_NODE_BYTES) for one in nodes]


def ask_of(policy: Policy, body: DiffBody, nodes: list[str]) -> Ask:
    """Build a read from a body, with defaults and clamps."""
    return Ask(
        after=seq_within(body.from_seq or 0),
        limit=min(body.limit or DEFAULT_LIMIT, MAX_LIMIT),
        max_bytes=min(body.max_batch_bytes or DEFAULT_BYTES, MAX_BYTES),
        without=nodes if policy.config.dedupe_node else (),
        tags=bool(body.include_tags),
        metadata=body.include_meta is not False,
        payloads=body.include_data is not False,
    )


def diff_answer(name: str, after: int, found: Diff, began: float) -> Response:
    """Build the answer of a read. Its parts are JSON already."""
    extent, records = found.extent, found.records
    lost = tombstone(after, found)
    fields = (
        b'"topic":"%b","records":[%b],"next_from_seq":%d,"head_seq":%d,"earliest_seq":%d,"caught_up":%b,'
        b'"tombstone":%b,"lag":%d'
        % (
            name.encode(),
            b",".join(records_shown(records)),
            records.next_seq,
            extent.head_seq,
            extent.earliest_seq,
            b"true" if records.next_seq == extent.head_seq else b"false",
            b"null" if lost is None else encode(lost),
            extent.head_seq - records.next_seq,
        )
    )
    first = max(after if after <= extent.head_seq else 0, extent.earliest_seq - 1)
    return answer(fields, began, b',"records_scanned":%d' % max(records.next_seq - first, 0))


def records_shown(records: Records) -> list[bytes]:
    """Encode each record as JSON, without its data if that was not read."""
    if any(records.content_types):
        shown = zip(records.payloads, records.content_types, strict=True)
        data = [payload if payload is None else as_json(payload, content_type) for payload, content_type in shown]
        records = replace(records, payloads=data, content_types=())
    # A faster format for the common case.
    without_data = records.payloads[:1] == [None]  # all have it or none
    if not (any(records.nodes) or any(records.tags) or any(records.metadata) or without_data):
        return [
            b'{"$seq":%d,"$ts":%d,"data":%b}' % triple  # type: ignore[str-format]
            for triple in zip(records.seqs, records.times, records.payloads, strict=True)
        ]
    return [
        b'{"$seq":%d,"$ts":%d%b%b%b%b}'
        % (
            seq,
            at,
            b"" if node is None else b',"$node":%b' % encode(node),
            b"" if tag is None else b',"$tag":%b' % encode(tag),
            b"" if payload is None else b',"data":%b' % payload,
            b"" if meta is None else b',"meta":%b' % meta.encode(),
        )
        for seq, at, node, tag, meta, payload in zip(
            records.seqs, records.times, records.nodes, records.tags, records.metadata, records.payloads, strict=True
        )
    ]


def tombstone(after: int, found: Diff) -> Tombstone | None:
    """Return the records that a reader with this cursor has lost to caps, age, or a recreated topic; None if there are
    none. Deleted records are not lost."""
    extent = found.extent
    if after > extent.head_seq:
        lost_to = max(extent.earliest_seq - 1, extent.cap_lost_to, extent.ttl_lost_to)
        gap = (1, lost_to, "recreated")  # the reader goes on from the start
    else:
        by_cap, by_age = extent.cap_lost_to > after, extent.ttl_lost_to > after
        if not by_cap and not by_age:
            return None
        lost_to = max(extent.cap_lost_to, extent.ttl_lost_to)
        gap = (after + 1, lost_to, "mixed" if by_cap and by_age else "cap" if by_cap else "ttl")
    first, last, reason = gap
    missed = last - first + 1 - bisect_right(found.records.seqs, last)  # jobs of a queue may exist within the gap
    return Tombstone(first, last, reason, missed, extent.earliest_seq, extent.head_seq)  # type: ignore[arg-type]


def match_of(given: str | list[str] | None) -> TagMatch:
    """Parse a match of tags. Raises InvalidRequest."""
    if given is None:
        return TagMatch()
    if isinstance(given, str):
        given = ["tag", "Glob" if given.endswith("*") else "Eq", given]
    match given:
        case ["tag", "Eq", tag]:
            return TagMatch(tag=check_text(tag, "match", MAX_TAG_BYTES))
        case ["tag", "Glob", pattern] if pattern.endswith("*") and "*" not in pattern[:-1]:
            return TagMatch(prefix=check_text(pattern[:-1], "match", MAX_TAG_BYTES))
    raise InvalidRequest(
        'match must be ["tag", "Eq", "x"], ["tag", "Glob", "x*"] with its only star at the end, or a text.'
    )
