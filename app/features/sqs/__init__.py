"""An SQS endpoint: what AWS's SDKs and everything built on them speak, over the same queues. docs/sqs.md"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from functools import partial
from typing import Final

from starlette.requests import ClientDisconnect
from starlette.responses import Response

from app.base.log import ID
from app.base.outages import as_unavailable
from app.errors import HoldfastError
from app.features.feature import Feature
from app.features.sqs import labels, moves, protocol, queues, receiving, sending
from app.features.sqs.calls import Answer, SqsCall, open_call
from app.features.sqs.faults import SqsFault, fault_of
from app.features.sqs.store import Queues
from app.http.body import read_bytes
from app.http.calls import count_as, ended_with
from app.http.dialect import Dialect
from app.http.errors import fault_of as log_fault
from app.http.route import Call, Route

ACTIONS: Final[Mapping[str, Callable[[SqsCall], Awaitable[Answer]]]] = {
    "SendMessage": sending.send,
    "ReceiveMessage": receiving.receive,
    "DeleteMessage": receiving.delete,
    "SendMessageBatch": sending.send_batch,
    "DeleteMessageBatch": receiving.delete_batch,
    "ChangeMessageVisibility": receiving.change_visibility,
    "ChangeMessageVisibilityBatch": receiving.change_visibility_batch,
    "CreateQueue": queues.create,
    "DeleteQueue": queues.delete,
    "GetQueueUrl": queues.get_url,
    "GetQueueAttributes": queues.get_attributes,
    "SetQueueAttributes": queues.set_attributes,
    "ListQueues": queues.list_queues,
    "ListDeadLetterSourceQueues": queues.list_sources,
    "PurgeQueue": queues.purge,
    "TagQueue": labels.tag,
    "UntagQueue": labels.untag,
    "ListQueueTags": labels.list_tags,
    "AddPermission": labels.add_permission,
    "RemovePermission": labels.remove_permission,
    "StartMessageMoveTask": moves.start,
    "ListMessageMoveTasks": moves.list_tasks,
    "CancelMessageMoveTask": moves.cancel,
}


async def act(call: Call) -> Response:
    """An action of Amazon SQS, in its JSON or its query protocol. The manual's page on SQS has what differs."""
    request, context = call.request, call.context
    request_id = request.scope[ID].decode()
    json = protocol.is_json(request)
    try:
        body = await read_bytes(request, context.settings.max_body_bytes)
        asked = protocol.read(request, body)
        do = ACTIONS.get(asked.action)
        if do is None:
            raise SqsFault(
                "UnknownOperationException" if json else "InvalidAction",
                f"The action {asked.action[:80]} is not valid for this endpoint.",
            )
        count_as(request, f"sqs_{do.__name__}")
        return protocol.answer(asked, await do(await open_call(request, context, asked, body)), request_id)
    except ClientDisconnect:
        raise
    except SqsFault as fault:
        found = fault
    except HoldfastError as error:
        found = fault_of(error)
    except Exception as error:
        known = as_unavailable(error)
        found = fault_of(log_fault(request, error) if known is None else known)
    ended_with(request, found.name)
    return protocol.refuse(found, request_id, json=json)


SQS: Final = Dialect("sqs", one_tag=True)
_route = partial(
    Route, do=act, gives={200: None}, dialect=SQS, scope=None, own_check=True, hot=True, verb="sqs", in_openapi=False
)

FEATURE: Final = Feature(
    "sqs",
    cores=[Queues],
    routes=[
        _route("POST", "/"),
        _route("POST", "/{account:int}/{queue}", finds=False),
        _route("GET", "/{account:int}/{queue}", finds=False),
    ],
)
