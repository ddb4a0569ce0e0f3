"""POST /v0/topics/:topic/diff: what comes after a cursor."""

from __future__ import annotations

import time
from bisect import bisect_right
from typing import Final

import msgspec
from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import Response

from app.base.keys import Scope
from app.errors import InvalidRequest, Unauthorized
from app.features.logs.diffs import Diffs
from app.http import direct
from app.http.body import read_json
from app.http.bounds import MAX_NODE_BYTES, MAX_NODES, seq_within
from app.http.calls import count_as
from app.http.context import context_of
from app.http.departure import while_connected
from app.http.fields import check_text, encode, topic_in
from app.http.openapi import TOPIC, operation
from app.http.sight import must_see_payloads
from app.http.v0.bodies import DiffAnswer, DiffBody, Tombstone
from app.http.v0.fields import answer
from app.kernel.forms import as_json
from app.kernel.logs.log import Ask, Records
from app.kernel.logs.reads import Diff
from app.kernel.topics.config import Policy, check_name

router = direct.router("records")

DEFAULT_LIMIT: Final = 256
MAX_LIMIT: Final = 1_000
DEFAULT_BYTES: Final = 1024 * 1024
MAX_BYTES: Final = 8 * 1024 * 1024
MAX_WAIT_MS: Final = 30_000

_body = msgspec.json.Decoder(DiffBody)


@router.post(
    "/v0/topics/{topic}/diff",
    response_class=Response,
    openapi_extra=operation(
        parameters=[TOPIC],
        body=DiffBody,
        body_required=False,
        answers={200: DiffAnswer},
        errors=[400, 401, 403, 404, 413, 415, 503],
    ),
)
async def diff(request: Request) -> Response:
    """Read records after a cursor, oldest first; with `wait_ms`, wait so long for the first. Of a queue, its live jobs,
    without claiming them."""
    began = time.perf_counter()
    context = context_of(request)
    name = topic_in(request)
    key = context.access.check(request, Scope.READ, name)
    body = await read_json(request, _body, context.settings.max_body_bytes, empty=b"{}")
    context.quota.must_have_room(0)  # an answer may be large, and lies here until it is read
    check_name(name)
    if body.include_data is not False or body.include_meta is not False:
        must_see_payloads(key, name)
    nodes = nodes_of(body.node)
    diffs = context.core(Diffs)

    def ask(policy: Policy) -> Ask:
        context.engine.reads.note(policy.topic.id)
        return ask_of(policy, body, nodes)

    if body.wait_ms:
        seconds = min(body.wait_ms, MAX_WAIT_MS) / 1000
        count_as(request, "diff_wait")  # its time is the wait's
        reading = context.policies.confirmed(name, lambda p: diffs.read(p, ask(p), seconds))
        found = await while_connected(request, reading)
        if not context.access.still_good(key):
            raise Unauthorized("This key was revoked or has expired.")
    else:
        found = await context.policies.confirmed(name, lambda p: diffs.once(p, ask(p)))
    return shown(name, body.from_seq or 0, found, began)


def nodes_of(node: str | list[str] | None) -> list[str]:
    """The nodes whose records a reader does not want. Raises InvalidRequest."""
    if node is None:
        return []
    nodes = [node] if isinstance(node, str) else node
    if len(nodes) > MAX_NODES:
        raise InvalidRequest(f"node has more than {MAX_NODES} entries.")
    return [check_text(one, "node", MAX_NODE_BYTES) for one in nodes]


def ask_of(policy: Policy, body: DiffBody, nodes: list[str]) -> Ask:
    """What a reader wants, with defaults and clamps."""
    return Ask(
        after=seq_within(body.from_seq or 0),
        limit=min(body.limit or DEFAULT_LIMIT, MAX_LIMIT),
        max_bytes=min(body.max_batch_bytes or DEFAULT_BYTES, MAX_BYTES),
        without=nodes if policy.config.dedupe_node else (),
        tags=bool(body.include_tags),
        metadata=body.include_meta is not False,
        payloads=body.include_data is not False,
    )


def shown(name: str, after: int, found: Diff, began: float) -> Response:
    """The answer: what was read, put together from pieces that are JSON already."""
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
    """Each record as JSON; without its data where that was not read."""
    if any(records.content_types):
        shown = zip(records.payloads, records.content_types, strict=True)
        data = [payload if payload is None else as_json(payload, content_type) for payload, content_type in shown]
        records = replace(records, payloads=data, content_types=())
    # Most records have none of the three; for those, one format.
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
    """What a reader with this cursor has lost to caps, age, or a topic made anew; None for nothing. What was deleted
    was not lost."""
    extent = found.extent
    if after > extent.head_seq:
        lost_to = max(extent.earliest_seq - 1, extent.cap_lost_to, extent.ttl_lost_to)
        gap = (1, lost_to, "recreated")  # it reads from the start now
    else:
        by_cap, by_age = extent.cap_lost_to > after, extent.ttl_lost_to > after
        if not by_cap and not by_age:
            return None
        lost_to = max(extent.cap_lost_to, extent.ttl_lost_to)
        gap = (after + 1, lost_to, "mixed" if by_cap and by_age else "cap" if by_cap else "ttl")
    first, last, reason = gap
    missed = last - first + 1 - bisect_right(found.records.seqs, last)  # of a queue, what stays lies among what is lost
    return Tombstone(first, last, reason, missed, extent.earliest_seq, extent.head_seq)  # type: ignore[arg-type]
