"""GET /v0/topics/:topic/jobs/:seq/explain and /history, /v0/topics/:topic/explain, /asof and /asof/jobs."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request

from app.base.keys import covers
from app.base.times import ms_of
from app.errors import InvalidRequest, NotFound
from app.features.explain.explain import Explain
from app.features.explain.reasons import Reason, ReasonCode
from app.features.explain.store import COUNTED, Pasts
from app.http.bounds import NO_NUL, about
from app.http.fields import cursor_of, cursor_to, foreign_cursor, seq_in, time_of, whole
from app.http.openapi import query
from app.http.route import Call
from app.kernel import ledger
from app.kernel.ledger import MAX_EVENTS, PAST_STATES
from app.kernel.model import MAX_GROUP
from app.kernel.topics.policy import Policy
from app.kernel.topics.settings import BIGINT_MAX

LIMIT: Final = query("limit", f"1 to {MAX_EVENTS} events, clamped.", {"type": "integer", "default": 100})
_NAME: Final = {"type": "string", "minLength": 1, "maxLength": MAX_GROUP, "pattern": NO_NUL}
AT: Final = query(
    "at", "The instant: an RFC 3339 time with its offset.", {"type": "string", "format": "date-time"}, required=True
)
STATE: Final = query("state", "Only jobs in this state.", {"type": "string", "enum": [*PAST_STATES]})
MAX_JOBS: Final = 1_000
JOBS_LIMIT: Final = query("limit", f"1 to {MAX_JOBS} jobs, clamped.", {"type": "integer", "default": 100})
GROUP: Final = query("group", "Explain why this group is stuck.", _NAME)
TENANT: Final = query(
    "tenant", "The group's tenant. Empty: the default tenant.", {**_NAME, "minLength": 0, "default": ""}
)


class WhyNot(msgspec.Struct):
    """A reason, as a message and as numbers. Times are in ms since 1970; fields that end in _ms are durations."""

    code: Annotated[str, Meta(extra_json_schema={"enum": [code.value for code in ReasonCode]})]
    message: str
    detail: dict[str, Any]


class ExplainJobAnswer(msgspec.Struct):
    """Why a job is not running. The reason to fix first comes first."""

    topic: str
    seq: int
    state: Annotated[
        str,
        about(
            "By the database's clock. gone: the job has left this topic, and the reasons say how.",
            enum=["ready", "scheduled", "blocked", "leased", "failed", "expired", "cancelled", "gone"],
        ),
    ]
    reasons: list[WhyNot]
    wait_ms: Annotated[int | None, about("When the job will start, at the current claim rate. null: unknown.")]


class ExplainTopicAnswer(msgspec.Struct, kw_only=True):
    """Why the jobs of a queue, or of one group, are not running. A queue and a group have different fields.

    at_least: counting stopped early, so claimable (of a group: behind) may be higher."""

    topic: str
    claimable: int | UnsetType = UNSET
    scheduled: int | UnsetType = UNSET
    blocked: int | UnsetType = UNSET
    in_flight: int | UnsetType = UNSET
    group: str | UnsetType = UNSET
    tenant: Annotated[str, about("The group's tenant.")] | UnsetType = UNSET
    head: Annotated[int | UnsetType | None, about("The seq of the group's first job.")] = UNSET
    state: Annotated[
        str | UnsetType | None,
        about("The first job's state by the database's clock. null: the group has no first job right now."),
    ] = UNSET
    behind: Annotated[int, about("How many jobs wait behind the first one.")] | UnsetType = UNSET
    at_least: bool
    reasons: Annotated[list[WhyNot], about("For a group: the reasons of its first job.")]
    wait_ms: Annotated[
        int | None,
        about("When a new job would start, at the current claim rate. For a group: when its first job starts."),
    ]


class JobEvent(msgspec.Struct):
    """A transition. Times are in ms since 1970. until: the lease's deadline, or when the job becomes ready."""

    at: int
    event: str
    deliveries: int
    until: int | None
    node: str | None
    detail: str | None


class AsOfAnswer(msgspec.Struct):
    """The number of jobs in each state at an instant, in ms since 1970. dead: dead letters that were still there."""

    topic: str
    at: int
    ready: int
    in_flight: int
    scheduled: int
    blocked: int
    failed: int
    expired: int
    dead: int
    oldest_claimable_age_ms: int | None


class JobThen(msgspec.Struct):
    """A job as it was at an instant. Times are in ms since 1970."""

    seq: int
    state: Annotated[str, about("dead_lettered: it was a dead letter.", enum=[*PAST_STATES])]
    since: Annotated[int | None, about("When it entered this state. null: unknown.")]
    deliveries: Annotated[int | None, about("How often it had been delivered. null: unknown.")]
    until: Annotated[int | None, about("The end of its lease or delay. null in other states.")]
    node: Annotated[str | None, about("The worker that held it. null unless leased.")]
    key: Annotated[str | None, about("Its key. null if it has none or the job is gone by now.")]


class JobsThenAnswer(msgspec.Struct):
    """The jobs of a queue at an instant by seq. next_cursor is null on the last page."""

    topic: str
    at: int
    jobs: list[JobThen]
    next_cursor: str | None


