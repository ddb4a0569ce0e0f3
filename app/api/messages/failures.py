"""GET /api/topics/:topic/failures."""

from __future__ import annotations

import msgspec
from msgspec import UNSET, UnsetType
from starlette.requests import Request
from starlette.responses import Response

from app.api import direct
from app.api.failures import LIMIT, SINCE, Cluster, asked_of, shared_fields
from app.api.fields import encode, topic_in
from app.api.messages.errors import operation
from app.api.messages.show import time_of
from app.api.openapi import TOPIC
from app.edge.context import context_of
from app.edge.operations import must_cover_letters
from app.engine.failures import FailureReader
from app.errors import TopicNotFound
from app.keys import Scope
from app.queue.failures import Failure
from app.queue.ids import id_of
from app.topics.config import check_name

router = direct.router("messages")


class FailedMessage(msgspec.Struct):
    """The newest message of a cluster, and its error, if it has one."""

    id: str
    last_error: str | UnsetType = UNSET


class MessageCluster(Cluster, kw_only=True):
    """A cluster, and when its first and its last message went out."""

    first_seen: str
    last_seen: str
    example: FailedMessage


class MessageFailures(msgspec.Struct):
    """Clusters, the largest first. more: there may be others."""

    failures: list[MessageCluster]
    more: bool


@router.get(
    "/api/topics/{topic}/failures",
    response_class=Response,
    openapi_extra=operation(
        parameters=[TOPIC, LIMIT, SINCE],
        answers={200: MessageFailures},
        errors=[400, 401, 403, 409, 503],
    ),
)
async def failures(request: Request) -> Response:
    """What a topic's messages have failed with that are out, by the kind of the error: those that failed, its dead
    letters, and those that are in it as a dead-letter topic."""
    context = context_of(request)
    name = topic_in(request)
    key = context.access.check(request, Scope.READ, name)
    asked = asked_of(request)
    check_name(name)
    shown = MessageFailures([], more=False)
    try:
        policy = await context.policies.queue(name)
    except TopicNotFound:
        pass  # as in a list of messages: there are none
    else:
        must_cover_letters(key, policy)
        found = await context.core(FailureReader).read(policy, asked.since, asked.limit)
        shown = MessageFailures([_shown(one) for one in found.clusters], found.more)
    return Response(encode(shown), media_type="application/json")


def _shown(one: Failure) -> MessageCluster:
    message_id = id_of(one.first_topic_id or one.topic_id, one.first_seq or one.seq)
    return MessageCluster(
        **shared_fields(one),  # type: ignore[arg-type]
        first_seen=time_of(one.first_ms).decode(),
        last_seen=time_of(one.last_ms).decode(),
        example=FailedMessage(message_id, UNSET if one.error is None else one.error),
    )
