"""GET /api/messages/:id/result: what a worker handed in, or how the message ended otherwise."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import UNSET, Raw, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from app.api import direct
from app.api.bounds import about
from app.api.fields import encode, known_parameters
from app.api.messages.bodies import MessageProgress
from app.api.messages.errors import operation
from app.api.messages.ids import job_of, no_message
from app.api.messages.places import first_place
from app.api.messages.settlements import ID
from app.api.messages.show import progress_of, time_of
from app.api.results import WAIT_MS, State, outcome_of, wait_ms_of
from app.edge.context import context_of
from app.edge.sight import WHY
from app.engine.outcomes import COMPLETED, PENDING, Outcome
from app.keys import Scope

router = direct.router("messages")


class MessageResult(msgspec.Struct, kw_only=True):
    """What became of a message. What it does not have is left out."""

    id: str
    state: State
    result: Annotated[Raw | UnsetType, about("Of a completed one: what was handed in, null if nothing was.")] = UNSET
    hidden: Annotated[str | UnsetType, about("Why the result of a completed one is not shown.")] = UNSET
    completed_at: str | UnsetType = UNSET
    expires_at: Annotated[str | UnsetType, about("Until when the result is kept. Absent: for ever.")] = UNSET
    ended_at: Annotated[str | UnsetType, about("When it ended otherwise.")] = UNSET
    error: Annotated[str | UnsetType, about("What went wrong last.")] = UNSET
    topic: Annotated[str | UnsetType, about("Where the dead letter is.")] = UNSET
    progress: Annotated[MessageProgress | UnsetType, about("Of a pending one, if its holder says so.")] = UNSET


@router.get(
    "/api/messages/{id}/result",
    response_class=Response,
    openapi_extra=operation(parameters=[ID, WAIT_MS], answers={200: MessageResult}, errors=[400, 401, 403, 404, 503]),
)
async def result(request: Request) -> Response:
    """What a message was completed with, or how it ended otherwise; with `wait_ms`, wait so long for its end."""
    context = context_of(request)
    key = context.access.check(request, Scope.READ)
    known_parameters(request, {"wait_ms"})
    message_id: str = request.path_params["id"]
    wait_ms = wait_ms_of(request)
    place = await first_place(context, key, job_of(message_id))
    outcome = None if place is None else await outcome_of(request, key, *place, wait_ms)
    if outcome is None:
        raise no_message(message_id)
    shown = encode({"id": message_id.lower(), "state": outcome.state, **_shown(outcome)})
    return Response(shown, media_type="application/json")


def _shown(outcome: Outcome) -> dict[str, Any]:
    if outcome.state == PENDING:
        return {} if outcome.progress is None else {"progress": progress_of(outcome.progress)}
    at = time_of(outcome.at_ms or 0).decode()
    if outcome.state == COMPLETED and outcome.hidden:
        return {"hidden": WHY, "completed_at": at}
    shown: dict[str, Any] = {"result": Raw((outcome.result or "null").encode()), "completed_at": at}
    if outcome.state != COMPLETED:
        shown = {"ended_at": at}
    if outcome.expires_ms is not None:
        shown["expires_at"] = time_of(outcome.expires_ms).decode()
    if outcome.error is not None:
        shown["error"] = outcome.error
    if outcome.letter is not None:
        shown["topic"] = outcome.letter[0]
    return shown
