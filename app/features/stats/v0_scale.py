"""GET /v0/topics/:topic/scale: numbers that a scaler of workers goes by. docs/operations/kubernetes.md."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.base.keys import Scope
from app.http import direct
from app.http.bounds import about
from app.http.context import context_of
from app.http.fields import encode, known_parameters, topic_in
from app.http.openapi import TOPIC, operation
from app.http.v0.bodies import Performance
from app.http.v0.fields import answer
from app.kernel.counts.levels import Levels
from app.kernel.topics.policy import check_name

router = direct.router("topics")


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
    performance: Performance


@router.get(
    "/v0/topics/{topic}/scale",
    response_class=Response,
    openapi_extra=operation(parameters=[TOPIC], answers={200: ScaleAnswer}, errors=[400, 401, 403, 404, 409, 503]),
)
async def scale(request: Request) -> Response:
    """How much there is to do for workers of a queue, for whoever decides how many of them run."""
    began = time.perf_counter()
    context = context_of(request)
    name = topic_in(request)
    context.access.check(request, Scope.READ, name)
    known_parameters(request, ())
    policy = await context.policies.queue(check_name(name))
    depth = (await context.core(Levels).depths([policy]))[name]
    paused = policy.control.paused
    fields = {
        "topic": name,
        "depth": depth.in_flight + (0 if paused else depth.ready),
        "ready": depth.ready,
        "in_flight": depth.in_flight,
        "scheduled": depth.scheduled,
        "oldest_claimable_age_ms": 0 if paused else max(depth.oldest_ms or 0, 0),
        "paused": paused,
    }
    return answer(encode(fields)[1:-1], began)
