"""Jobs in the v0 dialect: list and show."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Raw, UnsetType

from app.errors import InvalidRequest
from app.features.jobs.changes import Changes
from app.features.jobs.filters import MAX_DATA, MAX_ERROR_PART, MAX_NODE, STATES, match_of
from app.http.bounds import DATUM, about
from app.http.fields import CURSOR, cursor_of, cursor_to, foreign_cursor, seq_in, whole
from app.http.openapi import query
from app.http.route import Call
from app.http.sight import WHY, as_seen, must_see_what_it_asks
from app.kernel import jobs
from app.kernel.jobs import JobView
from app.kernel.model import MAX_GROUP, MAX_JOB_KEY, MAX_TAG_BYTES, as_json
from app.kernel.topics.backoff import is_suspect
from app.kernel.topics.settings import BIGINT_MAX, MAX_TENANT, TEN_YEARS_MS

MAX_LIMIT: Final = 1_000
LIMIT: Final = query("limit", f"1 to {MAX_LIMIT}, clamped.", {"type": "integer", "default": 100})
ORDER: Final = query(
    "order",
    "newest: the job that was enqueued last comes first. oldest: the other way.",
    {"type": "string", "enum": ["newest", "oldest"], "default": "newest"},
)
FILTERS: Final = [
    query("state", "Only jobs in this state, by the database's clock.", {"type": "string", "enum": [*STATES]}),
    query("priority", "Only jobs of this priority.", {"type": "integer", "minimum": -32_768, "maximum": 32_767}),
    query(
        "tenant", "Only jobs of this tenant. Empty: the default tenant.", {"type": "string", "maxLength": MAX_TENANT}
    ),
    query("tag", "Only jobs with this tag.", {"type": "string", "maxLength": MAX_TAG_BYTES}),
    query("key", "Only jobs with this key.", {"type": "string", "maxLength": MAX_JOB_KEY}),
    query("group", "Only jobs of this group.", {"type": "string", "maxLength": MAX_GROUP}),
    query("node", "Only jobs that this worker holds.", {"type": "string", "maxLength": MAX_NODE}),
    query("error", "Only jobs whose last error contains this text.", {"type": "string", "maxLength": MAX_ERROR_PART}),
    query(
        "data",
        "path=value: only jobs whose JSON payload has this text at this path. A path is keys and list indexes, "
        f"separated by dots. Can be given {MAX_DATA} times; then all must match.",
        {"type": "array", "items": {"type": "string", **DATUM}, "maxItems": MAX_DATA},
    ),
    query(
        "older_than_ms",
        "Only jobs that were enqueued at least this long ago.",
        {"type": "integer", "minimum": 0, "maximum": TEN_YEARS_MS},
    ),
]
OF_PAGES: Final = (*FILTERS, ORDER, CURSOR, LIMIT)


class JobInFull(msgspec.Struct, kw_only=True):
    """A job. Times are in ms since 1970. Fields without a value are left out."""

    seq: int
    state: Annotated[str, about("By the database's clock.", enum=[*STATES])]
    priority: int
    tenant: str
    deliveries: int
    created_at: int
    updated_at: int
    content_type: str | UnsetType = UNSET
    tag: str | UnsetType = UNSET
    key: str | UnsetType = UNSET
    group: str | UnsetType = UNSET
    visible_at: Annotated[int, about("When its lease or delay ends.")] | UnsetType = UNSET
    expires_at: int | UnsetType = UNSET
    node: Annotated[str, about("The worker that holds it.")] | UnsetType = UNSET
    leased_at: Annotated[int, about("When it was last claimed.")] | UnsetType = UNSET
    cancelled: Annotated[bool, about("true: cancelled while leased. It ends with its lease.")] | UnsetType = UNSET
    max_deliveries: Annotated[int, about("The job's own limit. If absent, the topic's applies.")] | UnsetType = UNSET
    last_error: str | UnsetType = UNSET
    original_topic: str | UnsetType = UNSET
    original_seq: int | UnsetType = UNSET
    original_deliveries: int | UnsetType = UNSET
    original_crashes: int | UnsetType = UNSET
    dlq_moved_at: int | UnsetType = UNSET
    crashes: int | UnsetType = UNSET
    failures: int | UnsetType = UNSET
    suspected_poison: bool | UnsetType = UNSET
    hidden: Annotated[str, about("Why data and meta are not shown.")] | UnsetType = UNSET
    data: Annotated[Raw | UnsetType, about("As in a claim.")] = UNSET
    meta: Annotated[Raw, about("As in a claim.", type="object")] | UnsetType = UNSET


class JobAnswer(JobInFull, kw_only=True):
    """A job and its topic."""

    topic: str


class JobsAnswer(msgspec.Struct):
    """A page of jobs. It may have fewer jobs than `limit`. next_cursor is null on the last page."""

    topic: str
    jobs: list[JobInFull]
    next_cursor: str | None


async def page(call: Call) -> JobsAnswer:
    """List a queue's jobs by seq, newest or oldest first."""
    policy, given = await call.queue(), call.request.query_params
    oldest = _order(given) == "oldest"
    limit = min(max(whole(given, "limit", 100), 1), MAX_LIMIT)
    place = cursor_of(call.request, dict[str, int])
    behind = None if place is None else place.get("behind", -1)
    if behind is not None and not 0 <= behind <= BIGINT_MAX:
        raise foreign_cursor()
    match = match_of(given, given.getlist("data"))
    must_see_what_it_asks(call.key, call.topic, match)
    found = await jobs.list_page(
        call.context.pools.rest, policy.topic, match, oldest_first=oldest, behind=behind, limit=limit
    )
    items = [JobInFull(**_fields(as_seen(call.key, call.topic, job))) for job in found.jobs]
    last = found.next_behind
    return JobsAnswer(call.topic, items, None if last is None else cursor_to({"behind": last}))


