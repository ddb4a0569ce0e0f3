"""POST /api/messages/:id/requeue, /api/topics/:topic/requeue and /api/operations: messages that are out get another
life."""

from __future__ import annotations

from datetime import datetime
from typing import Literal

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from app.api import direct, redrive
from app.api.fields import encode
from app.api.messages.errors import operation
from app.api.messages.ids import job_of, no_message
from app.api.messages.places import first_place, later_places
from app.api.messages.settlements import ID as MESSAGE
from app.api.messages.show import time_of
from app.api.openapi import TOPIC
from app.api.redrive import ID, OperationCount, RequeueBody
from app.edge.context import context_of
from app.edge.jobs import requeue_one
from app.keys import Scope
from app.queue.operations import Operation

router = direct.router("messages")


class MessagesOperation(msgspec.Struct, kw_only=True):
    """A requeue or cancel of many messages, so far; what it does not have is left out. `skipped`: messages that
    somebody else took meanwhile, whose key a pending one has, or whose topic is gone. `failed_again`: of the canary's.
    Of a cancel: `gone`, those that waited, and `marked`, those that are leased."""

    id: str
    topic: str
    kind: Literal["requeue", "cancel"]
    state: Literal["canary", "running", "done", "cancelled", "stopped", "failed"]
    reason: str | UnsetType = UNSET
    matched: int
    exact: bool
    requeued: int
    gone: int
    marked: int
    skipped: int
    failed_again: int
    rate: int
    cancelled: bool
    started_at: str
    ended_at: str | UnsetType = UNSET
    requested_by: str


@router.post(
    "/api/messages/{id}/requeue",
    status_code=204,
    response_class=Response,
    openapi_extra=operation(parameters=[MESSAGE], answers={204: None}, errors=[401, 403, 404, 409, 503]),
)
async def requeue(request: Request) -> Response:
    """Put a dead letter back into its topic, and a failed or expired message into its own: with its id, a whole budget
    and its time to live anew. 404 if it is not out; 409 if a pending message has its key."""
    context = context_of(request)
    key = context.access.check(request, Scope.WRITE)
    message_id: str = request.path_params["id"]
    job = job_of(message_id)
    # Who may write to its own topic need not be let into that of its dead letters: `starts` sees to it.
    place = (await later_places(context, None, [job])).get(0) or await first_place(context, key, job)
    if place is None:
        raise no_message(message_id)
    policy, seq = place
    starts = () if key is None else key.prefixes
    if await requeue_one(context, policy, seq, starts) is None:
        raise no_message(message_id)
    return Response(status_code=204)


@router.post(
    "/api/topics/{topic}/requeue",
    response_class=Response,
    openapi_extra=operation(
        parameters=[TOPIC],
        body=RequeueBody,
        answers={200: OperationCount, 202: OperationCount},
        errors=[400, 401, 403, 404, 409, 413, 415, 503],
    ),
)
async def requeue_many(request: Request) -> Response:
    """Requeue dead letters, and messages that failed: those of this topic, or those that it holds for others. An
    operation does it and goes on whoever leaves."""
    counted = await redrive.begin(request)
    return Response(encode(counted), 200 if counted.id is None else 202, media_type="application/json")


@router.get(
    "/api/operations/{id}",
    response_class=Response,
    openapi_extra=operation(parameters=[ID], answers={200: MessagesOperation}, errors=[401, 403, 404, 503]),
)
async def read(request: Request) -> Response:
    """How far a requeue or cancel is. It is kept for 14 days after its end."""
    return _shown(await redrive.read(request))


@router.post(
    "/api/operations/{id}/cancel",
    response_class=Response,
    openapi_extra=operation(parameters=[ID], answers={200: MessagesOperation}, errors=[401, 403, 404, 503]),
)
async def cancel(request: Request) -> Response:
    """Ask a requeue or cancel to end after the batch that it is at. What it has done stays done."""
    return _shown(await redrive.cancel(request))


def _shown(one: Operation) -> Response:
    shown = MessagesOperation(
        id=str(one.id),
        topic=one.wanted.topic[0],
        kind=one.wanted.kind,
        state=one.state.value,
        reason=UNSET if one.reason is None else one.reason,
        matched=one.matched.count,
        exact=one.matched.exact,
        requeued=one.requeued,
        gone=one.gone,
        marked=one.marked,
        skipped=one.skipped,
        failed_again=one.failed_again,
        rate=one.wanted.rate,
        cancelled=one.cancelled,
        started_at=_time(one.started_at),
        ended_at=UNSET if one.ended_at is None else _time(one.ended_at),
        requested_by=one.actor[0],
    )
    return Response(encode(shown), media_type="application/json")


def _time(at: datetime) -> str:
    return time_of(int(at.timestamp() * 1000)).decode()
