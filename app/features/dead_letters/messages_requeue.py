"""POST /api/messages/:id/requeue and /api/topics/:topic/requeue: messages that are out get another life."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from app.base.keys import Scope
from app.features.jobs import redrive_bodies as redrive
from app.features.jobs.redrive_bodies import OperationCount, RequeueBody
from app.features.jobs.requests import requeue_one
from app.http import direct
from app.http.context import context_of
from app.http.fields import encode
from app.http.messages.errors import operation
from app.http.messages.ids import ID, job_of, no_message
from app.http.messages.places import first_place, later_places
from app.http.openapi import TOPIC

router = direct.router("messages")


@router.post(
    "/api/messages/{id}/requeue",
    status_code=204,
    response_class=Response,
    openapi_extra=operation(parameters=[ID], answers={204: None}, errors=[401, 403, 404, 409, 503]),
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
    status, counted = await redrive.begin(*await redrive.called(request))
    return Response(encode(counted), status, media_type="application/json")
