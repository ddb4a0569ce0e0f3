"""POST /v0/topics/:topic/requeue, GET /v0/topics/:topic/operations, and /v0/operations: jobs that are out get another
life."""

from __future__ import annotations

import time
from typing import Annotated, Final, Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.base.keys import Scope
from app.features.jobs import redrive_bodies as redrive
from app.features.jobs.operation_requests import find_operation
from app.features.jobs.operations import Operation
from app.features.jobs.redrive_bodies import RequeueBody
from app.features.jobs.redrives import Redrives
from app.http import direct
from app.http.bounds import about
from app.http.context import context_of
from app.http.fields import encode, known_parameters, topic_in
from app.http.openapi import TOPIC, operation, path
from app.http.v0.bodies import Performance
from app.http.v0.fields import answer
from app.kernel.topics.policy import check_name

router = direct.router("jobs")

MOST: Final = 20  # of a topic's operations
ID: Final = {**path("id", "The operation's id.", {"type": "string"}), "example": "4d0e9d5b-3c1f-4f7a-9a57-2f9f7a1f8f00"}


class RequeueAnswer(redrive.RequeueAnswer):
    """202: it goes on by itself."""

    performance: Performance


class OperationSoFar(msgspec.Struct):
    """A requeue or cancel of many jobs, so far. Times are in ms since 1970. `skipped`: jobs that somebody else took
    meanwhile, whose key a pending job has, or whose topic is gone. `failed_again`: of the canary's. Of a cancel: `gone`
    and `marked`, as POST …/cancel counts them."""

    id: str
    topic: str
    kind: Literal["requeue", "cancel"]
    state: Literal["canary", "running", "done", "cancelled", "stopped", "failed"]
    reason: str | None
    matched: int
    exact: bool
    requeued: int
    gone: int
    marked: int
    skipped: int
    failed_again: int
    rate: int
    cancelled: bool
    started_at: int
    ended_at: int | None
    requested_by: str


class OperationAnswer(OperationSoFar):
    """A requeue or cancel of many jobs, so far."""

    performance: Performance


class OperationsAnswer(msgspec.Struct):
    """A topic's requeues and cancels, those under way before others, the newest first."""

    topic: str
    operations: Annotated[list[OperationSoFar], about(f"{MOST} at most.")]
    performance: Performance


@router.post(
    "/v0/topics/{topic}/requeue",
    response_class=Response,
    openapi_extra=operation(
        parameters=[TOPIC],
        body=RequeueBody,
        answers={200: RequeueAnswer, 202: RequeueAnswer},
        errors=[400, 401, 403, 404, 409, 413, 415, 503],
    ),
)
async def requeue(request: Request) -> Response:
    """Requeue dead letters, and jobs that failed, with a whole budget: those of this topic, or those that it holds for
    others. An operation does it and goes on whoever leaves."""
    began = time.perf_counter()
    status, counted = await redrive.begin(*await redrive.called(request))
    return answer(encode(counted)[1:-1], began, status=status)


@router.get(
    "/v0/topics/{topic}/operations",
    response_class=Response,
    openapi_extra=operation(parameters=[TOPIC], answers={200: OperationsAnswer}, errors=[400, 401, 403, 404, 409, 503]),
)
async def of_topic(request: Request) -> Response:
    """The requeues and cancels of a topic that are under way, and those that ended last; of these, 1,000 of all topics'
    are looked at."""
    began = time.perf_counter()
    context = context_of(request)
    name = topic_in(request)
    context.access.check(request, Scope.READ, name)
    known_parameters(request, ())
    await context.policies.queue(check_name(name))
    found = await context.core(Redrives).of_topic(name, MOST)
    return answer(encode({"topic": name, "operations": [_fields(one) for one in found]})[1:-1], began)


@router.get(
    "/v0/operations/{id}",
    response_class=Response,
    openapi_extra=operation(parameters=[ID], answers={200: OperationAnswer}, errors=[401, 403, 404, 503]),
)
async def read(request: Request) -> Response:
    """How far a requeue or cancel is. It is kept for 14 days after its end."""
    began = time.perf_counter()
    context = context_of(request)
    key = context.access.check(request, Scope.READ)
    return answer(_shown(await find_operation(context, request.path_params["id"], key)), began)


@router.post(
    "/v0/operations/{id}/cancel",
    response_class=Response,
    openapi_extra=operation(parameters=[ID], answers={200: OperationAnswer}, errors=[401, 403, 404, 503]),
)
async def cancel(request: Request) -> Response:
    """Ask a requeue or cancel to end after the batch that it is at. What it has done stays done."""
    began = time.perf_counter()
    context = context_of(request)
    key = context.access.check(request, Scope.WRITE)
    found = await find_operation(context, request.path_params["id"], key)
    ending = await context.core(Redrives).cancel(found.id, context.access.actor(request))
    return answer(_shown(ending or found), began)


def _shown(one: Operation) -> bytes:
    return encode(_fields(one))[1:-1]


def _fields(one: Operation) -> dict[str, object]:
    return {
        "id": str(one.id),
        "topic": one.wanted.topic[0],
        "kind": one.wanted.kind,
        "state": one.state.value,
        "reason": one.reason,
        "matched": one.matched.count,
        "exact": one.matched.exact,
        "requeued": one.requeued,
        "gone": one.gone,
        "marked": one.marked,
        "skipped": one.skipped,
        "failed_again": one.failed_again,
        "rate": one.wanted.rate,
        "cancelled": one.cancelled,
        "started_at": int(one.started_at.timestamp() * 1000),
        "ended_at": None if one.ended_at is None else int(one.ended_at.timestamp() * 1000),
        "requested_by": one.actor[0],
    }
