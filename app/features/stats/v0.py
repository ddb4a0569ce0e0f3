"""/v0/topics/:topic/stats, its history and /scale, and /v0/overview: what topics hold and held, and what is wrong."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request

from app.base.keys import covers
from app.errors import InvalidRequest
from app.features.stats import rows
from app.features.stats.overview import Minutes, Overview, Sort, TopicOverview, page
from app.features.stats.rows import DepthStep, StatsStep
from app.http.bounds import NO_NUL, about
from app.http.fields import CURSOR, cursor_of, cursor_to, flag, foreign_cursor, page_size, prefix, prefix_in, time_of
from app.http.openapi import query
from app.http.route import Call
from app.http.sight import tenants_for
from app.kernel.counts.levels import Levels
from app.kernel.counts.triage import TopicLevels
from app.kernel.tenants.census import Census
from app.kernel.tenants.tenants import Stats
from app.kernel.topics.settings import MAX_TENANT

MOST: Final = 100  # tenants, or topics, of a page
MOST_STEPS: Final = 1_500
LONGEST_STEP: Final = 86_400  # seconds
HOUR: Final = timedelta(hours=1)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
HISTORY_SECONDS: Final = 5  # of a topic with very many tenants it may take longer: then it is a 503

_WHOLE: Final = re.compile(r"[0-9]{1,9}\Z")
_TIME: Final = {"type": "string", "format": "date-time"}

STATS_PARAMETERS: Final = (
    query("by", "By what.", {"type": "string", "enum": ["tenant"]}, required=True),
    query("page_size", f"1 to {MOST}, clamped.", {"type": "integer", "default": MOST}),
    CURSOR,
)
HISTORY_PARAMETERS: Final = (
    query(
        "from",
        "From when on, an RFC 3339 time with its offset; down to a whole step. Absent: an hour ago.",
        _TIME,
    ),
    query("to", "Up to when, not included; up to a whole step. Absent: now.", _TIME),
    query(
        "step",
        f"Seconds of a step, a multiple of 60. There may be {MOST_STEPS} steps.",
        {"type": "integer", "minimum": 60, "maximum": LONGEST_STEP, "multipleOf": 60, "default": 60},
    ),
    query(
        "tenant",
        "Of this tenant alone; the default tenant's name is empty.",
        {"type": "string", "maxLength": MAX_TENANT, "pattern": NO_NUL},
    ),
)
OVERVIEW_PARAMETERS: Final = (
    prefix("topics"),
    query("troubled", "Only topics with which something is wrong.", {"type": "boolean", "default": False}),
    query(
        "sort",
        "By name, or what hurts most, waits longest, or has most ready or dead jobs first.",
        {"type": "string", "enum": [one.value for one in Sort], "default": Sort.NAME.value},
    ),
    query("page_size", f"1 to {MOST}, clamped.", {"type": "integer", "default": MOST}),
    CURSOR,
)

Dead = Annotated[
    int,
    about(
        "Failed jobs: those kept in the topic, "
        "and those in its dead-letter topic that came from it, if that is a queue."
    ),
]
Exact = Annotated[bool, about("false: more than 10,000 jobs are due, and there may be more of each state.")]
DeadExact = Annotated[bool, about("false: there may be more failed jobs: 10,000 in the dead-letter topic are counted.")]
ClaimableAge = Annotated[int | None, about("null: nothing can be claimed.")]
BlockedAge = Annotated[int | None, about("Of jobs behind the heads of their groups. null: none waits.")]


class TenantStats(msgspec.Struct):
    """Counts of a tenant's jobs."""

    tenant: str
    ready: int
    scheduled: int
    in_flight: int
    blocked: int
    dead: Dead
    at_least: Annotated[bool, about("Whether there may be more: counts end at 10000 of a priority.")]
    oldest_claimable_age_ms: ClaimableAge


class TopicStats(msgspec.Struct):
    """Counts of the whole topic's jobs, now."""

    ready: int
    scheduled: int
    in_flight: int
    blocked: int
    dead: Dead
    exact: Exact
    dead_exact: DeadExact
    oldest_claimable_age_ms: ClaimableAge
    oldest_blocked_age_ms: BlockedAge


class TenantStatsAnswer(msgspec.Struct):
    """A page of tenants by name, as of the last second; `next_cursor` is absent on the last one."""

    topic: str
    tenants: list[TenantStats]
    total: Annotated[TopicStats | UnsetType, about("On the first page, and not for a key that is for one tenant.")] = (
        UNSET
    )
    next_cursor: str | UnsetType = UNSET


