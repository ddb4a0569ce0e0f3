"""POST /v0/topics/:topic/cancel: jobs that nobody is to work on any more."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from app.api import direct
from app.api.body import read_json
from app.api.bounds import MAX_SEQS, Group, Key, Seqs, Tag, about, seq_within
from app.api.fields import check_text, encode, topic_in
from app.api.openapi import TOPIC, operation
from app.api.v0.bodies import Performance
from app.api.v0.fields import answer
from app.edge.context import context_of
from app.edge.jobs import cancel_matching
from app.errors import BatchTooLarge, InvalidRequest
from app.keys import Scope
from app.queue.model import MAX_GROUP, MAX_TAG_BYTES, Seq
from app.queue.shown import Match
from app.topics.config import TEN_YEARS_MS, check_name

router = direct.router("jobs")


class CancelFilter(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Jobs that have all of these; at least one is needed."""

    tag: Tag | None = None
    key: Annotated[Key | None, about("With this key.")] = None
    tenant: Annotated[Annotated[str, Meta(max_length=MAX_GROUP)] | None, about('"" is the default one.')] = None
    group: Annotated[Group | None, about("Of this group.")] = None
    older_than_ms: Annotated[
        Annotated[int, Meta(ge=0, le=TEN_YEARS_MS)] | None, about("Enqueued so long ago, or earlier.")
    ] = None


class CancelBody(msgspec.Struct, forbid_unknown_fields=True):
    """Jobs by seq, or those that a filter matches at this moment: one of the two."""

    seqs: Seqs | None = None
    filter: CancelFilter | None = None


class CancelAnswer(msgspec.Struct):
    """cancelled: how many waited, and are gone. marked: how many are leased; their holders learn of it from their next
    extend, and unless they acknowledge them, they end with their leases. skipped: seqs that are not there, or over."""

    topic: str
    cancelled: int
    marked: int
    skipped: list[int]
    performance: Performance


_body = msgspec.json.Decoder(CancelBody)


@router.post(
    "/v0/topics/{topic}/cancel",
    response_class=Response,
    openapi_extra=operation(
        parameters=[TOPIC],
        body=CancelBody,
        answers={200: CancelAnswer},
        errors=[400, 401, 403, 404, 409, 413, 415, 503],
    ),
)
async def cancel(request: Request) -> Response:
    """Cancel jobs: those that wait are gone, those that are leased are not delivered again. Safe to repeat. By filter,
    all jobs of the topic are looked at, unless it names a key."""
    began = time.perf_counter()
    context, name = context_of(request), topic_in(request)
    context.access.check(request, Scope.WRITE, name)
    body = await read_json(request, _body, context.settings.max_body_bytes)
    check_name(name)
    if (body.seqs is None) == (body.filter is None):
        raise InvalidRequest("seqs or filter is needed, and not both.")
    match = None if body.filter is None else _match(body.filter)
    policy = await context.policies.queue(name)
    if match is not None:
        gone, marked = await cancel_matching(request, policy, match)
        skipped: list[int] = []
    else:
        seqs = body.seqs or []
        if len(seqs) > MAX_SEQS:
            raise BatchTooLarge(f"At most {MAX_SEQS} seqs a call.", {"seqs": len(seqs), "max": MAX_SEQS})
        done = await context.engine.changes.cancel(policy, [Seq(seq_within(seq)) for seq in seqs])
        gone, marked = len(done.gone), len(done.marked)
        skipped = [seq for seq in seqs if seq not in done.gone and seq not in done.marked]
    fields = {"topic": name, "cancelled": gone, "marked": marked, "skipped": skipped}
    return answer(encode(fields)[1:-1], began)


def _match(given: CancelFilter) -> Match:
    tag = None if given.tag is None else check_text(given.tag, "tag", MAX_TAG_BYTES)
    match = Match(None, given.tenant, tag, given.key, given.group, given.older_than_ms)
    if match.is_all:
        raise InvalidRequest("filter needs at least one field; older_than_ms: 0 is all jobs.")
    return match
