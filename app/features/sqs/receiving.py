"""ReceiveMessage, DeleteMessage and ChangeMessageVisibility, and the batches of the latter two."""

from __future__ import annotations

import base64
import time
from asyncio import gather
from collections.abc import Awaitable, Callable
from typing import Any, Final

import msgspec

from app.base.keys import Key, Scope
from app.errors import HoldfastError
from app.features.sqs import attributes, handles, store
from app.features.sqs.batches import MOST, BatchCall, batch_answer, failure, open_queue, read_entries
from app.features.sqs.calls import Answer, SqsCall, convert
from app.features.sqs.faults import SqsFault, bad_value, fault_of
from app.features.sqs.sending import md5_of, sequence_number
from app.features.sqs.store import FIFO, NUMBERS
from app.http import sight
from app.http.calls import count_as
from app.http.departure import handing_out, while_connected
from app.http.spans import spans_of
from app.kernel.claim.consumer import Return
from app.kernel.claim.walk import MAX_CLAIM, Claimer
from app.kernel.jobs import JobPlace, show
from app.kernel.model import HeldJob, Job, PayloadForm, Seq, form_of, id_of, is_utf8
from app.kernel.topics.policy import Policy, clamp_lease

NODE: Final = "sqs"  # the holder of received jobs
MOST_VISIBILITY: Final = 43_200  # seconds


class ReceiveMessage(msgspec.Struct, rename="pascal", kw_only=True):
    queue_url: str | None = None
    attribute_names: list[str] = []
    message_system_attribute_names: list[str] = []
    message_attribute_names: list[str] = []
    max_number_of_messages: int = 1
    visibility_timeout: int | None = None
    wait_time_seconds: int | None = None
    receive_request_attempt_id: str | None = None

    @property
    def system_names(self) -> set[str]:
        """The system attributes that are asked for, under the new name or the old."""
        return {*self.attribute_names, *self.message_system_attribute_names}


class DeleteMessage(msgspec.Struct, rename="pascal", kw_only=True):
    queue_url: str | None = None
    receipt_handle: str


class DeleteEntry(msgspec.Struct, rename="pascal", kw_only=True):
    id: str
    receipt_handle: str


class ChangeVisibility(DeleteMessage, kw_only=True):
    visibility_timeout: int


class ChangeEntry(DeleteEntry, kw_only=True):
    visibility_timeout: int


async def receive(call: SqsCall) -> Answer:
    """ReceiveMessage."""
    asked = call.fields(ReceiveMessage)
    context, request = call.context, call.request
    policy, key = await open_queue(call, asked.queue_url, Scope.READ | Scope.WRITE, consumes=True)
    most = MAX_CLAIM if context.settings.sqs_beyond else MOST
    if not 1 <= asked.max_number_of_messages <= most:
        raise bad_value(
            asked.max_number_of_messages, "MaxNumberOfMessages", f"Must be between 1 and {most}, if provided."
        )
    wait = asked.wait_time_seconds
    if wait is None:
        wait = (await call.extras(policy)).seconds("ReceiveMessageWaitTimeSeconds")
    if not 0 <= wait <= NUMBERS["ReceiveMessageWaitTimeSeconds"][1]:
        raise bad_value(wait, "WaitTimeSeconds", "Must be >= 0 and <= 20, if provided.")
    context.quota.must_have_room(0)  # an answer may be large, and lies here until it is read
    spans_of(request).begin_claim(policy.topic.name)
    context.engine.reads.note(policy.topic.id)
    claimer = Claimer(
        policy,
        NODE,
        asked.max_number_of_messages,
        await _lease_ms(call, policy, asked.visibility_timeout),
        whole=True,
        tenants=sight.tenants_for(key, None),
    )
    claims = context.engine.claims
    if wait:
        count_as(request, "sqs_receive_wait")  # its time is the wait's
    if wait or policy.config.claim_jitter_ms:
        jobs = await while_connected(request, claims.claim(claimer, wait))
    else:
        jobs = await claims.claim(claimer)
    async with handing_out(request, key, NODE, [(policy, jobs)]):
        first = {}
        again = [job.seq for job in jobs if job.deliveries > 1]
        if again and asked.system_names.intersection({"All", "ApproximateFirstReceiveTimestamp"}):
            first = await store.first_claims(context.pools.rest, policy.topic.id, again)
        messages = [_write_message(call, policy, job, asked, first.get(job.seq)) for job in jobs]
    spans_of(request).set_jobs(policy.topic.name, jobs)
    context.names.learn(policy.topic)
    return {"Messages": messages} if messages else {}


