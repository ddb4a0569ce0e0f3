"""Requeues of many failed jobs, for both dialects: which jobs, how fast and how carefully."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.errors import BatchTooLarge, InvalidRequest
from app.features.jobs.operation_requests import MAX_RATE, queue_of_letters
from app.features.jobs.operations import Canary, Wanted
from app.features.jobs.redrive_bodies import OperationCount, begin_or_count
from app.features.jobs.redrive_rows import Filter
from app.http.bounds import MAX_SEQS, ClusterId, Key, Seq, Tag, about, seq_within, text
from app.http.fields import check_text
from app.http.route import Call
from app.kernel.model import MAX_JOB_KEY, MAX_TAG_BYTES
from app.kernel.topics.policy import Policy
from app.kernel.topics.settings import TEN_YEARS_MS

MAX_ERROR_PART: Final = 1_024  # bytes
MAX_TENANT: Final = 128


class RequeueFilter(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Jobs that are out and fit all of this; {} is all of them."""

    error: Annotated[
        Annotated[str, text("A part of it.", most=MAX_ERROR_PART, least=1)] | None,
        about("A part of their last error, as it stands."),
    ] = None
    tag: Tag | None = None
    key: Annotated[Key | None, about("With this key.")] = None
    tenant: Annotated[
        Annotated[str, Meta(max_length=MAX_TENANT)] | None, about("Their tenant, before they went out.")
    ] = None
    older_than_ms: Annotated[
        Annotated[int, Meta(ge=0, le=TEN_YEARS_MS)] | None, about("They went out at least so long ago.", 0)
    ] = None
    cluster: Annotated[ClusterId | None, about("Those of this cluster of failures.")] = None


class RequeueCanary(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """A few go first, and the rest only if those do well."""

    first: Annotated[Annotated[int, Meta(ge=1, le=MAX_SEQS)] | None, about("How many.", 10)] = None
    stop_at_percent: Annotated[
        Annotated[float, Meta(ge=0, le=100)] | None,
        about("Stop if more than so many per cent of them are out again.", 10),
    ] = None
    timeout_ms: Annotated[
        Annotated[int, Meta(ge=1, le=86_400_000)] | None,
        about("Stop if not all of them have come to an end within so long.", 600_000),
    ] = None


class RequeueBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which jobs, how fast, and how carefully."""

    RULES: ClassVar[dict[str, Any]] = {"oneOf": [{"required": ["seqs"]}, {"required": ["filter"]}]}
    seqs: Annotated[
        list[Seq] | UnsetType,
        about("These jobs: by their seqs in this topic, or those that they had here before.", maxItems=MAX_SEQS),
    ] = UNSET
    filter: RequeueFilter | UnsetType = UNSET
    rate: Annotated[Annotated[int, Meta(ge=0, le=MAX_RATE)] | None, about("Most jobs a second; 0: no bound.", 0)] = None
    canary: RequeueCanary | None = None
    dry_run: Annotated[bool | None, about("Count what matches, and change nothing.", False)] = None


class RequeueAnswer(OperationCount):
    """202: it goes on by itself."""


async def begin(call: Call, body: RequeueBody) -> tuple[int, OperationCount]:
    """Begin a requeue of the topic that the path names, or count what it would take: the answer, and its status. Raises
    InvalidRequest, BatchTooLarge, TopicNotFound, NotAQueue, and what the database raises."""
    wanted = await _wanted(call, await call.queue(), body)
    return await begin_or_count(call, wanted, dry_run=bool(body.dry_run))


async def _wanted(call: Call, policy: Policy, body: RequeueBody) -> Wanted:
    if (body.seqs is UNSET) == (body.filter is UNSET):
        raise InvalidRequest("Either seqs or filter is needed: which jobs are meant?")
    seqs = None
    if not isinstance(body.seqs, UnsetType):
        if len(body.seqs) > MAX_SEQS:
            raise BatchTooLarge(f"At most {MAX_SEQS} seqs a call.", {"seqs": len(body.seqs), "max": MAX_SEQS})
        seqs = sorted({seq_within(seq) for seq in body.seqs})
    match = Filter() if isinstance(body.filter, UnsetType) else _filter(body.filter)
    return Wanted(
        topic=(policy.topic.name, policy.topic.id),
        dead=await queue_of_letters(call.context, policy),
        match=match,
        seqs=seqs,
        rate=body.rate or 0,
        canary=None if body.canary is None else _canary(body.canary),
        starts=call.prefixes,
    )


def _filter(given: RequeueFilter) -> Filter:
    if given.error is not None and not given.error:
        raise InvalidRequest("filter.error must not be empty.")
    return Filter(
        error=given.error and check_text(given.error, "filter.error", MAX_ERROR_PART),
        tag=None if given.tag is None else check_text(given.tag, "filter.tag", MAX_TAG_BYTES),
        key=None if given.key is None else check_text(given.key, "filter.key", 4 * MAX_JOB_KEY),
        tenant=given.tenant,
        cluster=given.cluster,
        older_than_ms=given.older_than_ms or 0,
    )


def _canary(given: RequeueCanary) -> Canary:
    percent = 10.0 if given.stop_at_percent is None else given.stop_at_percent
    return Canary(given.first or 10, percent, given.timeout_ms or 600_000)
