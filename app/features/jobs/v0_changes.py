"""Jobs in the v0 dialect: change, cancel, and take leases back."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from app.errors import BatchTooLarge, InvalidRequest
from app.features.jobs import v0
from app.features.jobs.changes import Change, Changes, Payload
from app.features.jobs.filters import MAX_DATA, MAX_ERROR_PART, MAX_NODE, data_of, must_be_live
from app.features.jobs.requests import (
    MAX_RATE,
    Leases,
    OperationCount,
    begin_or_count,
    cancel_matching,
    cancels,
    release,
)
from app.http.bounds import DATUM, MAX_NODE_BYTES, MAX_SEQS, Group, Key, Priority, Seqs, Tag, about, seq_within, text
from app.http.fields import check_node, check_text, seq_in
from app.http.payloads import JSON, MAX_TYPE_BYTES, TYPE_PATTERN
from app.http.route import Call
from app.http.sight import must_see_what_it_asks
from app.http.v0.records import AppendBody, Record, check_priority, columns_of
from app.kernel.jobs import JobMatch
from app.kernel.model import MAX_GROUP, MAX_TAG_BYTES, Seq
from app.kernel.topics.settings import BIGINT_MAX, TEN_YEARS_MS

_Millis = Annotated[int, Meta(ge=0, le=TEN_YEARS_MS)]
_Live = Literal["ready", "scheduled", "blocked", "leased"]


class ChangeBody(msgspec.Struct, forbid_unknown_fields=True):
    """The fields to change, at least one. Absent fields stay as they are. null removes meta or tag."""

    data: Annotated[Raw, about("As in a record.")] = msgspec.field(default_factory=Raw)
    content_type: Annotated[
        Annotated[str, Meta(extra_json_schema={"pattern": TYPE_PATTERN, "maxLength": MAX_TYPE_BYTES})] | None,
        about("The content type of data. Only with data.", JSON),
    ] = None
    meta: Annotated[Raw, about("An object, or null.", type=["object", "null"])] = msgspec.field(default_factory=Raw)
    tag: Tag | UnsetType | None = UNSET
    priority: Annotated[
        Priority | None, about("As in a record. The job goes behind the jobs that have this priority already.")
    ] = None
    delay_ms: Annotated[_Millis | None, about("Delays the job for this long from now. 0: ready now.")] = None
    run_at: Annotated[
        str | None, about("Delays the job until this RFC 3339 time with its offset.", format="date-time")
    ] = None


class CancelFilter(msgspec.Struct, forbid_unknown_fields=True, omit_defaults=True):
    """Matches jobs that have all of these fields. At least one is required."""

    state: Annotated[_Live | None, about("By the database's clock.")] = None
    priority: Annotated[Priority | None, about("Jobs of this priority.")] = None
    tag: Tag | None = None
    key: Annotated[Key | None, about("Jobs with this key.")] = None
    tenant: Annotated[Annotated[str, Meta(max_length=MAX_GROUP)] | None, about('"" is the default tenant.')] = None
    group: Annotated[Group | None, about("Jobs of this group.")] = None
    node: Annotated[Annotated[str, Meta(max_length=MAX_NODE)] | None, about("Jobs that this worker holds.")] = None
    error: Annotated[Annotated[str, Meta(max_length=MAX_ERROR_PART)] | None, about("A part of the last error.")] = None
    data: Annotated[
        Annotated[list[Annotated[str, Meta(extra_json_schema=DATUM)]], Meta(extra_json_schema={"maxItems": MAX_DATA})]
        | None,
        about("path=value, as in the list of jobs."),
    ] = None
    older_than_ms: Annotated[
        Annotated[int, Meta(ge=0, le=TEN_YEARS_MS)] | None, about("Jobs enqueued at least this long ago.")
    ] = None


class CancelBody(msgspec.Struct, forbid_unknown_fields=True):
    """Either the seqs of jobs, or a filter for the jobs that match now."""

    seqs: Seqs | None = None
    filter: CancelFilter | None = None


class CancelAnswer(msgspec.Struct):
    """cancelled: how many waiting jobs were removed. marked: how many leased jobs were cancelled. Their workers learn
    of it from their next extend; a job ends with its lease unless its worker completes it. skipped: seqs of jobs that
    do not exist or have ended."""

    topic: str
    cancelled: int
    marked: int
    skipped: list[int]


class BeginBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A cancel of all jobs that match a filter. Requeues have a route of their own."""

    kind: Annotated[Literal["cancel"], about("The kind of operation.")]
    filter: CancelFilter
    rate: Annotated[Annotated[int, Meta(ge=0, le=MAX_RATE)] | None, about("Jobs a second. 0: no limit.", 0)] = None
    dry_run: Annotated[bool | None, about("true: count the jobs that match and change nothing.", False)] = None


