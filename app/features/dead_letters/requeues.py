"""Requeues of many failed jobs: which jobs, how fast and how carefully, as bodies of both dialects say it, and the
pages' addresses and forms."""

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
MOST_CHARACTERS: Final = 1_024  # of a part of an error, a tag, a key or a tenant in a form
MOST_SEQS: Final = 1_000  # of a form
AGES: Final = {  # that forms offer, in words and in ms
    "": ("At any time", 0),
    "1m": ("1 min ago or earlier", 60_000),
    "1h": ("1 h ago or earlier", 3_600_000),
    "1d": ("A day ago or earlier", 86_400_000),
    "7d": ("A week ago or earlier", 604_800_000),
}
_CLUSTER: Final = re.compile(r"[0-9a-f]{16}\Z")


class RequeueFilter(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Failed jobs and dead letters that match all of this; {} matches all."""

    error: Annotated[
        Annotated[str, text("A part of it.", most=MAX_ERROR_PART, least=1)] | None,
        about("A part of the last error, letter by letter."),
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
    """A few jobs go first, and the rest only if these do well."""

    first: Annotated[Annotated[int, Meta(ge=1, le=MAX_SEQS)] | None, about("How many go first.", 10)] = None
    stop_at_percent: Annotated[
        Annotated[float, Meta(ge=0, le=100)] | None,
        about("Stop if more than this many per cent of them have failed again.", 10),
    ] = None
    timeout_ms: Annotated[
        Annotated[int, Meta(ge=1, le=86_400_000)] | None,
        about("Stop if not all of them have ended within this time.", 600_000),
    ] = None


class RequeueBody(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Which jobs to requeue, how fast, and how carefully."""

    RULES: ClassVar[dict[str, Any]] = {"oneOf": [{"required": ["seqs"]}, {"required": ["filter"]}]}
    seqs: Annotated[
        list[Seq] | UnsetType,
        about("Seqs of jobs: in this topic, or those that they had here before.", maxItems=MAX_SEQS),
    ] = UNSET
    filter: RequeueFilter | UnsetType = UNSET
    rate: Annotated[
        Annotated[int, Meta(ge=0, le=MAX_RATE)] | None, about("At most this many jobs a second; 0: no limit.", 0)
    ] = None
    canary: RequeueCanary | None = None
    dry_run: Annotated[bool | None, about("Count the jobs, and change nothing.", False)] = None


class RequeueAnswer(OperationCount):
    """202: it goes on by itself."""


class Selection(msgspec.Struct, frozen=True):
    """The failed jobs that a page is about: those that match each field, where "" matches any, or those of `seqs`
    unless that is None."""

    cluster: str = ""
    error: str = ""
    tag: str = ""
    key: str = ""
    tenant: str = ""
    age: str = ""
    seqs: tuple[int, ...] | None = None

    @property
    def match(self) -> Filter:
        """The filter of a requeue."""
        error, tag, key, tenant, cluster = (
            one or None for one in (self.error, self.tag, self.key, self.tenant, self.cluster)
        )
        return Filter(error, tag, key, tenant, cluster, AGES[self.age][1])

    @property
    def fields(self) -> dict[str, str]:
        """What differs from all jobs, by the names of addresses and forms."""
        if self.seqs is not None:
            return {"seqs": ",".join(map(str, self.seqs))}
        return {name: value for name, value in msgspec.structs.asdict(self).items() if value}

    def address(self, path: str, **more: str) -> str:
        """The address of a page about these jobs."""
        fields = self.fields | {name: value for name, value in more.items() if value}
        return path + (f"?{urlencode(fields)}" if fields else "")


def selection_in(given: Mapping[str, str], picked: Sequence[str] | None = None) -> Selection:
    """The jobs that an address or a form is about. With `picked`, even an empty list, seqs count: those picked one by
    one, and those of the field seqs. Raises InvalidRequest."""
    if picked is not None and (picked or "seqs" in given):
        named = [*filter(None, given.get("seqs", "").split(",")), *picked]
        if len(named) > MOST_SEQS or not all(re.fullmatch("[0-9]{1,19}", one) for one in named):
            raise InvalidRequest(f"seqs are up to {MOST_SEQS} numbers.")
        return Selection(seqs=tuple(sorted({min(int(one), BIGINT_MAX) for one in named})))
    cluster, age = given.get("cluster", ""), given.get("age", "")
    if cluster and _CLUSTER.match(cluster) is None:
        raise InvalidRequest("A cluster's id has 16 hex digits.")
    if age not in AGES:
        raise InvalidRequest(f"age is one of {', '.join(filter(None, AGES))}.")
    error, tag, key, tenant = (_check_length(given, name) for name in ("error", "tag", "key", "tenant"))
    return Selection(cluster, error, tag, key, tenant, age)


def _check_length(given: Mapping[str, str], name: str) -> str:
    value = given.get(name, "")
    if len(value) > MOST_CHARACTERS or "\0" in value:
        raise InvalidRequest(f"{name} has {MOST_CHARACTERS} characters at most, and no NUL.")
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
    """A requeue from this topic and its dead-letter topic. `seqs` None: of all jobs that match."""
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
    """Begin a requeue of the topic that the path names, or count what it would take: the answer, and its status. Raises
    InvalidRequest, BatchTooLarge, TopicNotFound, NotAQueue, and what the database raises."""
    policy = await call.queue()
    if (body.seqs is UNSET) == (body.filter is UNSET):
        raise InvalidRequest("Either seqs or filter is needed: which jobs are meant?")
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
