"""/v0/topics/:topic/stats, /stats/history and /scale, and /v0/overview."""

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

MOST: Final = 100  # tenants or topics per page
MOST_STEPS: Final = 1_500
LONGEST_STEP: Final = 86_400  # seconds
HOUR: Final = timedelta(hours=1)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
HISTORY_SECONDS: Final = 5  # a topic with very many tenants may take longer, and gets a 503

_WHOLE: Final = re.compile(r"[0-9]{1,9}\Z")
_TIME: Final = {"type": "string", "format": "date-time"}

STATS_PARAMETERS: Final = (
    query("by", "How to group the counts.", {"type": "string", "enum": ["tenant"]}, required=True),
    query("page_size", f"1 to {MOST}, clamped.", {"type": "integer", "default": MOST}),
    CURSOR,
)
HISTORY_PARAMETERS: Final = (
    query(
        "from",
        "The start, an RFC 3339 time with its offset, rounded down to a whole step. Absent: an hour ago.",
        _TIME,
    ),
    query("to", "The end, not included, rounded up to a whole step. Absent: now.", _TIME),
    query(
        "step",
        f"The length of a step in seconds, a multiple of 60. The limit is {MOST_STEPS} steps.",
        {"type": "integer", "minimum": 60, "maximum": LONGEST_STEP, "multipleOf": 60, "default": 60},
    ),
    query(
        "tenant",
        "Only this tenant. The default tenant's name is empty.",
        {"type": "string", "maxLength": MAX_TENANT, "pattern": NO_NUL},
    ),
)
OVERVIEW_PARAMETERS: Final = (
    prefix("topics"),
    query("troubled", "Only topics in trouble.", {"type": "boolean", "default": False}),
    query(
        "sort",
        "name, or worst trouble first, oldest job first, most ready jobs first, most failed jobs first.",
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
Exact = Annotated[bool, about("false: more than 10,000 jobs are due, and each count is a lower bound.")]
DeadExact = Annotated[
    bool, about("false: there may be more failed jobs, as counting stops at 10,000 in the dead-letter topic.")
]
ClaimableAge = Annotated[int | None, about("null: no job can be claimed.")]
BlockedAge = Annotated[int | None, about("The longest wait of a job behind the head of its group. null: none waits.")]


class TenantStats(msgspec.Struct):
    """Counts of a tenant's jobs."""

    tenant: str
    ready: int
    scheduled: int
    in_flight: int
    blocked: int
    dead: Dead
    at_least: Annotated[bool, about("Whether there may be more: counting stops at 10000 per priority.")]
    oldest_claimable_age_ms: ClaimableAge


class TopicStats(msgspec.Struct):
    """Counts of all jobs of the topic."""

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
    """A page of tenants by name, as of the last second. The last page has no `next_cursor`."""

    topic: str
    tenants: list[TenantStats]
    total: Annotated[TopicStats | UnsetType, about("Only on the first page, and not for a key of one tenant.")] = UNSET
    next_cursor: str | UnsetType = UNSET


class StatsHistoryAnswer(msgspec.Struct):
    """Steps by time, without steps that have no events. Times are in ms since 1970. Minutes before `told_to` are
    complete. Later ones may lack events."""

    topic: str
    step_s: int
    told_to: int
    steps: list[StatsStep]
    depths: Annotated[
        list[DepthStep] | UnsetType,
        about("Sampled once a minute. Steps without a sample are left out. Absent for one tenant."),
    ] = UNSET


class ScaleAnswer(msgspec.Struct):
    """The load of a queue, for autoscalers. All values are numbers, as scalers don't accept null. Ready jobs of a
    paused topic don't count, since more workers would get none of them."""

    topic: str
    depth: Annotated[int, about("Jobs in flight, and ready jobs unless the topic is paused.")]
    ready: int
    in_flight: int
    scheduled: int
    oldest_claimable_age_ms: Annotated[int, about("0: no job can be claimed, or the topic is paused.")]
    paused: bool


class TroubleShown(msgspec.Struct):
    """A trouble. bad: needs action now; watch: will become bad if it stays; note: an operator's intention."""

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
    """A topic's counts and its troubles, the worst first. A log has only its records and bytes."""

    topic: str
    type: Literal["queue", "log"]
    count: Annotated[int, about("Unfinished jobs, or a log's records.")]
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
    wait_goal_ms: Annotated[
        int | None, about("The age of the oldest job from which the topic is late. 0: never. null: a log.")
    ]
    paused: bool
    paused_tenants: Annotated[int, about("The number of paused tenants.")]
    draining: bool
    minutes: Annotated[Minutes | None, about("null: a log, or the statistics could not be read in time.")]
    troubles: list[TroubleShown]


class OverviewAnswer(msgspec.Struct):
    """A page of topics. The last page has no `next_cursor`. At most HOLDFAST_METRICS_TOPICS topics are included."""

    topics: list[TopicSeen]
    topics_total: Annotated[int, about("The number of all topics, also those the caller may not see.")]
    truncated: Annotated[bool, about("Some topics are over the limit and not included.")]
    age_ms: Annotated[int | None, about("The age of the counts. null: topics were not read yet.")]
    next_cursor: str | UnsetType = UNSET


async def stats(call: Call) -> TenantStatsAnswer:
    """Counts of a queue's jobs, by tenant and in all."""
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
    """Statistics of a queue's jobs by minute or by longer steps. They are kept for 31 days."""
    request = call.request
    step = _step_in(request)
    named = request.query_params.get("tenant")
    if named is not None and (len(named) > MAX_TENANT or "\0" in named):
        raise InvalidRequest(f"tenant must have up to {MAX_TENANT} characters, and no NUL.")
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
    """The load of a queue, for autoscalers of its workers."""
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
    """All topics with their counts, their statistics of the last hour, and their troubles."""
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
    """Round the window to whole steps, so that repeated calls have the same steps."""
    given, until = request.query_params.get("from"), request.query_params.get("to")
    end = now if until is None else time_of(until, "to")
    start = end - HOUR if given is None else time_of(given, "from")
    if start >= end:
        raise InvalidRequest("from must be before to.")
    try:
        since = start - (start - EPOCH) % step
        before = end + (EPOCH - end) % step
    except OverflowError:
        raise InvalidRequest("from and to must be in the years 1 to 9998.") from None
    if before - since > MOST_STEPS * step:
        raise InvalidRequest(f"The limit is {MOST_STEPS} steps. Choose a longer step, or a shorter time.")
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