class HistoryAnswer(msgspec.Struct):
    """A job's events, oldest first. more: there are later events than `limit`."""

    topic: str
    seq: int
    events: list[JobEvent]
    more: bool


async def explain_job(call: Call) -> ExplainJobAnswer:
    """Explain why a job is not running, or what became of it. The reason to fix first comes first."""
    policy, seq = await call.queue(), seq_in(call.request)
    found = await call.context.core(Explain).job(policy, seq, covers=covers(call.key))
    if found is None:
        raise unknown(policy, seq)
    state = "gone" if found.row is None else found.row.state
    return ExplainJobAnswer(call.topic, seq, state, _why(found.verdict.reasons), found.verdict.wait_ms)


async def explain_topic(call: Call) -> ExplainTopicAnswer:
    """Explain why a queue's jobs are not running. With `group`: why the first job of the group is not running."""
    policy, explain = await call.queue(), call.context.core(Explain)
    group, tenant = _name_in(call.request, "group", least=1), _name_in(call.request, "tenant")
    if group is not None:
        head, verdict = await explain.group(policy, tenant or "", group, covers=covers(call.key))
        return ExplainTopicAnswer(
            topic=call.topic,
            group=group,
            tenant=tenant or "",
            head=head.seq,
            state=head.state,
            behind=head.before,
            at_least=head.before >= COUNTED,
            reasons=_why(verdict.reasons),
            wait_ms=verdict.wait_ms,
        )
    if tenant is not None:
        raise InvalidRequest("tenant names the tenant of a group. Give group as well.")
    waiting, verdict = await explain.topic(policy)
    return ExplainTopicAnswer(
        topic=call.topic,
        claimable=waiting.claimable,
        scheduled=waiting.scheduled,
        blocked=waiting.blocked,
        in_flight=waiting.leased,
        at_least=waiting.at_least,
        reasons=_why(verdict.reasons),
        wait_ms=verdict.wait_ms,
    )


async def as_of(call: Call) -> AsOfAnswer:
    """Count a queue's jobs by state at an instant in the past, from its ledger."""
    policy, instant = await call.queue(), _instant_in(call.request)
    past = await call.context.core(Pasts).at(policy.topic, instant)
    waiting = (past.ready, past.in_flight, past.scheduled, past.blocked)
    return AsOfAnswer(call.topic, ms_of(instant), *waiting, past.failed, past.expired, past.dead, past.oldest_ms)


async def jobs_as_of(call: Call) -> JobsThenAnswer:
    """List the jobs of a queue at an instant in the past, from its ledger, by seq; optionally of one state."""
    policy, given = await call.queue(), call.request.query_params
    instant, state = _instant_in(call.request), given.get("state")
    if state is not None and state not in PAST_STATES:
        raise InvalidRequest(f"state must be one of {', '.join(PAST_STATES)}.")
    limit = min(max(whole(given, "limit", 100), 1), MAX_JOBS)
    behind = (cursor_of(call.request, dict[str, int]) or {"behind": 0}).get("behind", -1)
    if not 0 <= behind <= BIGINT_MAX:
        raise foreign_cursor()
    pasts = call.context.core(Pasts)
    found = await pasts.jobs_at(policy.topic, instant, state=state, behind=behind, limit=limit + 1)
    jobs = [
        JobThen(one.seq, one.state, one.since_ms, one.deliveries, one.until_ms, one.node, one.key)
        for one in found[:limit]
    ]
    following = cursor_to({"behind": jobs[-1].seq}) if len(found) > limit else None
    return JobsThenAnswer(call.topic, ms_of(instant), jobs, following)


async def history(call: Call) -> HistoryAnswer:
    """List what happened to a job, from the ledger. The ledger is kept longer than the job."""
    policy, seq, covered = await call.queue(), seq_in(call.request), covers(call.key)
    limit = min(max(whole(call.request.query_params, "limit", 100), 1), MAX_EVENTS)
    found = await ledger.history(call.context.pools.rest, policy.topic, seq, limit=limit + 1)
    if not found:
        raise unknown(policy, seq)
    events = [
        JobEvent(one.at_ms, one.event, one.deliveries, one.until_ms, one.node, ledger.detail_for(one, covered))
        for one in found[:limit]
    ]
    return HistoryAnswer(call.topic, seq, events, len(found) > limit)


def unknown(policy: Policy, seq: int) -> NotFound:
    """The error for a job without a row and without events."""
    name = policy.topic.name
    return NotFound(f"There is no record of job {seq} in topic {name!r}.", {"topic": name, "seq": seq})


def _why(reasons: Sequence[Reason]) -> list[WhyNot]:
    return [WhyNot(one.code.value, one.message, one.numbers) for one in reasons]


def _instant_in(request: Request) -> datetime:
    given = request.query_params.get("at")
    if given is None:
        raise InvalidRequest("at is required: an RFC 3339 time with its offset, such as 2026-01-31T09:00:00Z.")
    return time_of(given, "at")


def _name_in(request: Request, name: str, least: int = 0) -> str | None:
    given = request.query_params.get(name)
    if given is not None and (not least <= len(given) <= MAX_GROUP or "\0" in given):
        raise InvalidRequest(f"{name} must have {least} to {MAX_GROUP} characters and no NUL.")
    return given