class ReleaseBody(msgspec.Struct, forbid_unknown_fields=True):
    """Jobs by seq, a group's job, or all jobs that a worker holds."""

    seqs: Seqs | None = None
    group: Annotated[Group | None, about("The leased job of this group. Not with seqs.")] = None
    tenant: Annotated[
        Annotated[str, Meta(max_length=MAX_GROUP)] | None, about('The group\'s tenant. "" is the default tenant.', "")
    ] = None
    node: Annotated[
        Annotated[str, text("A worker's name.", most=MAX_NODE_BYTES, least=1)] | None,
        about("All jobs that this worker holds. With seqs or group: only the jobs among them that it holds."),
    ] = None
    visible_at: Annotated[
        Annotated[list[Annotated[int, Meta(ge=0, le=BIGINT_MAX)]], Meta(max_length=MAX_SEQS)] | None,
        about(
            "One for each seq, as in the list of jobs: take the lease back only if it still ends then. Only with seqs."
        ),
    ] = None
    refund: Annotated[bool | None, about("true: the deliveries don't count.", False)] = None


class ReleaseAnswer(msgspec.Struct):
    """released: how many leases were taken back. ended: how many of their jobs ended instead of becoming ready.
    skipped: seqs without a lease that fits the request."""

    topic: str
    released: int
    ended: int
    skipped: list[int]


async def change(call: Call, body: ChangeBody) -> v0.JobAnswer:
    """Change fields of a waiting job. 409 if the job is leased or has ended. A lease that has run out is removed."""
    seq, to, policy = seq_in(call.request), _change_of(body), await call.queue()
    check_priority(to.priority, policy.config.priority_order)
    return v0.answer_of(call, await call.context.core(Changes).change(policy, seq, to))


async def cancel(call: Call, body: CancelBody) -> CancelAnswer:
    """Cancel jobs. Waiting jobs are removed, leased jobs are not delivered again. Safe to repeat. A filter searches all
    jobs of the topic, unless it names a key."""
    if (body.seqs is None) == (body.filter is None):
        raise InvalidRequest("Give either seqs or filter.")
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
    """Start to cancel all jobs that match a filter and were enqueued by now. The cancel runs in the background; GET
    /v0/operations/{id} shows its progress."""
    policy, match = await call.queue(), _match(body.filter)
    must_see_what_it_asks(call.key, call.topic, match)
    return await begin_or_count(call, cancels(policy, match, body.rate or 0), dry_run=bool(body.dry_run))


async def take_back(call: Call, body: ReleaseBody) -> ReleaseAnswer:
    """Take leases back from workers that hang. The jobs become ready at once. Later calls of these workers for the jobs
    have no effect."""
    leases = _leases(body)
    result = await release(call.request, await call.queue(), leases, refund=bool(body.refund))
    return ReleaseAnswer(call.topic, *result)


def _change_of(body: ChangeBody) -> Change:
    """The change that the body asks for, checked like a record. Raises InvalidRequest, RecordTooLarge."""
    data, meta = bytes(body.data), bytes(body.meta)
    if body.content_type is not None and not data:
        raise InvalidRequest("content_type is the type of data. Give data as well.")
    record = Record(
        data=body.data if data else Raw(b"null"),
        content_type=body.content_type,
        meta=body.meta,
        tag=None if body.tag is UNSET else body.tag,
        run_at=body.run_at,
    )
    batch, _ = columns_of(AppendBody(records=[record]))
    change = Change(
        payload=Payload(batch.payloads[0], (batch.content_types or [None])[0]) if data else None,
        metadata=(batch.metadata or [None])[0],
        tag=(batch.tags or [None])[0],
        priority=body.priority,
        delay_ms=body.delay_ms,
        run_at=(batch.run_ats or [None])[0],
        clears=frozenset([*["metadata"] * (meta == b"null"), *["tag"] * (body.tag is None)]),
    )
    if change == Change():
        raise InvalidRequest("Name at least one field to change.")
    return change


def _match(given: CancelFilter) -> JobMatch:
    return JobMatch(
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


def _leases(body: ReleaseBody) -> Leases:
    if body.seqs is None and body.group is None and body.node is None:
        raise InvalidRequest("Name the leases by seqs, group or node.")
    if body.seqs is not None and body.group is not None:
        raise InvalidRequest("Name the jobs by seqs or by group, not by both.")
    if body.tenant is not None and body.group is None:
        raise InvalidRequest("tenant names the tenant of a group. Give group as well.")
    if body.visible_at is not None and len(body.visible_at) != len(body.seqs or ()):
        counts = f"{len(body.visible_at)} entries for {len(body.seqs or ())} seqs"
        raise InvalidRequest(f"visible_at must have one entry for each seq. It has {counts}.")
    if len(body.seqs or ()) > MAX_SEQS:
        raise BatchTooLarge(f"At most {MAX_SEQS} seqs a call.", {"seqs": len(body.seqs or ()), "max": MAX_SEQS})
    return Leases(
        seqs=body.seqs,
        visible_at=body.visible_at or (),
        group=None if body.group is None else check_text(body.group, "group", 4 * MAX_GROUP),
        tenant=check_text(body.tenant or "", "tenant", 4 * MAX_GROUP),
        node=None if body.node is None else check_node(body.node),
    )
