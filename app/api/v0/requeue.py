"""POST /v0/topics/:topic/requeue, and /v0/operations: jobs that are out get another life."""

from __future__ import annotations

import time
from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.api import direct, redrive
from app.api.fields import encode
from app.api.openapi import TOPIC, operation
from app.api.redrive import ID, RequeueBody, RequeueCount
from app.api.v0.bodies import Performance
from app.api.v0.fields import answer
from app.queue.operations import Operation

router = direct.router("jobs")


class RequeueAnswer(RequeueCount):
    """202: it goes on by itself."""

    performance: Performance


class OperationAnswer(msgspec.Struct):
    """A requeue of many jobs, so far. Times are in ms since 1970. `skipped`: jobs that somebody else took meanwhile,
    whose key a pending job has, or whose topic is gone. `failed_again`: of the canary's."""

    id: str
    topic: str
    state: Literal["canary", "running", "done", "cancelled", "stopped", "failed"]
    reason: str | None
    matched: int
    exact: bool
    requeued: int
    skipped: int
    failed_again: int
    rate: int
    cancelled: bool
    started_at: int
    ended_at: int | None
    requested_by: str
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
    counted = await redrive.begin(request)
    return answer(encode(counted)[1:-1], began, status=200 if counted.id is None else 202)


@router.get(
    "/v0/operations/{id}",
    response_class=Response,
    openapi_extra=operation(parameters=[ID], answers={200: OperationAnswer}, errors=[401, 403, 404, 503]),
)
async def read(request: Request) -> Response:
    """How far a requeue is. It is kept for 14 days after its end."""
    began = time.perf_counter()
    return answer(_shown(await redrive.read(request)), began)


@router.post(
    "/v0/operations/{id}/cancel",
    response_class=Response,
    openapi_extra=operation(parameters=[ID], answers={200: OperationAnswer}, errors=[401, 403, 404, 503]),
)
async def cancel(request: Request) -> Response:
    """Ask a requeue to end after the batch that it is at. What it has requeued stays requeued."""
    began = time.perf_counter()
    return answer(_shown(await redrive.cancel(request)), began)


def _shown(one: Operation) -> bytes:
    fields = {
        "id": str(one.id),
        "topic": one.wanted.topic[0],
        "state": one.state.value,
        "reason": one.reason,
        "matched": one.matched.count,
        "exact": one.matched.exact,
        "requeued": one.requeued,
        "skipped": one.skipped,
        "failed_again": one.failed_again,
        "rate": one.wanted.rate,
        "cancelled": one.cancelled,
        "started_at": int(one.started_at.timestamp() * 1000),
        "ended_at": None if one.ended_at is None else int(one.ended_at.timestamp() * 1000),
        "requested_by": one.actor[0],
    }
    return encode(fields)[1:-1]
