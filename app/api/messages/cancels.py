"""POST /api/messages/:id/cancel: a message that nobody is to work on any more."""

from __future__ import annotations

from typing import Literal

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.api import direct
from app.api.fields import encode
from app.api.messages.errors import operation
from app.api.messages.ids import job_of, no_message
from app.api.messages.places import first_place, later_places
from app.api.messages.settlements import ID
from app.edge.context import context_of
from app.engine.changes import Changes
from app.keys import Scope

router = direct.router("messages")


class MessageCancelled(msgspec.Struct):
    """cancelled: it waited, and is gone. marked: somebody holds it, who learns of it from the next extend; unless it is
    acknowledged, it ends with its visibility timeout."""

    id: str
    outcome: Literal["cancelled", "marked"]


@router.post(
    "/api/messages/{id}/cancel",
    response_class=Response,
    openapi_extra=operation(parameters=[ID], answers={200: MessageCancelled}, errors=[401, 403, 404, 503]),
)
async def cancel(request: Request) -> Response:
    """Cancel a message. 404 if it is not there any more, failed or expired."""
    context = context_of(request)
    key = context.access.check(request, Scope.WRITE)
    message_id: str = request.path_params["id"]
    job = job_of(message_id)
    for later in (False, True):
        place = (await later_places(context, key, [job])).get(0) if later else await first_place(context, key, job)
        if place is None:
            continue
        policy, seq = place
        done = await context.core(Changes).cancel(policy, [seq])
        if done.gone or done.marked:
            answer = MessageCancelled(message_id.lower(), "cancelled" if done.gone else "marked")
            return Response(encode(answer), media_type="application/json")
    raise no_message(message_id)
