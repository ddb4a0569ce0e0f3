"""GET /v0/topics/:topic/jobs/:seq/explain and /history, /v0/topics/:topic/explain and /asof: what is, and was."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from datetime import datetime
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from app.base.keys import Key, Scope, covers
from app.errors import InvalidRequest, NotFound
from app.features.explain.as_of import Pasts
from app.features.explain.explain import Explain
from app.features.explain.reasons import Code, Verdict
from app.features.explain.rows import COUNTED
from app.http import direct
from app.http.bounds import NO_NUL, about
from app.http.context import context_of
from app.http.fields import encode, known_parameters, time_of, topic_in
from app.http.openapi import TOPIC, operation, path, query
from app.http.paging import CURSOR, cursor_of, cursor_to, foreign_cursor
from app.http.parameters import seq_in, whole
from app.http.v0.bodies import Performance
from app.http.v0.fields import answer
from app.kernel import ledger
from app.kernel.ledger import MAX_EVENTS, PAST_STATES, Event
from app.kernel.model import MAX_GROUP
from app.kernel.topics.config import Policy, check_name
from app.kernel.topics.settings import BIGINT_MAX

router = direct.router("jobs")

SEQ: Final = path("seq", "The job's seq.", {"type": "integer", "minimum": 1, "maximum": BIGINT_MAX})
LIMIT: Final = query("limit", f"1 to {MAX_EVENTS} events, clamped.", {"type": "integer", "default": 100})
_NAME: Final = {"type": "string", "minLength": 1, "maxLength": MAX_GROUP, "pattern": NO_NUL}
AT: Final = query(
    "at", "The instant: an RFC 3339 time with its offset.", {"type": "string", "format": "date-time"}, required=True
)
STATE: Final = query("state", "Only those.", {"type": "string", "enum": [*PAST_STATES]})
MAX_JOBS: Final = 1_000
JOBS_LIMIT: Final = query("limit", f"1 to {MAX_JOBS} jobs, clamped.", {"type": "integer", "default": 100})
GROUP: Final = query("group", "Why this group does not get on.", _NAME)
TENANT: Final = query(
    "tenant", "Of a group: whose it is; the default tenant's is empty.", {**_NAME, "minLength": 0, "default": ""}
)
_WHOLE: Final = re.compile(r"-?[0-9]{1,1000}\Z")


class WhyNot(msgspec.Struct):
    """A reason, in words and in numbers. Times are in ms since 1970, what ends in _ms lasts so long."""

    code: Annotated[str, Meta(extra_json_schema={"enum": [code.value for code in Code]})]
    message: str
    detail: dict[str, Any]


class ExplainJobAnswer(msgspec.Struct):
    """Why a job is not running: what must be mended first comes first."""

    topic: str
    seq: int
    state: Annotated[
        str,
        about(
            "By the database's clock. gone: the ledger has its end.",
            enum=["ready", "scheduled", "blocked", "leased", "failed", "expired", "cancelled", "gone"],
        ),
    ]
    reasons: list[WhyNot]
    wait_ms: Annotated[int | None, about("When it will start, at the pace of the last claims; null: nobody can tell.")]
    performance: Performance


class ExplainTopicAnswer(msgspec.Struct, kw_only=True):
    """Why a queue's jobs are not running, or those of a group: of each what it has is there. at_least: claimable, or
    behind, was counted so far."""

    topic: str
    claimable: int | UnsetType = UNSET
    scheduled: int | UnsetType = UNSET
    blocked: int | UnsetType = UNSET
    in_flight: int | UnsetType = UNSET
    group: str | UnsetType = UNSET
    tenant: Annotated[str, about("Whose group it is.")] | UnsetType = UNSET
    head: Annotated[int | UnsetType | None, about("The job of the group that is out: its seq.")] = UNSET
    state: Annotated[
        str | UnsetType | None,
        about(
            "The head's, by the database's clock. null: none is out, and the next is being let through, if any waits."
        ),
    ] = UNSET
    behind: Annotated[int, about("How many wait behind the head.")] | UnsetType = UNSET
    at_least: bool
    reasons: Annotated[list[WhyNot], about("Of a group: its head's.")]
    wait_ms: Annotated[
        int | None, about("Of a job that came now, at the pace of the last claims; of a group, until its head starts.")
    ]
    performance: Performance


class JobEvent(msgspec.Struct):
    """A transition. Times are in ms since 1970; until: the deadline of a lease, or when it was to be had. Leases'
    ids are their holders' business, and not shown."""

    at: int
    event: str
    deliveries: int
    until: int | None
    node: str | None
    detail: str | None


class AsOfAnswer(msgspec.Struct):
    """A queue's jobs at an instant (ms since 1970), by state. dead: those that went to the dead letters and were not
    requeued by then."""

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
    performance: Performance


