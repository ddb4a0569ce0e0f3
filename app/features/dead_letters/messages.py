"""Routes of the messages dialect: requeue one message or many, and purge a topic's messages."""

from __future__ import annotations

from typing import Annotated, Any, ClassVar, Final, Literal

import msgspec

from app.errors import InvalidRequest, TopicNotFound
from app.features.dead_letters import requeues
from app.features.dead_letters.failures import FailureReader
from app.features.dead_letters.requeues import RequeueBody
from app.features.jobs import requests as job_requests
from app.features.jobs.requests import OperationCount, requeue_one
from app.http.bounds import ClusterId, about
from app.http.messages.ids import first_place, job_of, later_places, no_message
from app.http.messages.message import PurgeAnswer
from app.http.route import Call
from app.kernel.jobs import Status

PURGED_BY_DEFAULT: Final = (Status.PENDING, Status.PROCESSING, Status.EXPIRED)  # failed messages stay
COUNTS: Final = dict.fromkeys((200, 202), OperationCount)  # a requeue's answers by HTTP status


class PurgeBody(msgspec.Struct, forbid_unknown_fields=True):
    """The messages to delete."""

    RULES: ClassVar[dict[str, Any]] = {
        "not": {
            "required": ["statuses", "cluster"],
            "properties": {"statuses": {"type": "array", "minItems": 1}, "cluster": {"type": "string"}},
        }
    }
    statuses: Annotated[
        list[Literal["pending", "processing", "expired", "failed"]] | None,
        about("Messages of these statuses. Empty or absent: all but failed ones."),
    ] = None
    cluster: Annotated[
        ClusterId | None, about("Instead of statuses: failed messages and dead letters of this cluster of failures.")
    ] = None


async def requeue(call: Call) -> None:
    """Requeue a dead letter into the topic that it came from, or make a failed or expired message pending again. It
    keeps its id, and gets all its deliveries and a new time to live. 404 if there is no such message; 409 if a pending
    message has its key."""
    message_id: str = call.request.path_params["id"]
    job = job_of(message_id)
    # The key may cover the message's topic but not the dead-letter topic: `requeue_one` checks the prefixes.
    place = (await later_places(call.context, None, [job])).get(0) or await first_place(call.context, call.key, job)
    if place is None:
        raise no_message(message_id)
    policy, seq = place
    if await requeue_one(call.context, policy, seq, call.prefixes) is None:
        raise no_message(message_id)


async def requeue_many(call: Call, body: RequeueBody) -> tuple[int, OperationCount]:
    """Start to requeue a topic's failed messages and dead letters, and the dead letters of other topics in it. The
    requeue runs in the background."""
    return await requeues.begin(call, body)


async def purge(call: Call, body: PurgeBody) -> PurgeAnswer:
    """Delete a topic's messages by status, or its failed messages by kind of error. Messages in flight are deleted too.
    The topic stays."""
    if body.cluster is not None and body.statuses:
        raise InvalidRequest("Give statuses or cluster, not both. cluster deletes messages of any status.")
    try:
        policy = await call.queue()
    except TopicNotFound:
        return PurgeAnswer(0)
    if body.cluster is None:
        chosen = sorted({Status(status) for status in body.statuses or ()}, key=lambda one: one.value)
        return PurgeAnswer(await job_requests.purge(call.request, policy, chosen or PURGED_BY_DEFAULT))
    job_requests.must_cover_letters(call.key, policy)
    by = call.context.access.actor(call.request)
    return PurgeAnswer(await call.context.core(FailureReader).purge(policy, body.cluster, by))
