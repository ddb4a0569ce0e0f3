"""Message move tasks: dead letters go back to the queues that they came from, at a bounded rate."""

from __future__ import annotations

import base64
import binascii
from typing import Final
from uuid import UUID

import msgspec

from app.base.keys import Scope
from app.features.jobs.operations import Operation, OperationRequest, OperationState
from app.features.jobs.redrives import Redrives
from app.features.sqs import store
from app.features.sqs.calls import Answer, SqsCall
from app.features.sqs.faults import SqsFault, bad_value, invalid
from app.features.sqs.store import name_of_arn

MOST_RATE: Final = 500  # messages a second, as AWS has it
_LISTED: Final = 10
_STATES: Final = {
    OperationState.CANARY: "RUNNING",
    OperationState.RUNNING: "RUNNING",
    OperationState.DONE: "COMPLETED",
    OperationState.CANCELLED: "CANCELLED",
    OperationState.STOPPED: "CANCELLED",
    OperationState.FAILED: "FAILED",
}


class Start(msgspec.Struct, rename="pascal", kw_only=True):
    source_arn: str
    destination_arn: str | None = None
    max_number_of_messages_per_second: int | None = None


class List(msgspec.Struct, rename="pascal", kw_only=True):
    source_arn: str
    max_results: int = 1


class Cancel(msgspec.Struct, rename="pascal", kw_only=True):
    task_handle: str


async def start(call: SqsCall) -> Answer:
    """StartMessageMoveTask."""
    asked = call.fields(Start)
    rate = asked.max_number_of_messages_per_second
    if rate is not None and not 1 <= rate <= MOST_RATE:
        raise bad_value(rate, "MaxNumberOfMessagesPerSecond", f"must be an integer between 1 and {MOST_RATE}.")
    name = name_of_arn(asked.source_arn)
    key = call.let_in(Scope.WRITE, name)
    policy = await call.queue_of_arn(asked.source_arn, "SourceArn")
    sources = await store.sources(call.context.pools.rest, name, "", 2, [])
    if not sources:
        raise invalid("Source queue must be configured as a Dead Letter Queue.")
    if asked.destination_arn is not None:
        to = (await call.queue_of_arn(asked.destination_arn, "DestinationArn")).topic.name
        if sources != [to]:
            raise SqsFault(
                "UnsupportedOperation",
                "Messages are moved to the queues that they came from. Leave DestinationArn out, or name the one queue "
                "whose dead letters are here.",
            )
    if any(_STATES[one.state] == "RUNNING" for one in await _tasks(call, name)):
        raise invalid(
            "There is already a task running. Only one active task is allowed for a source queue arn at a given time."
        )
    wanted = OperationRequest((name, policy.topic.id), rate=rate or 0, starts=() if key is None else key.prefixes)
    which, _ = await call.context.core(Redrives).begin(wanted, call.context.access.actor(call.request))
    return {"TaskHandle": _handle(which)}


async def _tasks(call: SqsCall, name: str) -> list[Operation]:
    found = await call.context.core(Redrives).of_topic(name, _LISTED)
    return [one for one in found if one.wanted.kind == "requeue"]


async def list_tasks(call: SqsCall) -> Answer:
    """ListMessageMoveTasks."""
    asked = call.fields(List)
    if not 1 <= asked.max_results <= _LISTED:
        raise bad_value(asked.max_results, "MaxResults", f"must be between 1 and {_LISTED}.")
    name = name_of_arn(asked.source_arn)
    call.let_in(Scope.READ, name)
    await call.queue_of_arn(asked.source_arn, "SourceArn")
    return {"Results": [_describe_task(call, name, one) for one in (await _tasks(call, name))[: asked.max_results]]}


def _describe_task(call: SqsCall, name: str, one: Operation) -> Answer:
    state = _STATES[one.state]
    shown: Answer = {
        "Status": "CANCELLING" if state == "RUNNING" and one.cancelled else state,
        "SourceArn": call.arn(name),
        "ApproximateNumberOfMessagesMoved": one.requeued,
        "ApproximateNumberOfMessagesToMove": one.matched.count,
        "StartedTimestamp": int(one.started_at.timestamp() * 1000),
    }
    if state == "RUNNING":
        shown["TaskHandle"] = _handle(one.id)
    if one.wanted.rate:
        shown["MaxNumberOfMessagesPerSecond"] = one.wanted.rate
    if one.reason is not None:
        shown["FailureReason"] = one.reason
    return shown


async def cancel(call: SqsCall) -> Answer:
    """CancelMessageMoveTask."""
    asked = call.fields(Cancel)
    redrives = call.context.core(Redrives)
    key = call.let_in(Scope.WRITE)
    which = _id(asked.task_handle)
    found = None if which is None else await redrives.read(which)
    if (
        which is None
        or found is None
        or found.wanted.kind != "requeue"
        or (key is not None and not key.covers(found.wanted.topic[0]))
    ):
        raise SqsFault("ResourceNotFoundException", "Task does not exist.", 404)
    if _STATES[found.state] != "RUNNING":
        raise invalid("Only active tasks can be cancelled.")
    ended = await redrives.cancel(which, call.context.access.actor(call.request))
    return {"ApproximateNumberOfMessagesMoved": (ended or found).requeued}


def _handle(which: UUID) -> str:
    return base64.urlsafe_b64encode(which.bytes).decode().rstrip("=")


def _id(handle: str) -> UUID | None:
    try:
        return UUID(bytes=base64.urlsafe_b64decode(handle.encode() + b"=="))
    except (binascii.Error, ValueError):
        return None