class JobThen(msgspec.Struct):
    """A job as it was at an instant. Times are in ms since 1970."""

    seq: int
    state: Annotated[str, about("dead_lettered: it was among the dead letters.", enum=[*PAST_STATES])]
    since: Annotated[int | None, about("When it came into this state; null: nothing that is kept says so.")]
    deliveries: Annotated[int | None, about("How often it had been delivered; null: nothing that is kept says so.")]
    until: Annotated[int | None, about("Of one that was leased or scheduled: until when.")]
    node: Annotated[str | None, about("Of one that was leased: who had it.")]
    key: Annotated[str | None, about("Of a job that is still there.")]


class JobsThenAnswer(msgspec.Struct):
    """The jobs that a queue had at an instant, by seq; next_cursor is null on the last page."""

    topic: str
    at: int
    jobs: list[JobThen]
    next_cursor: str | None
    performance: Performance


class HistoryAnswer(msgspec.Struct):
    """What happened to a job, the oldest first. more: there are later ones than `limit`."""

    topic: str
    seq: int
    events: list[JobEvent]
    more: bool
    performance: Performance


@router.get(
    "/v0/topics/{topic}/jobs/{seq}/explain",
    response_class=Response,
    openapi_extra=operation(
        parameters=[TOPIC, SEQ], answers={200: ExplainJobAnswer}, errors=[400, 401, 403, 404, 409, 503]
    ),
)
async def explain_job(request: Request) -> Response:
    """Why a job is not running, or what became of it: reasons, what must be mended first coming first."""
    began = time.perf_counter()
    context = context_of(request)
    policy, seq, key = await job_asked(request, ())
    found = await context.core(Explain).job(policy, seq, covers=covers(key))
    if found is None:
        raise unknown(policy, seq)
    state = "gone" if found.row is None else found.row.state
    fields = {"topic": policy.topic.name, "seq": seq, "state": state, **_shown(found.verdict)}
    return answer(encode(fields)[1:-1], began)


@router.get(
    "/v0/topics/{topic}/explain",
    response_class=Response,
    openapi_extra=operation(
        parameters=[TOPIC, GROUP, TENANT], answers={200: ExplainTopicAnswer}, errors=[400, 401, 403, 404, 409, 503]
    ),
)
async def explain_topic(request: Request) -> Response:
    """Why a queue's jobs are not running; with `group`, why a group does not get on: its head's reasons."""
    began = time.perf_counter()
    context = context_of(request)
    policy, key = await _queue_asked(request, {"group", "tenant"})
    group, tenant = _name_in(request, "group", least=1), _name_in(request, "tenant")
    if group is not None:
        head, verdict = await context.core(Explain).group(policy, tenant or "", group, covers=covers(key))
        fields = {
            "topic": policy.topic.name,
            "group": group,
            "tenant": tenant or "",
            "head": head.seq,
            "state": head.state,
            "behind": head.before,
            "at_least": head.before >= COUNTED,
            **_shown(verdict),
        }
        return answer(encode(fields)[1:-1], began)
    if tenant is not None:
        raise InvalidRequest("tenant says whose group it is: give it with group.")
    waiting, verdict = await context.core(Explain).topic(policy)
    fields = {
        "topic": policy.topic.name,
        "claimable": waiting.claimable,
        "at_least": waiting.at_least,
        "scheduled": waiting.scheduled,
        "blocked": waiting.blocked,
        "in_flight": waiting.leased,
        **_shown(verdict),
    }
    return answer(encode(fields)[1:-1], began)


@router.get(
    "/v0/topics/{topic}/asof",
    response_class=Response,
    openapi_extra=operation(
        parameters=[TOPIC, AT], answers={200: AsOfAnswer}, errors=[400, 401, 403, 404, 409, 422, 503]
    ),
)
async def as_of(request: Request) -> Response:
    """What a queue looked like at an instant, as its ledger tells."""
    began = time.perf_counter()
    context = context_of(request)
    policy, _ = await _queue_asked(request, {"at"})
    instant = _instant_in(request)
    past = await context.core(Pasts).at(policy.topic, instant)
    fields = {
        "topic": policy.topic.name,
        "at": int(instant.timestamp() * 1000),
        "ready": past.ready,
        "in_flight": past.in_flight,
        "scheduled": past.scheduled,
        "blocked": past.blocked,
        "failed": past.failed,
        "expired": past.expired,
        "dead": past.dead,
        "oldest_claimable_age_ms": past.oldest_ms,
    }
    return answer(encode(fields)[1:-1], began)


