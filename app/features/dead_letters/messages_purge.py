"""POST /api/topics/:topic/purge."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.base.keys import Scope
from app.errors import InvalidRequest, TopicNotFound
from app.features.dead_letters import requests as dead_letters
from app.features.jobs import operation_requests as operations
from app.http import direct
from app.http.body import read_json
from app.http.context import context_of
from app.http.fields import encode, topic_in
from app.http.messages.bodies import PurgeAnswer, PurgeBody
from app.http.messages.errors import operation
from app.http.openapi import TOPIC
from app.kernel.jobs import Status
from app.kernel.topics.policy import check_name

router = direct.router("messages")

UNLESS_SAID: Final = (Status.PENDING, Status.PROCESSING, Status.EXPIRED)  # as in the original, which keeps failed ones

_body = msgspec.json.Decoder(PurgeBody)


@router.post(
    "/api/topics/{topic}/purge",
    response_class=Response,
    openapi_extra=operation(
        parameters=[TOPIC],
        body=PurgeBody,
        body_required=False,
        answers={200: PurgeAnswer},
        errors=[400, 401, 403, 409, 413, 415, 503],
    ),
)
async def purge(request: Request) -> Response:
    """Delete a topic's messages by their status, or those that are out by the kind of their errors; for good, those
    that somebody holds too. The topic stays."""
    context = context_of(request)
    name = topic_in(request)
    key = context.access.check(request, Scope.ADMIN, name)
    body = await read_json(request, _body, context.settings.max_body_bytes, empty=b"{}")
    check_name(name)
    if body.cluster is not None and body.statuses:
        raise InvalidRequest("statuses or cluster: a cluster's messages are deleted whatever their status.")
    statuses = sorted({Status(status) for status in body.statuses or ()}, key=lambda one: one.value) or UNLESS_SAID
    try:
        policy = await context.policies.queue(name)
    except TopicNotFound:
        deleted = 0
    else:
        if body.cluster is None:
            deleted = await operations.purge(request, policy, statuses)
        else:
            deleted = await dead_letters.purge_cluster(request, key, policy, body.cluster)
    return Response(encode({"deleted": deleted}), media_type="application/json")
