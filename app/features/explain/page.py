"""/admin/topics/{topic}/asof: a queue's jobs at an instant in the past, beside those it has now."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Final
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.base.times import ms_of
from app.errors import InvalidRequest, NotFound, TooMuchToRead, TopicNotFound
from app.features.explain.store import Pasts
from app.http.context import Context, context_of
from app.http.fields import whole
from app.kernel import jobs, ledger
from app.kernel.counts.levels import Levels
from app.kernel.counts.triage import TopicLevels
from app.kernel.jobs import Statuses
from app.kernel.ledger import PAST_STATES, Past, PastJob
from app.kernel.topics.policy import Policy, check_name
from app.kernel.topics.settings import BIGINT_MAX
from app.pages.forms import instant_of
from app.pages.frame import tabs
from app.pages.render import page

SECOND_MS, MINUTE_MS, HOUR_MS = 1_000, 60_000, 3_600_000
MOST: Final = 50
JUMPS: Final = {"1 d": 24 * HOUR_MS, "1 h": HOUR_MS, "10 min": 10 * MINUTE_MS, "1 min": MINUTE_MS}


class Slider(msgspec.Struct, frozen=True):
    """The range and position of the page's slider, in ms since 1970.

    `begins_ms`: the ledger's first whole second. It can be typed where the slider's first step is later.
    """

    begins_ms: int
    first_ms: int
    last_ms: int
    step_ms: int
    at_ms: int

    @property
    def jumps(self) -> list[tuple[str, int]]:
        """Labels and times of the links that jump back and forth, within the slider's range."""
        ways = [(f"−{word}", self.at_ms - by) for word, by in JUMPS.items()]
        ways += [(f"+{word}", self.at_ms + by) for word, by in reversed(JUMPS.items())]
        return [(word, at) for word, at in ways if self.first_ms <= at <= self.last_ms]


class StateRow(msgspec.Struct, frozen=True):
    """The number of jobs in a state, then and now. `now` is None if it is not counted.

    `word`: the state as in addresses. `tone`: its colour.
    """

    word: str
    state: str
    tone: str
    then: int
    now: int | None
    exact: bool = True


class Comparison(msgspec.Struct, frozen=True):
    """A queue at an instant and now. The ages of the oldest ready job are None if there is none or it is unknown."""

    rows: list[StateRow]
    oldest_then_ms: int | None
    oldest_now_ms: int | None


class Then(msgspec.Struct, frozen=True):
    """A page of the jobs that were in a state. `following`: the query of the next page, "" on the last one."""

    word: str
    jobs: list[PastJob]
    following: str


async def show(request: Request) -> Response:
    """Render the page. Raises InvalidRequest, TopicNotFound, NotAQueue, Unavailable."""
    context, name = context_of(request), check_name(request.path_params["topic"])
    policy = await context.policies.queue(name)
    begins_ms = await ledger.begins(context.pools.rest, policy.topic)
    if begins_ms is None:
        raise TopicNotFound(name)
    now_ms = int(time.time() * 1000)
    given = request.query_params.get("at", "")
    status, fault, at_ms = 200, "", now_ms
    compared: Comparison | None = None
    then: Then | None = None
    if given:
        try:
            instant = instant_of(given, "at")
            if ms_of(instant) > now_ms:
                raise InvalidRequest("This time is in the future. Choose an earlier one.")
            at_ms = ms_of(instant)
            past = await context.core(Pasts).at(policy.topic, instant)
            (statuses,) = await jobs.statuses(context.pools.rest, [policy.topic])
            compared = _comparison(past, await context.core(Levels).look_at(policy), statuses)
            if state := request.query_params.get("state", ""):
                then = await _then(context, policy, instant, state, _behind(request))
        except (InvalidRequest, NotFound, TooMuchToRead) as error:
            status, fault = error.status, error.message
    return page(
        request,
        "asof.html",
        status,
        title=f"{name} as it was",
        topic=name,
        tabs=tabs(request, name),
        slider=_slider(begins_ms, now_ms, at_ms),
        typed=given,
        slid=given.isdecimal(),
        fault=fault,
        ago_ms=now_ms - at_ms,
        compared=compared,
        then=then,
        base=f"/admin/topics/{name}",
        dead_letter=policy.config.dead_letter,
    )


async def _then(context: Context, policy: Policy, instant: datetime, state: str, behind: int) -> Then:
    if state not in PAST_STATES:
        raise InvalidRequest(f"state must be one of {', '.join(PAST_STATES)}.")
    found = await context.core(Pasts).jobs_at(policy.topic, instant, state=state, behind=behind, limit=MOST + 1)
    after = {"at": ms_of(instant), "state": state, "after": found[MOST - 1].seq} if len(found) > MOST else {}
    return Then(state, found[:MOST], f"?{urlencode(after)}" if after else "")


def _behind(request: Request) -> int:
    behind = whole(request.query_params, "after", 0)
    if not 0 <= behind <= BIGINT_MAX:
        raise InvalidRequest("after must be the seq of a job.")
    return behind


def _comparison(past: Past, holding: TopicLevels, statuses: Statuses) -> Comparison:
    exact = holding.exact
    rows = [
        StateRow("ready", "Ready", "ready", past.ready, holding.ready, exact),
        StateRow("leased", "In flight", "in-flight", past.in_flight, holding.in_flight, exact),
        StateRow("scheduled", "Scheduled", "scheduled", past.scheduled, holding.scheduled, exact),
        StateRow("blocked", "Blocked", "blocked", past.blocked, holding.blocked),
        StateRow("failed", "Failed", "dead", past.failed, statuses.failed),
        StateRow("expired", "Expired", "flow", past.expired, statuses.expired, exact),
        StateRow("dead_lettered", "Dead letters", "dead", past.dead, None),
    ]
    return Comparison(rows, past.oldest_ms, holding.oldest_ms)


def _slider(begins_ms: int, now_ms: int, at_ms: int) -> Slider:
    """Its ends are whole steps. It begins a step after the retention's start, which moves while the page is open."""
    step = MINUTE_MS if now_ms - begins_ms > HOUR_MS else SECOND_MS
    last = now_ms // step * step
    first = min((begins_ms // step + 2) * step, last - step)
    return Slider(-(-begins_ms // SECOND_MS) * SECOND_MS, first, last, step, at_ms)