@router.get(
    "/v0/topics/{topic}/asof/jobs",
    response_class=Response,
    openapi_extra=operation(
        parameters=[TOPIC, AT, STATE, CURSOR, JOBS_LIMIT],
        answers={200: JobsThenAnswer},
        errors=[400, 401, 403, 404, 409, 422, 503],
    ),
)
async def jobs_as_of(request: Request) -> Response:
    """Which jobs a queue had at an instant, as its ledger tells: by seq, of one state or of any."""
    began = time.perf_counter()
    policy, _ = await _queue_asked(request, {"at", "state", "cursor", "limit"})
    given = request.query_params
    instant, state = _instant_in(request), given.get("state")
    if state is not None and state not in PAST_STATES:
        raise InvalidRequest(f"state is one of {', '.join(PAST_STATES)}.")
    limit = min(max(whole(given, "limit", 100), 1), MAX_JOBS)
    behind = (cursor_of(request, dict[str, int]) or {"behind": 0}).get("behind", -1)
    if not 0 <= behind <= BIGINT_MAX:
        raise foreign_cursor()
    found = (
        await context_of(request)
        .engine.core(Pasts)
        .jobs_at(policy.topic, instant, state=state, behind=behind, limit=limit + 1)
    )
    jobs = [
        JobThen(one.seq, one.state, one.since_ms, one.deliveries, one.until_ms, one.node, one.key)
        for one in found[:limit]
    ]
    fields = {
        "topic": policy.topic.name,
        "at": int(instant.timestamp() * 1000),
        "jobs": jobs,
        "next_cursor": cursor_to({"behind": jobs[-1].seq}) if len(found) > limit else None,
    }
    return answer(encode(fields)[1:-1], began)


@router.get(
    "/v0/topics/{topic}/jobs/{seq}/history",
    response_class=Response,
    openapi_extra=operation(
        parameters=[TOPIC, SEQ, LIMIT], answers={200: HistoryAnswer}, errors=[400, 401, 403, 404, 409, 503]
    ),
)
async def history(request: Request) -> Response:
    """What happened to a job, from the ledger: as long as that is kept, which is longer than the job."""
    began = time.perf_counter()
    context = context_of(request)
    policy, seq, key = await job_asked(request, {"limit"})
    given = request.query_params.get("limit", "100")
    if _WHOLE.match(given) is None:
        raise InvalidRequest("limit must be a whole number.")
    limit = min(max(int(given), 1), MAX_EVENTS)
    events = await ledger.history(context.pools.rest, policy.topic, seq, limit=limit + 1)
    if not events:
        raise unknown(policy, seq)
    fields = {
        "topic": policy.topic.name,
        "seq": seq,
        "events": [_event(one, covers(key)) for one in events[:limit]],
        "more": len(events) > limit,
    }
    return answer(encode(fields)[1:-1], began)


def _instant_in(request: Request) -> datetime:
    given = request.query_params.get("at")
    if given is None:
        raise InvalidRequest("at is needed: an RFC 3339 time with its offset, such as 2026-01-31T09:00:00Z.")
    return time_of(given, "at")


async def _queue_asked(request: Request, parameters: set[str] | tuple[()]) -> tuple[Policy, Key | None]:
    context = context_of(request)
    name = topic_in(request)
    key = context.access.check(request, Scope.READ, name)
    known_parameters(request, parameters)
    return await context.policies.queue(check_name(name)), key


async def job_asked(request: Request, parameters: set[str] | tuple[()]) -> tuple[Policy, int, Key | None]:
    """The job of the path, for who may read it. Raises InvalidRequest for a parameter that is none of these."""
    policy, key = await _queue_asked(request, parameters)
    return policy, seq_in(request), key


def unknown(policy: Policy, seq: int) -> NotFound:
    """The refusal where nothing is kept of a job."""
    return NotFound(
        f"Nothing is known of job {seq} of {policy.topic.name!r}.", {"topic": policy.topic.name, "seq": seq}
    )


def _shown(verdict: Verdict) -> dict[str, Any]:
    return {
        "reasons": [WhyNot(one.code.value, one.message, one.numbers) for one in verdict.reasons],
        "wait_ms": verdict.wait_ms,
    }


def _event(one: Event, covered: Callable[[str], bool]) -> JobEvent:
    detail = ledger.detail_for(one, covered)
    return JobEvent(one.at_ms, one.event, one.deliveries, one.until_ms, one.node, detail)


def _name_in(request: Request, name: str, least: int = 0) -> str | None:
    """A group's or tenant's name, None if there is none. Raises InvalidRequest."""
    given = request.query_params.get(name)
    if given is not None and (not least <= len(given) <= MAX_GROUP or "\0" in given):
        raise InvalidRequest(f"{name} must have {least} to {MAX_GROUP} characters, and no NUL.")
    return given
