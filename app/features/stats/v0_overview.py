"""GET /v0/overview: how topics are, all in one answer."""

from __future__ import annotations

import time
from typing import Annotated, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.base.keys import Scope, covers
from app.errors import InvalidRequest
from app.features.stats.overview import Overview, Seen, Sort, page
from app.features.stats.v0 import BLOCKED_AGE, DEAD, DEAD_EXACT, EXACT
from app.http import direct
from app.http.bounds import about
from app.http.context import context_of
from app.http.fields import encode, flag, known_parameters
from app.http.openapi import operation, query
from app.http.paging import CURSOR, cursor_of, cursor_to, foreign_cursor, page_size, prefix, prefix_in
from app.http.v0.bodies import Performance
from app.http.v0.fields import answer

router = direct.router("topics")

MOST = 100  # topics of a page


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


class MinutesShown(msgspec.Struct):
    """What became of jobs, minute by minute: 60 numbers each, the last of the minute that runs. A minute is 0 until it
    is told, 20 to 60 s after its end."""

    enqueued: list[int]
    claimed: list[int]
    completed: list[int]
    failed: list[int]
    dead_lettered: list[int]


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
    dead: Annotated[int, DEAD]
    exact: Annotated[bool, EXACT]
    dead_exact: Annotated[bool, DEAD_EXACT]
    oldest_claimable_age_ms: Annotated[int | None, about("null: nothing can be claimed.")]
    oldest_blocked_age_ms: Annotated[int | None, BLOCKED_AGE]
    wait_goal_ms: Annotated[int | None, about("From what age on it is late; 0: from none. null: it is a log.")]
    paused: bool
    paused_tenants: Annotated[int, about("How many of its tenants are.")]
    draining: bool
    minutes: Annotated[MinutesShown | None, about("null: it is a log, or PostgreSQL did not tell in time.")]
    troubles: list[TroubleShown]


class OverviewAnswer(msgspec.Struct):
    """A page of topics; `next_cursor` is absent on the last one. Of more topics than HOLDFAST_METRICS_TOPICS not all
    are looked at."""

    topics: list[TopicSeen]
    topics_total: Annotated[int, about("How many there are, whether or not the caller may see them.")]
    truncated: Annotated[bool, about("Not all of them were looked at.")]
    age_ms: Annotated[int | None, about("How long ago they were looked at; null: never yet.")]
    performance: Performance
    next_cursor: str | msgspec.UnsetType = msgspec.UNSET


@router.get(
    "/v0/overview",
    response_class=Response,
    openapi_extra=operation(
        parameters=[
            prefix("topics"),
            query("troubled", "Only topics with which something is wrong.", {"type": "boolean", "default": False}),
            query(
                "sort",
                "By name, or what hurts most, waits longest, or has most ready or dead jobs first.",
                {"type": "string", "enum": [one.value for one in Sort], "default": Sort.NAME.value},
            ),
            query("page_size", f"1 to {MOST}, clamped.", {"type": "integer", "default": MOST}),
            CURSOR,
        ],
        answers={200: OverviewAnswer},
        errors=[400, 401, 403, 503],
    ),
)
async def overview(request: Request) -> Response:
    """How topics are: what they hold, what became of their jobs within the hour, and what is wrong."""
    began = time.perf_counter()
    context = context_of(request)
    key = context.access.check(request, Scope.READ)
    known_parameters(request, ("prefix", "troubled", "sort", "page_size", "cursor"))
    starts, troubled = prefix_in(request), flag(request, "troubled", default=False)
    size, sort, after = min(page_size(request, MOST), MOST), _sort_in(request), _after(request)
    view = await context.core(Overview).read()
    may_see = covers(key)
    chosen = [one for one in view.topics if one.name.startswith(starts) and may_see(one.name)]
    shown, more = page([one for one in chosen if one.troubles or not troubled], sort, after, size)
    fields: dict[str, object] = {
        "topics": [_shown(one) for one in shown],
        "topics_total": view.total,
        "truncated": view.unseen > 0,
        "age_ms": None if view.age is None else round(view.age * 1000),
    }
    if more:
        fields["next_cursor"] = cursor_to({"after": shown[-1].name})
    return answer(encode(fields)[1:-1], began)


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


def _shown(one: Seen) -> TopicSeen:
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
        minutes=None if one.minutes is None else msgspec.convert(one.minutes, MinutesShown, from_attributes=True),
        troubles=msgspec.convert(msgspec.to_builtins(one.troubles), list[TroubleShown]),
    )
