"""GET /v0/topics/:topic/stats."""

from __future__ import annotations

import time
from typing import Annotated, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.base.keys import Scope
from app.errors import InvalidRequest
from app.http import direct
from app.http.bounds import about
from app.http.context import context_of
from app.http.fields import encode, known_parameters, topic_in
from app.http.openapi import TOPIC, operation, query
from app.http.paging import CURSOR, cursor_of, cursor_to, foreign_cursor, page_size
from app.http.v0.bodies import Performance
from app.http.v0.fields import answer
from app.kernel.counts.levels import Levels, Looked
from app.kernel.tenants.census import Census
from app.kernel.tenants.tenants import Stats
from app.kernel.topics.policy import check_name

router = direct.router("topics")

MOST = 100  # tenants of a page


DEAD: Final = about(
    "Failed jobs: those kept in the topic, and those in its dead-letter topic that came from it, if that is a queue."
)
EXACT: Final = about("false: more than 10,000 jobs are due, and there may be more of each state.")
BLOCKED_AGE: Final = about("Of jobs behind the heads of their groups. null: none waits.")
DEAD_EXACT: Final = about("false: there may be more failed jobs: 10,000 in the dead-letter topic are counted.")


class TenantStats(msgspec.Struct):
    """Counts of a tenant's jobs."""

    tenant: str
    ready: int
    scheduled: int
    in_flight: int
    blocked: int
    dead: Annotated[int, DEAD]
    at_least: Annotated[bool, about("Whether there may be more: counts end at 10000 of a priority.")]
    oldest_claimable_age_ms: Annotated[int | None, about("null: nothing can be claimed.")]


class TopicStats(msgspec.Struct):
    """Counts of the whole topic's jobs, now."""

    ready: int
    scheduled: int
    in_flight: int
    blocked: int
    dead: Annotated[int, DEAD]
    exact: Annotated[bool, EXACT]
    dead_exact: Annotated[bool, DEAD_EXACT]
    oldest_claimable_age_ms: Annotated[int | None, about("null: nothing can be claimed.")]
    oldest_blocked_age_ms: Annotated[int | None, BLOCKED_AGE]


class TenantStatsAnswer(msgspec.Struct):
    """A page of tenants by name, as of the last second; `next_cursor` is absent on the last one."""

    topic: str
    tenants: list[TenantStats]
    performance: Performance
    total: Annotated[
        TopicStats | msgspec.UnsetType, about("On the first page, and not for a key that is for one tenant.")
    ] = msgspec.UNSET
    next_cursor: str | msgspec.UnsetType = msgspec.UNSET


@router.get(
    "/v0/topics/{topic}/stats",
    response_class=Response,
    openapi_extra=operation(
        parameters=[
            TOPIC,
            query("by", "By what.", {"type": "string", "enum": ["tenant"]}, required=True),
            query("page_size", "1 to 100, clamped.", {"type": "integer", "default": MOST}),
            CURSOR,
        ],
        answers={200: TenantStatsAnswer},
        errors=[400, 401, 403, 404, 409, 503],
    ),
)
async def stats(request: Request) -> Response:
    """Counts of jobs: of each tenant of a queue, and of the whole queue."""
    began = time.perf_counter()
    context = context_of(request)
    name = topic_in(request)
    key = context.access.check(request, Scope.READ, name, confines=True)
    known_parameters(request, ("by", "page_size", "cursor"))
    if request.query_params.get("by") != "tenant":
        raise InvalidRequest("by must be tenant.")
    size = min(page_size(request), MOST)
    place = cursor_of(request, dict[str, str])
    begin = "" if place is None else place.get("from")
    if begin is None or "\0" in begin:
        raise foreign_cursor()
    policy = await context.policies.queue(check_name(name))
    found = await context.core(Census).read(
        policy, begin=begin, limit=size + 1, only=None if key is None else key.tenant
    )
    fields: dict[str, object] = {"topic": name, "tenants": [_shown(one) for one in found[:size]]}
    if place is None and (key is None or key.tenant is None):
        fields["total"] = _total(await context.core(Levels).look_at(policy))
    if len(found) > size:
        fields["next_cursor"] = cursor_to({"from": found[size].tenant})
    return answer(encode(fields)[1:-1], began)


def _shown(one: Stats) -> TenantStats:
    return TenantStats(
        one.tenant, one.ready, one.scheduled, one.in_flight, one.blocked, one.dead, one.at_least, one.oldest_ms
    )


def _total(looked: Looked) -> TopicStats:
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
