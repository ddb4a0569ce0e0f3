"""GET /v0/topics/:topic/jobs/:seq/explain and /history, /v0/topics/:topic/explain and /asof: what is, and was."""

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
STATE: Final = query("state", "Only those.", {"type": "string", "enum": [*PAST_STATES]})
MAX_JOBS: Final = 1_000
JOBS_LIMIT: Final = query("limit", f"1 to {MAX_JOBS} jobs, clamped.", {"type": "integer", "default": 100})
GROUP: Final = query("group", "Why this group does not get on.", _NAME)
TENANT: Final = query(
    "tenant", "Of a group: whose it is; the default tenant's is empty.", {**_NAME, "minLength": 0, "default": ""}
)


class WhyNot(msgspec.Struct):
    """A reason, in words and in numbers. Times are in ms since 1970, what ends in _ms lasts so long."""

    code: Annotated[str, Meta(extra_json_schema={"enum": [code.value for code in ReasonCode]})]
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


class HistoryAnswer(msgspec.Struct):
    """What happened to a job, the oldest first. more: there are later ones than `limit`."""

    topic: str
    seq: int
    events: list[JobEvent]
    more: bool


async def explain_job(call: Call) -> ExplainJobAnswer:
    """Why a job is not running, or what became of it: reasons, what must be mended first coming first."""
    policy, seq = await call.queue(), seq_in(call.request)
    found = await call.context.core(Explain).job(policy, seq, covers=covers(call.key))
    if found is None:
        raise unknown(policy, seq)
    state = "gone" if found.row is None else found.row.state
    return ExplainJobAnswer(call.topic, seq, state, _why(found.verdict.reasons), found.verdict.wait_ms)


async def explain_topic(call: Call) -> ExplainTopicAnswer:
    """Why a queue's jobs are not running; with `group`, why a group does not get on: its head's reasons."""
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
        raise InvalidRequest("tenant says whose group it is: give it with group.")
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
    """What a queue looked like at an instant, as its ledger tells."""
    policy, instant = await call.queue(), _instant_in(call.request)
    past = await call.context.core(Pasts).at(policy.topic, instant)
    return AsOfAnswer(
        topic=call.topic,
        at=ms_of(instant),
        ready=past.ready,
        in_flight=past.in_flight,
        scheduled=past.scheduled,
        blocked=past.blocked,
        failed=past.failed,
        expired=past.expired,
        dead=past.dead,
        oldest_claimable_age_ms=past.oldest_ms,
    )


async def jobs_as_of(call: Call) -> JobsThenAnswer:
    """Which jobs a queue had at an instant, as its ledger tells: by seq, of one state or of any."""
    policy, given = await call.queue(), call.request.query_params
    instant, state = _instant_in(call.request), given.get("state")
    if state is not None and state not in PAST_STATES:
        raise InvalidRequest(f"state is one of {', '.join(PAST_STATES)}.")
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
    """What happened to a job, from the ledger: as long as that is kept, which is longer than the job."""
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
    """The refusal where nothing is kept of a job."""
    return NotFound(
        f"Nothing is known of job {seq} of {policy.topic.name!r}.", {"topic": policy.topic.name, "seq": seq}
    )


def _why(reasons: Sequence[Reason]) -> list[WhyNot]:
    return [WhyNot(one.code.value, one.message, one.numbers) for one in reasons]


def _instant_in(request: Request) -> datetime:
    given = request.query_params.get("at")
    if given is None:
        raise InvalidRequest("at is needed: an RFC 3339 time with its offset, such as 2026-01-31T09:00:00Z.")
    return time_of(given, "at")


def _name_in(request: Request, name: str, least: int = 0) -> str | None:
    """A group's or tenant's name, None if there is none. Raises InvalidRequest."""
    given = request.query_params.get(name)
    if given is not None and (not least <= len(given) <= MAX_GROUP or "\0" in given):
        raise InvalidRequest(f"{name} must have {least} to {MAX_GROUP} characters, and no NUL.")
    return given