async def _lease_ms(call: SqsCall, policy: Policy, seconds: int | None) -> int:
    """A lease's length. A timeout of 0 is one that ends at once."""
    if seconds is None:
        at_once = (await call.extras(policy)).attributes.get("VisibilityTimeout") == "0"
        return 1 if at_once else policy.config.lease_ms
    _check_visibility(seconds)
    return clamp_lease(seconds * 1000) if seconds else 1


def _check_visibility(seconds: int) -> None:
    if not 0 <= seconds <= MOST_VISIBILITY:
        reason = f"VisibilityTimeout must be an integer between 0 and {MOST_VISIBILITY}"
        raise bad_value(seconds, "VisibilityTimeout", reason)


def _write_message(call: SqsCall, policy: Policy, job: Job, asked: ReceiveMessage, first_ms: int | None) -> Answer:
    topic, rest = policy.topic, job.rest
    body = _text(job)
    given, own = attributes.of_metadata(job.metadata)
    message: Answer = {
        "MessageId": id_of(rest.first_topic_id or topic.id, rest.first_seq or job.seq),
        "ReceiptHandle": handles.write(topic.id, job.seq, job.lease),
        "MD5OfBody": md5_of(body.encode()),
        "Body": body,
    }
    if names := asked.system_names:
        system = own | {
            "SenderId": call.context.settings.sqs_account,
            "SentTimestamp": str(job.created_ms),
            "ApproximateReceiveCount": str(job.deliveries),
            "ApproximateFirstReceiveTimestamp": str(first_ms or round(time.time() * 1000)),
        }
        if job.group is not None:
            system |= {"MessageGroupId": job.group, "SequenceNumber": sequence_number(job.seq)}
        elif job.tenant:
            system["MessageGroupId"] = job.tenant
        if job.original_topic is not None:
            system["DeadLetterQueueSourceArn"] = call.arn(job.original_topic)
        if "All" not in names:
            system = {name: value for name, value in system.items() if name in names}
        if system:
            message["Attributes"] = system
    chosen = given.select(asked.message_attribute_names)
    if chosen:
        message["MD5OfMessageAttributes"] = given.md5(chosen)
        message["MessageAttributes"] = chosen
    return message


def _text(job: Job) -> str:
    """A payload as a body: text as it is, other bytes as base64."""
    if form_of(job.content_type) is PayloadForm.BYTES or not is_utf8(job.payload):
        return base64.b64encode(job.payload).decode()
    return job.payload.decode()


async def delete(call: SqsCall) -> Answer:
    """DeleteMessage. A standard queue takes it after the visibility timeout, too, as long as nobody has received the
    message since; a FIFO queue refuses it then."""
    asked = call.fields(DeleteMessage)
    policy, key = await open_queue(call, asked.queue_url, Scope.WRITE, consumes=True)
    await _delete(call, policy, key, asked.receipt_handle)
    return {}


async def _delete(call: SqsCall, policy: Policy, key: Key | None, handle: str) -> None:
    held = await _delivery(call, policy, key, handle)
    fifo = policy.topic.name.endswith(FIFO)
    held = msgspec.structs.replace(held, late=not fifo)
    spans_of(call.request).begin_settle(policy.topic.name, "ack", [held.seq])
    done = await call.context.engine.settlements.ack(policy, [held])
    if fifo and not done and await _is_there(call, policy, held.seq):
        raise bad_value(handle, "ReceiptHandle", "The receipt handle has expired.")


