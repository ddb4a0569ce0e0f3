"""Requeues of many failed jobs: the bodies of both dialects, and the fields of the pages' addresses and forms."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar, Final
from urllib.parse import urlencode

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.errors import BatchTooLarge, InvalidRequest
from app.features.jobs.operations import Canary, Filter, OperationRequest
from app.features.jobs.requests import MAX_RATE, OperationCount, begin_or_count, queue_of_letters
from app.http.bounds import MAX_SEQS, ClusterId, Key, Seq, Tag, about, seq_within, text
from app.http.context import Context
from app.http.fields import check_text
from app.http.route import Call
from app.kernel.model import MAX_JOB_KEY, MAX_TAG_BYTES
from app.kernel.topics.policy import Policy
from app.kernel.topics.settings import BIGINT_MAX, TEN_YEARS_MS

MAX_ERROR_PART: Final = 1_024  # bytes
MAX_TENANT: Final = 128
MOST_CHARACTERS: Final = 1_024  # of an error, a tag, a key or a tenant in a form
MOST_SEQS: Final = 1_000  # of a form
AGES: Final = {  # the forms' choices: label and ms
    "": ("at any time", 0),
    "1m": ("at least 1 min ago", 60_000),
    "1h": ("at least 1 h ago", 3_600_000),
    "1d": ("at least 1 day ago", 86_400_000),
    "7d": ("at least 1 week ago", 604_800_000),
}
_CLUSTER: Final = re.compile(r"[0-9a-f]{16}\Z")


class RequeueFilter(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Matches failed jobs and dead letters that have all of these fields. {} matches all."""

    error: Annotated[
        Annotated[str, text("A part of it.", most=MAX_ERROR_PART, least=1)] | None,
        about("A part of the last error, matched literally."),
    ] = None
    tag: Tag | None = None
    key: Annotated[Key | None, about("The job's key.")] = None
    tenant: Annotated[
        Annotated[str, Meta(max_length=MAX_TENANT)] | None, about("The job's tenant, before it failed.")
    ] = None
    older_than_ms: Annotated[
        Annotated[int, Meta(ge=0, le=TEN_YEARS_MS)] | None, about("The job failed for good at least this long ago.", 0)
    ] = None
    cluster: Annotated[ClusterId | None, about("A cluster of failures.")] = None


class RequeueCanary(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Requeues a few jobs first, and the others only if these succeed."""

    first: Annotated[Annotated[int, Meta(ge=1, le=MAX_SEQS)] | None, about("How many jobs go first.", 10)] = None
    stop_at_percent: Annotated[
        Annotated[float, Meta(ge=0, le=100)] | None,
        about("Stop if more than this percentage of the first jobs has failed again.", 10),
    ] = None
    timeout_ms: Annotated[
        Annotated[int, Meta(ge=1, le=86_400_000)] | None,
        about("Stop if the first jobs have not all ended within this time.", 600_000),
    ] = None


class RequeueBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which jobs to requeue, how fast, and how carefully."""

    RULES: ClassVar[dict[str, Any]] = {"oneOf": [{"required": ["seqs"]}, {"required": ["filter"]}]}
    seqs: Annotated[
        list[Seq] | UnsetType,
        about("The jobs' seqs in this topic, now or before they became dead letters.", maxItems=MAX_SEQS),
    ] = UNSET
    filter: RequeueFilter | UnsetType = UNSET
    rate: Annotated[Annotated[int, Meta(ge=0, le=MAX_RATE)] | None, about("Jobs a second. 0: no limit.", 0)] = None
    canary: RequeueCanary | None = None
    dry_run: Annotated[bool | None, about("true: count the jobs and change nothing.", False)] = None


class RequeueAnswer(OperationCount):
    """The requeue runs in the background."""


class Selection(msgspec.Struct, frozen=True):
    """The failed jobs that a page is about: the jobs `seqs`, or without seqs all jobs that match the fields.

    A field with "" matches any job.
    """

    cluster: str = ""
    error: str = ""
    tag: str = ""
    key: str = ""
    tenant: str = ""
    age: str = ""
    seqs: tuple[int, ...] | None = None

    @property
    def match(self) -> Filter:
        error, tag, key, tenant, cluster = (
            one or None for one in (self.error, self.tag, self.key, self.tenant, self.cluster)
        )
        return Filter(error, tag, key, tenant, cluster, AGES[self.age][1])

    @property
    def fields(self) -> dict[str, str]:
        """The fields that are set, by their names in addresses and forms."""
        if self.seqs is not None:
            return {"seqs": ",".join(map(str, self.seqs))}
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value}

    def address(self, path: str, **more: str) -> str:
        """The address of a page about these jobs, with `more` parameters."""
        fields = self.fields | {name: value for name, value in more.items() if value}
        return path + (f"?{urlencode(fields)}" if fields else "")