async def show(call: Call) -> JobAnswer:
    """Get a job in any state. Completed jobs are gone."""
    policy = await call.queue()
    return answer_of(call, await call.context.core(Changes).show(policy, seq_in(call.request)))


def answer_of(call: Call, job: JobView) -> JobAnswer:
    """The answer for a job, without the fields that the caller may not see."""
    return JobAnswer(topic=job.topic, **_fields(as_seen(call.key, job.topic, job)))


def _fields(job: JobView) -> dict[str, Any]:
    is_leased = job.state == "leased"
    fields = {
        "seq": job.seq,
        "state": job.state,
        "priority": job.priority,
        "tenant": job.tenant,
        "deliveries": job.deliveries,
        "created_at": job.created_ms,
        "updated_at": job.updated_ms,
        "content_type": job.content_type,
        "tag": job.tag,
        "key": job.key,
        "group": job.group,
        "visible_at": job.visible_ms if job.state in {"leased", "scheduled"} else None,
        "expires_at": job.expires_ms,
        "node": job.node if is_leased else None,
        "leased_at": job.leased_ms,
        "cancelled": job.cancelled or None,
        "max_deliveries": job.max_deliveries,
        "last_error": job.last_error,
        "original_topic": job.original_topic,
        "original_seq": job.original_seq,
        "original_deliveries": job.original_deliveries,
        "original_crashes": job.original_crashes or None,
        "dlq_moved_at": job.dlq_moved_ms,
        "crashes": job.crashes or None,
        "failures": job.deliveries - is_leased - job.crashes or None,
        "suspected_poison": is_suspect(job.crashes, job.original_crashes) or None,
        "hidden": WHY if job.hidden else None,
        "data": None if job.hidden else Raw(as_json(job.payload, job.content_type)),
        "meta": None if job.metadata is None else Raw(job.metadata.encode()),
    }
    return {name: value for name, value in fields.items() if value is not None}


def _order(given: Mapping[str, str]) -> str:
    order = given.get("order", "newest")
    if order not in {"newest", "oldest"}:
        raise InvalidRequest("order must be newest or oldest.")
    return order
