"""DELETE /api/topics/:topic/messages/by-key/:key."""

from __future__ import annotations

from starlette.requests import Request
from starlette.responses import Response

from app.base.keys import Scope
from app.errors import InvalidRequest, TopicNotFound
from app.http import direct
from app.http.bounds import NO_NUL
from app.http.context import context_of
from app.http.fields import encode
from app.http.messages.bodies import PurgeAnswer
from app.http.messages.errors import operation
from app.http.openapi import TOPIC
from app.kernel.model import MAX_JOB_KEY
from app.kernel.topics.policy import check_name

router = direct.router("messages")

KEY = {
    "name": "key",
    "in": "path",
    "required": True,
    "description": f"The messages' key: 1 to {MAX_JOB_KEY} characters. It may have slashes.",
    "schema": {"type": "string", "minLength": 1, "maxLength": MAX_JOB_KEY, "pattern": NO_NUL},
}


@router.delete(
    "/api/topics/{topic}/messages/by-key/{key:path}",
    response_class=Response,
    openapi_extra=operation(parameters=[TOPIC, KEY], answers={200: PurgeAnswer}, errors=[400, 401, 403, 409, 503]),
)
async def delete(request: Request) -> Response:
    """Delete the messages of a key, for good, whatever their status, those that somebody holds too."""
    context = context_of(request)
    # Not topic_in, which refuses slashes anywhere: a topic's name ends at the first one here.
    name, key = request.path_params["topic"], request.path_params["key"]
    context.access.check(request, Scope.ADMIN, name)
    check_name(name)
    if not 0 < len(key) <= MAX_JOB_KEY or "\0" in key:
        raise InvalidRequest(f"A key has 1 to {MAX_JOB_KEY} characters, and no NUL.")
    try:
        policy = await context.policies.queue(name)
    except TopicNotFound:
        deleted = 0
    else:
        deleted = await context.engine.exits.delete_key(policy, "", key)
    return Response(encode({"deleted": deleted}), media_type="application/json")