class StatsHistoryAnswer(msgspec.Struct):
    """Steps by time; one in which nothing happened is left out. Times are in ms since 1970; minutes before `told_to`
    are whole, and later ones may lack some events, or all."""

    topic: str
    step_s: int
    told_to: int
    steps: list[StatsStep]
    depths: Annotated[
        list[DepthStep] | UnsetType,
        about("Looked at once a minute; a step of which it is not known is left out. Absent of one tenant."),
    ] = UNSET


class ScaleAnswer(msgspec.Struct):
    """What workers of a queue have to do. Numbers only, as scalers take no null. Of a paused topic, what is ready does
    not count: more workers would get none of it."""

    topic: str
    depth: Annotated[int, about("Jobs that workers have or could have: ready, unless it is paused, and in flight.")]
    ready: int
    in_flight: int
    scheduled: int
    oldest_claimable_age_ms: Annotated[int, about("0: nothing can be claimed, or it is paused.")]
    paused: bool


class TroubleShown(msgspec.Struct):
    """Something that is wrong. bad hurts now, watch will if it stays, note is somebody's intention."""

    code: Literal[
        "nobody_claims",
        "waiting",
        "dead_letters",
        "failing",
        "stuck_groups",
        "long_leases",
        "throttled",
        "paused",
        "draining",
    ]
    level: Literal["bad", "watch", "note"]
    text: str


class TopicSeen(msgspec.Struct):
    """What a topic holds, and what is wrong with it, the worst first; of a log only its records and bytes are told."""

    topic: str
    type: Literal["queue", "log"]
    count: Annotated[int, about("Jobs that are not finished; a log's records.")]
    bytes: int
    ready: int
    in_flight: int
    scheduled: int
    blocked: int
    dead: Dead
    exact: Exact
    dead_exact: DeadExact
    oldest_claimable_age_ms: ClaimableAge
    oldest_blocked_age_ms: BlockedAge
    wait_goal_ms: Annotated[int | None, about("From what age on it is late; 0: from none. null: it is a log.")]
    paused: bool
    paused_tenants: Annotated[int, about("How many of its tenants are.")]
    draining: bool
    minutes: Annotated[Minutes | None, about("null: it is a log, or PostgreSQL did not tell in time.")]
    troubles: list[TroubleShown]


class OverviewAnswer(msgspec.Struct):
    """A page of topics; `next_cursor` is absent on the last one. Of more topics than HOLDFAST_METRICS_TOPICS not all
    are looked at."""

    topics: list[TopicSeen]
    topics_total: Annotated[int, about("How many there are, whether or not the caller may see them.")]
    truncated: Annotated[bool, about("Not all of them were looked at.")]
    age_ms: Annotated[int | None, about("How long ago they were looked at; null: never yet.")]
    next_cursor: str | UnsetType = UNSET


async def stats(call: Call) -> TenantStatsAnswer:
    """Counts of jobs: of each tenant of a queue, and of the whole queue."""
    request, context = call.request, call.context
    if request.query_params.get("by") != "tenant":
        raise InvalidRequest("by must be tenant.")
    size = min(page_size(request), MOST)
    place = cursor_of(request, dict[str, str])
    begin = "" if place is None else place.get("from")
    if begin is None or "\0" in begin:
        raise foreign_cursor()
    policy, only = await call.queue(), None if call.key is None else call.key.tenant
    found = await context.core(Census).read(policy, begin=begin, limit=size + 1, only=only)
    first_of_all = place is None and only is None
    return TenantStatsAnswer(
        call.topic,
        [_tenant_stats(one) for one in found[:size]],
        _topic_stats(await context.core(Levels).look_at(policy)) if first_of_all else UNSET,
        cursor_to({"from": found[size].tenant}) if len(found) > size else UNSET,
    )


async def history(call: Call) -> StatsHistoryAnswer:
    """What became of a queue's jobs, minute by minute or in longer steps: as is kept for 31 days."""
    request = call.request
    step = _step_in(request)
    named = request.query_params.get("tenant")
    if named is not None and (len(named) > MAX_TENANT or "\0" in named):
        raise InvalidRequest(f"A tenant's name has up to {MAX_TENANT} characters, and no NUL.")
    only = tenants_for(call.key, None if named is None else [named])
    policy = await call.queue()
    topic = policy.topic
    async with call.context.pools.rest.acquire() as db, db.transaction(readonly=True):
        await db.execute(f"SET LOCAL statement_timeout = '{HISTORY_SECONDS}s'")
        told_to, now = await rows.read_progress(db)
        window = _window(request, now, step)
        steps = await rows.read_steps(db, topic, window, step, None if only is None else min(only))
        depths = UNSET if only is not None else await rows.read_depths(db, topic, window, step)
    return StatsHistoryAnswer(topic.name, int(step.total_seconds()), told_to, steps, depths)