def selection_in(given: Mapping[str, str], picked: Sequence[str] | None = None) -> Selection:
    """The jobs that an address or a form is about. Raises InvalidRequest.

    `picked`: seqs that were picked one by one. Unless it is None, the field seqs counts as well.
    """
    if picked is not None and (picked or "seqs" in given):
        named = [*filter(None, given.get("seqs", "").split(",")), *picked]
        if len(named) > MOST_SEQS or not all(re.fullmatch("[0-9]{1,19}", one) for one in named):
            raise InvalidRequest(f"seqs must be at most {MOST_SEQS} numbers.")
        return Selection(seqs=tuple(sorted({min(int(one), BIGINT_MAX) for one in named})))
    cluster, age = given.get("cluster", ""), given.get("age", "")
    if cluster and _CLUSTER.match(cluster) is None:
        raise InvalidRequest("cluster must be a cluster's id, 16 hex digits.")
    if age not in AGES:
        raise InvalidRequest(f"age must be one of {', '.join(filter(None, AGES))}.")
    error, tag, key, tenant = (_check_length(given, name) for name in ("error", "tag", "key", "tenant"))
    return Selection(cluster, error, tag, key, tenant, age)


def _check_length(given: Mapping[str, str], name: str) -> str:
    value = given.get(name, "")
    if len(value) > MOST_CHARACTERS or "\0" in value:
        raise InvalidRequest(f"{name} must have at most {MOST_CHARACTERS} characters and no NUL.")
    return value


async def requeue_of(
    context: Context,
    policy: Policy,
    match: Filter,
    seqs: Sequence[int] | None,
    *,
    rate: int = 0,
    canary: Canary | None = None,
    starts: Sequence[str] = (),
) -> OperationRequest:
    """A requeue from this topic and its dead-letter topic. `seqs` None: all jobs that match."""
    return OperationRequest(
        topic=(policy.topic.name, policy.topic.id),
        dead=await queue_of_letters(context, policy),
        match=match,
        seqs=seqs,
        rate=rate,
        canary=canary,
        starts=starts,
    )


async def begin(call: Call, body: RequeueBody) -> tuple[int, OperationCount]:
    """Begin a requeue, or count its jobs if it is a dry run. Returns the HTTP status and the answer.

    Raises InvalidRequest, BatchTooLarge, TopicNotFound, NotAQueue, and the database's errors.
    """
    policy = await call.queue()
    if (body.seqs is UNSET) == (body.filter is UNSET):
        raise InvalidRequest("Give either seqs or filter.")
    seqs = None
    if not isinstance(body.seqs, UnsetType):
        if len(body.seqs) > MAX_SEQS:
            raise BatchTooLarge(f"At most {MAX_SEQS} seqs a call.", {"seqs": len(body.seqs), "max": MAX_SEQS})
        seqs = sorted({seq_within(seq) for seq in body.seqs})
    match = Filter() if isinstance(body.filter, UnsetType) else _filter(body.filter)
    canary = None if body.canary is None else _canary(body.canary)
    requeue = await requeue_of(
        call.context, policy, match, seqs, rate=body.rate or 0, canary=canary, starts=call.prefixes
    )
    return await begin_or_count(call, requeue, dry_run=bool(body.dry_run))


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
