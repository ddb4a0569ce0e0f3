"""GET /v0/topics/:topic/stats/history."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request

from app.errors import InvalidRequest
from app.features.stats import rows
from app.features.stats.rows import DepthStep, StatsStep
from app.http.bounds import NO_NUL, about
from app.http.fields import time_of
from app.http.openapi import query
from app.http.route import Call
from app.http.sight import tenants_for
from app.kernel.topics.settings import MAX_TENANT

MOST_STEPS: Final = 1_500
LONGEST_STEP: Final = 86_400  # seconds
HOUR: Final = timedelta(hours=1)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
SECONDS: Final = 5  # of a topic with very many tenants it may take longer: then it is a 503

_WHOLE: Final = re.compile(r"[0-9]{1,9}\Z")
_TIME: Final = {"type": "string", "format": "date-time"}


PARAMETERS: Final = (
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
        await db.execute(f"SET LOCAL statement_timeout = '{SECONDS}s'")
        told_to, now = await rows.read_progress(db)
        window = _window(request, now, step)
        steps = await rows.read_steps(db, topic, window, step, None if only is None else min(only))
        depths = UNSET if only is not None else await rows.read_depths(db, topic, window, step)
    return StatsHistoryAnswer(topic.name, int(step.total_seconds()), told_to, steps, depths)


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
