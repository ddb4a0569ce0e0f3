"""POST /v0/topics/:topic/cancel and /operations: jobs that nobody is to work on any more."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import Meta

from app.errors import BatchTooLarge, InvalidRequest
from app.features.jobs.changes import Changes
from app.features.jobs.operation_requests import MAX_RATE
from app.features.jobs.redrive_bodies import OperationCount, begin_or_count
from app.features.jobs.requests import (
    MAX_DATA,
    MAX_ERROR_PART,
    MAX_NODE,
    cancel_matching,
    cancels,
    data_of,
    must_be_live,
)
from app.http.bounds import DATUM, MAX_SEQS, Group, Key, Priority, Seqs, Tag, about, seq_within
from app.http.fields import check_text
from app.http.route import Call
from app.http.sight import must_see_what_it_asks
from app.kernel.jobs import Match
from app.kernel.model import MAX_GROUP, MAX_TAG_BYTES, Seq
from app.kernel.topics.settings import TEN_YEARS_MS

_Live = Literal["ready", "scheduled", "blocked", "leased"]


class CancelFilter(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Jobs that have all of these; at least one is needed."""

    state: Annotated[_Live | None, about("By the database's clock.")] = None
    priority: Annotated[Priority | None, about("Of this priority.")] = None
    tag: Tag | None = None
    key: Annotated[Key | None, about("With this key.")] = None
    tenant: Annotated[Annotated[str, Meta(max_length=MAX_GROUP)] | None, about('"" is the default one.')] = None
    group: Annotated[Group | None, about("Of this group.")] = None
    node: Annotated[Annotated[str, Meta(max_length=MAX_NODE)] | None, about("That this worker holds.")] = None
    error: Annotated[Annotated[str, Meta(max_length=MAX_ERROR_PART)] | None, about("A part of their last error.")] = (
        None
    )
    data: Annotated[
        Annotated[list[Annotated[str, Meta(extra_json_schema=DATUM)]], Meta(extra_json_schema={"maxItems": MAX_DATA})]
        | None,
        about("path=value, as the list of jobs takes it."),
    ] = None
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


class BeginBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A cancel of all jobs that match, however many, and how fast. Requeues have a route of their own."""

    kind: Annotated[Literal["cancel"], about("What is to be done to them.")]
    filter: CancelFilter
    rate: Annotated[Annotated[int, Meta(ge=0, le=MAX_RATE)] | None, about("Most jobs a second; 0: no bound.", 0)] = None
    dry_run: Annotated[bool | None, about("Count what matches, and change nothing.", False)] = None


async def cancel(call: Call, body: CancelBody) -> CancelAnswer:
    """Cancel jobs: those that wait are gone, those that are leased are not delivered again. Safe to repeat. By filter,
    all jobs of the topic are looked at, unless it names a key."""
    if (body.seqs is None) == (body.filter is None):
        raise InvalidRequest("seqs or filter is needed, and not both.")
    if body.filter is not None:
        match = must_be_live(_match(body.filter))
        policy = await call.queue()
        must_see_what_it_asks(call.key, call.topic, match)
        return CancelAnswer(call.topic, *await cancel_matching(call.request, policy, match), [])
    seqs, policy = body.seqs or [], await call.queue()
    if len(seqs) > MAX_SEQS:
        raise BatchTooLarge(f"At most {MAX_SEQS} seqs a call.", {"seqs": len(seqs), "max": MAX_SEQS})
    done = await call.context.core(Changes).cancel(policy, [Seq(seq_within(seq)) for seq in seqs])
    skipped = [seq for seq in seqs if seq not in done.gone and seq not in done.marked]
    return CancelAnswer(call.topic, len(done.gone), len(done.marked), skipped)


async def begin(call: Call, body: BeginBody) -> tuple[int, OperationCount]:
    """Cancel all jobs that a filter matches and that were enqueued by now, whoever leaves: GET /v0/operations/{id} says
    how far it is."""
    policy, match = await call.queue(), _match(body.filter)
    must_see_what_it_asks(call.key, call.topic, match)
    return await begin_or_count(call, cancels(policy, match, body.rate or 0), dry_run=bool(body.dry_run))


def _match(given: CancelFilter) -> Match:
    return Match(
        states=None if given.state is None else [given.state],
        tenant=given.tenant,
        tag=None if given.tag is None else check_text(given.tag, "tag", MAX_TAG_BYTES),
        key=given.key,
        group=given.group,
        older_than_ms=given.older_than_ms,
        priority=given.priority,
        node=given.node,
        error=given.error,
        data=data_of(given.data or ()),
    )