async def scale(call: Call) -> ScaleAnswer:
    """How much there is to do for workers of a queue, for whoever decides how many of them run."""
    policy = await call.queue()
    depth = (await call.context.core(Levels).depths([policy]))[call.topic]
    paused = policy.control.paused
    return ScaleAnswer(
        topic=call.topic,
        depth=depth.in_flight + (0 if paused else depth.ready),
        ready=depth.ready,
        in_flight=depth.in_flight,
        scheduled=depth.scheduled,
        oldest_claimable_age_ms=0 if paused else max(depth.oldest_ms or 0, 0),
        paused=paused,
    )


async def overview(call: Call) -> OverviewAnswer:
    """How topics are: what they hold, what became of their jobs within the hour, and what is wrong."""
    request = call.request
    starts, troubled = prefix_in(request), flag(request, "troubled", default=False)
    size, sort, after = min(page_size(request, MOST), MOST), _sort_in(request), _after(request)
    view = await call.context.core(Overview).read()
    may_see = covers(call.key)
    chosen = [one for one in view.topics if one.name.startswith(starts) and may_see(one.name)]
    listed, more = page([one for one in chosen if one.troubles or not troubled], sort, after, size)
    return OverviewAnswer(
        [_topic_seen(one) for one in listed],
        view.total,
        truncated=view.unseen > 0,
        age_ms=None if view.age is None else round(view.age * 1000),
        next_cursor=cursor_to({"after": listed[-1].name}) if more else UNSET,
    )


def _step_in(request: Request) -> timedelta:
    given = request.query_params.get("step", "60")
    seconds = int(given) if _WHOLE.match(given) else 0
    if not 60 <= seconds <= LONGEST_STEP or seconds % 60:
        raise InvalidRequest(f"step must be a multiple of 60 from 60 to {LONGEST_STEP}, in seconds.")
    return timedelta(seconds=seconds)


def _window(request: Request, now: datetime, step: timedelta) -> tuple[datetime, datetime]:
    """Whole steps around what is asked for, so that asking again gives the same ones."""
    given, until = request.query_params.get("from"), request.query_params.get("to")
    end = now if until is None else time_of(until, "to")
    start = end - HOUR if given is None else time_of(given, "from")
    if start >= end:
        raise InvalidRequest("from must be before to.")
    try:
        since = start - (start - EPOCH) % step
        before = end + (EPOCH - end) % step
    except OverflowError:
        raise InvalidRequest("from and to must be some day from year 1 to 9998.") from None
    if before - since > MOST_STEPS * step:
        raise InvalidRequest(f"There may be {MOST_STEPS} steps: take a longer step, or less time.")
    return since, before


def _sort_in(request: Request) -> Sort:
    try:
        return Sort(request.query_params.get("sort", Sort.NAME.value))
    except ValueError:
        raise InvalidRequest(f"sort must be one of {', '.join(Sort)}.") from None


def _after(request: Request) -> str:
    place = cursor_of(request, dict[str, str])
    if place is None:
        return ""
    if "after" not in place:
        raise foreign_cursor()
    return place["after"]


def _tenant_stats(one: Stats) -> TenantStats:
    return TenantStats(
        one.tenant, one.ready, one.scheduled, one.in_flight, one.blocked, one.dead, one.at_least, one.oldest_ms
    )


def _topic_stats(looked: TopicLevels) -> TopicStats:
    return TopicStats(
        ready=looked.ready,
        scheduled=looked.scheduled,
        in_flight=looked.in_flight,
        blocked=looked.blocked,
        dead=looked.dead,
        exact=looked.exact,
        dead_exact=looked.dead_exact,
        oldest_claimable_age_ms=looked.oldest_ms,
        oldest_blocked_age_ms=looked.stuck.oldest_ms,
    )


def _topic_seen(one: TopicOverview) -> TopicSeen:
    looked, control = one.looked, one.policy.control
    return TopicSeen(
        topic=one.name,
        type="queue" if looked.is_queue else "log",
        count=looked.count,
        bytes=looked.bytes,
        ready=looked.ready,
        in_flight=looked.in_flight,
        scheduled=looked.scheduled,
        blocked=looked.blocked,
        dead=looked.dead,
        exact=looked.exact,
        dead_exact=looked.dead_exact,
        oldest_claimable_age_ms=looked.oldest_ms,
        oldest_blocked_age_ms=looked.stuck.oldest_ms,
        wait_goal_ms=one.policy.config.wait_goal_ms if looked.is_queue else None,
        paused=control.paused,
        paused_tenants=len(control.paused_tenants),
        draining=control.draining,
        minutes=one.minutes,
        troubles=msgspec.convert(msgspec.to_builtins(one.troubles), list[TroubleShown]),
    )