async def _is_there(call: SqsCall, policy: Policy, seq: Seq) -> bool:
    return bool(await show(call.context.pools.rest, [JobPlace(policy.topic.name, policy.topic.id, seq)]))


async def _delivery(call: SqsCall, policy: Policy, key: Key | None, handle: str) -> HeldJob:
    """The delivery that a handle names. Raises SqsFault."""
    topic_id, seq, lease = handles.read(handle)
    own = await sight.own_places(call.context, key, policy.topic, [seq])
    if topic_id != policy.topic.id or own == []:
        raise SqsFault(
            "ReceiptHandleIsInvalid", f'The input receipt handle "{handle[:200]}" is not a valid receipt handle.'
        )
    return HeldJob(seq, lease, None)


async def delete_batch(call: SqsCall) -> Answer:
    """DeleteMessageBatch."""

    async def one(policy: Policy, key: Key | None, entry: DeleteEntry) -> None:
        await _delete(call, policy, key, entry.receipt_handle)

    return await _each(call, "DeleteMessageBatchRequestEntry", DeleteEntry, one)


async def change_visibility(call: SqsCall) -> Answer:
    """ChangeMessageVisibility: 0 gives the message back at once."""
    asked = call.fields(ChangeVisibility)
    policy, key = await open_queue(call, asked.queue_url, Scope.WRITE, consumes=True)
    await _change(call, policy, key, asked.receipt_handle, asked.visibility_timeout)
    return {}


async def _change(call: SqsCall, policy: Policy, key: Key | None, handle: str, seconds: int) -> None:
    _check_visibility(seconds)
    held = await _delivery(call, policy, key, handle)
    settlements = call.context.engine.settlements
    if seconds:
        done = bool(await settlements.extend(policy, [held], clamp_lease(seconds * 1000)))
    else:
        done = bool(await settlements.nack(policy, [held], [Return(0)]))
    if done:
        return
    if not await _is_there(call, policy, held.seq):
        raise bad_value(
            handle, "ReceiptHandle", "Message does not exist or is not available for visibility timeout change."
        )
    raise SqsFault("MessageNotInflight", f"The message referred to is not in flight: {handle}")


async def change_visibility_batch(call: SqsCall) -> Answer:
    """ChangeMessageVisibilityBatch."""

    async def one(policy: Policy, key: Key | None, entry: ChangeEntry) -> None:
        await _change(call, policy, key, entry.receipt_handle, entry.visibility_timeout)

    return await _each(call, "ChangeMessageVisibilityBatchRequestEntry", ChangeEntry, one)


async def _each(
    call: SqsCall,
    what: str,
    kind: type[Any],
    do: Callable[[Policy, Key | None, Any], Awaitable[None]],
) -> Answer:
    """Do something to each message of a batch, for itself."""
    asked = call.fields(BatchCall)
    policy, key = await open_queue(call, asked.queue_url, Scope.WRITE, consumes=True)
    entries = read_entries(call, asked.entries, what)

    async def one(name: str, fields: dict[str, Any]) -> Answer | None:
        try:
            await do(policy, key, convert(fields, kind))
        except SqsFault as fault:
            if fault.name == "ReceiptHandleIsInvalid":
                handle = str(fields["ReceiptHandle"])[:200]
                fault = SqsFault(fault.name, f'The input receipt handle "{handle}" is not a valid receipt handle.')
            return failure(name, fault)
        except HoldfastError as error:
            return failure(name, fault_of(error))
        return None

    failures = await gather(*(one(name, fields) for name, fields in entries))
    done = [{"Id": name} for (name, _), failure in zip(entries, failures, strict=True) if failure is None]
    return batch_answer(done, [failure for failure in failures if failure is not None])
