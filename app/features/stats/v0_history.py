"""GET /v0/topics/:topic/stats/history."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime, timedelta
from typing import Annotated, Final

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from app.base.keys import Scope
from app.errors import InvalidRequest
from app.features.stats import rows as stats
from app.features.stats.rows import Step
from app.http import direct
from app.http.bounds import NO_NUL, about
from app.http.context import context_of
from app.http.fields import encode, known_parameters, time_of, topic_in
from app.http.openapi import TOPIC, operation, query
from app.http.tenancy import claimed_by
from app.http.v0.bodies import Performance
from app.http.v0.fields import answer
from app.kernel.topics.policy import check_name
from app.kernel.topics.settings import MAX_TENANT

router = direct.router("topics")

MOST_STEPS: Final = 1_500
LONGEST_STEP: Final = 86_400  # seconds
HOUR: Final = timedelta(hours=1)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
SECONDS: Final = 5  # of a topic with very many tenants it may take longer: then it is a 503

_WHOLE: Final = re.compile(r"[0-9]{1,9}\Z")
_TIME: Final = {"type": "string", "format": "date-time"}


class Times(msgspec.Struct):
    """How many, and percentiles by nearest rank in whole ms; null: of none. Exact where a step is one minute of one
    tenant, else up to an eighth too high."""

    count: int
    p50_ms: int | None
    p95_ms: int | None
    p99_ms: int | None


class StatsStep(msgspec.Struct):
    """What became of the jobs from `at` (ms since 1970) on, for a step. `failed` went out, `dead_lettered` of those;
    `retried` are deliveries that were not a job's first."""

    at: int
    enqueued: int
    completed: int
    failed: int
    retried: int
    dead_lettered: int
    expired: int
    cancelled: int
    wait: Annotated[Times, about("Of each delivery: from when the job could be had to its claim.")]
    processing: Annotated[Times, about("Of each completion: from the claim to the ack.")]


class DepthStep(msgspec.Struct):
    """What the queue held at the end of the step that begins at `at`, or holds in one that is not over."""

    at: int
    ready: int
    in_flight: int
    scheduled: int
    blocked: int


class StatsHistoryAnswer(msgspec.Struct):
    """Steps by time; one in which nothing happened is left out. Times are in ms since 1970; minutes before `told_to`
    are whole, and later ones may lack some events, or all."""

    topic: str
    step_s: int
    told_to: int
    steps: list[StatsStep]
    performance: Performance
    depths: Annotated[
        list[DepthStep] | UnsetType,
        about("Looked at once a minute; a step of which it is not known is left out. Absent of one tenant."),
    ] = UNSET


@router.get(
    "/v0/topics/{topic}/stats/history",
    response_class=Response,
    openapi_extra=operation(
        parameters=[
            TOPIC,
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
        ],
        answers={200: StatsHistoryAnswer},
        errors=[400, 401, 403, 404, 409, 503],
    ),
)
async def history(request: Request) -> Response:
    """What became of a queue's jobs, minute by minute or in longer steps: as is kept for 31 days."""
    began = time.perf_counter()
    context = context_of(request)
    name = topic_in(request)
    key = context.access.check(request, Scope.READ, name, confines=True)
    known_parameters(request, ("from", "to", "step", "tenant"))
    step = _step_in(request)
    named = request.query_params.get("tenant")
    if named is not None and (len(named) > MAX_TENANT or "\0" in named):
        raise InvalidRequest(f"A tenant's name has up to {MAX_TENANT} characters, and no NUL.")
    only = claimed_by(key, None if named is None else [named])
    policy = await context.policies.queue(check_name(name))
    async with context.pools.rest.acquire() as db, db.transaction(readonly=True):
        await db.execute(f"SET LOCAL statement_timeout = '{SECONDS}s'")
        told_to, now = await stats.told(db)
        window = _window(request, now, step)
        found = await stats.read(db, policy.topic, window, step, None if only is None else min(only))
        held = [] if only is not None else await stats.depths(db, policy.topic, window, step)
    fields: dict[str, object] = {
        "topic": policy.topic.name,
        "step_s": int(step.total_seconds()),
        "told_to": told_to,
        "steps": [_shown(one) for one in found],
    }
    if only is None:
        fields["depths"] = [DepthStep(one.at_ms, one.ready, one.in_flight, one.scheduled, one.blocked) for one in held]
    return answer(encode(fields)[1:-1], began)


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


def _shown(one: Step) -> StatsStep:
    return StatsStep(
        at=one.at_ms,
        enqueued=one.enqueued,
        completed=one.completed,
        failed=one.failed,
        retried=one.retried,
        dead_lettered=one.dead_lettered,
        expired=one.expired,
        cancelled=one.cancelled,
        wait=Times(one.wait_count, one.wait_p50_ms, one.wait_p95_ms, one.wait_p99_ms),
        processing=Times(one.processing_count, one.processing_p50_ms, one.processing_p95_ms, one.processing_p99_ms),
    )
