"""SendMessage and SendMessageBatch."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence
from typing import Final, NamedTuple

import msgspec

from app.base.keys import Key, Scope
from app.errors import HoldfastError
from app.features.sqs import attributes
from app.features.sqs.attributes import Attributes, AttributeValue
from app.features.sqs.batches import BatchCall, batch_answer, failure, open_queue, read_entries
from app.features.sqs.calls import Answer, SqsCall, convert
from app.features.sqs.faults import SqsFault, bad_value, fault_of, invalid, missing
from app.features.sqs.store import FIFO, NUMBERS, Extras
from app.http import options
from app.http.bounds import MAX_RECORD_BYTES
from app.http.payloads import stored_type, type_of
from app.http.spans import spans_of
from app.kernel.enqueue.producer import Placement
from app.kernel.model import Batch, Seq, id_of
from app.kernel.topics.policy import Policy
from app.kernel.topics.settings import MAX_TENANT, TEN_YEARS_MS

NOT_OF_TYPE: Final = "The request include parameter that is not valid for this queue type."
MOST_DELAY: Final = TEN_YEARS_MS // 1000  # seconds, where clients may go beyond AWS
MOST_BATCH_BYTES: Final = 1024 * 1024
_TOKEN: Final = re.compile(r"[!-~]{1,128}\Z")  # of groups and deduplication ids
TRACE: Final = "AWSTraceHeader"
IN_ALL_GROUPS: Final = "\x1f"  # begins dedupe ids that do not count by group (enqueue_deduped.sql)


class SendEntry(msgspec.Struct, rename="pascal", kw_only=True):
    """A message to send."""

    message_body: str
    delay_seconds: int | None = None
    message_attributes: dict[str, AttributeValue] = {}
    message_system_attributes: dict[str, AttributeValue] = {}
    message_deduplication_id: str | None = None
    message_group_id: str | None = None


class SendMessage(SendEntry, kw_only=True):
    queue_url: str | None = None


class BatchEntry(SendEntry, kw_only=True):
    id: str
    message_body: str = ""


class CheckedMessage(NamedTuple):
    """A message that was checked, in the columns of a batch."""

    body: bytes
    kind: str | None
    metadata: str | None
    delay_ms: int | None
    tenant: str | None
    group: str | None
    dedupe_id: str | None
    attributes: Attributes
    system: Attributes
    size: int


async def send(call: SqsCall) -> Answer:
    """SendMessage."""
    asked = call.fields(SendMessage)
    policy, key = await open_queue(call, asked.queue_url, Scope.WRITE)
    extras = await call.extras(policy)
    message = _check(call, policy, extras, asked)
    [sent] = await _enqueue(call, policy, key, [message])
    return sent


async def send_batch(call: SqsCall) -> Answer:
    """SendMessageBatch: each message is sent or refused by itself."""
    asked = call.fields(BatchCall)
    policy, key = await open_queue(call, asked.queue_url, Scope.WRITE)
    extras = await call.extras(policy)
    entries = read_entries(call, asked.entries, "SendMessageBatchRequestEntry")
    size = sum(len(str(fields.get("MessageBody", "")).encode()) for _, fields in entries)
    if size > MOST_BATCH_BYTES:
        raise SqsFault(
            "BatchRequestTooLong",
            f"Batch requests cannot be longer than {MOST_BATCH_BYTES} bytes. You have sent {size} bytes.",
        )
    failed: list[Answer] = []
    good: list[tuple[str, CheckedMessage]] = []
    for name, fields in entries:
        try:
            good.append((name, _check(call, policy, extras, convert(fields, BatchEntry))))
        except SqsFault as fault:
            if fault.whole:
                raise
            failed.append(failure(name, fault))
    sent: list[Answer] = []
    if good:
        try:
            done = await _enqueue(call, policy, key, [message for _, message in good])
            sent = [{"Id": name, **one} for (name, _), one in zip(good, done, strict=True)]
        except HoldfastError as error:
            failed += [failure(name, fault_of(error)) for name, _ in good]
    return batch_answer(sent, failed)


def _check(call: SqsCall, policy: Policy, extras: Extras, entry: SendEntry) -> CheckedMessage:
    """Raises SqsFault."""
    fifo = policy.topic.name.endswith(FIFO)
    if not entry.message_body:
        raise missing("MessageBody")
    attributes.check_text(entry.message_body)
    body = entry.message_body.encode()
    given = attributes.read(entry.message_attributes)
    system = attributes.read(entry.message_system_attributes)
    unknown = [one for one in system.values if one != TRACE]
    if unknown:
        raise invalid(f"Message system attribute name '{unknown[0][:80]}' is invalid; {TRACE} is the only one.")
    size, most = len(body) + given.size, extras.seconds("MaximumMessageSize")
    if size > min(most, MAX_RECORD_BYTES):
        raise invalid(f"One or more parameters are invalid. Reason: Message must be shorter than {most} bytes.")
    delay = _delay(call, extras, entry.delay_seconds, fifo=fifo)
    group, dedupe_id = (
        _check_token("MessageGroupId", entry.message_group_id),
        _dedupe_id(entry, extras, body, fifo=fifo),
    )
    if fifo and group is None:
        raise missing("MessageGroupId")
    own = {} if dedupe_id is None else {"MessageDeduplicationId": dedupe_id}
    if TRACE in system.values:
        own[TRACE] = system.values[TRACE][1]
    if dedupe_id is not None and extras.attributes.get("DeduplicationScope", "queue") == "queue":
        dedupe_id = f"{IN_ALL_GROUPS}{dedupe_id}"
    return CheckedMessage(
        body,
        stored_type(body, type_of(entry.message_body)),
        attributes.to_metadata(given, own),
        delay * 1000 or None,
        None if fifo else group,
        group if fifo else None,
        dedupe_id,
        given,
        system,
        size,
    )


def _delay(call: SqsCall, extras: Extras, asked: int | None, *, fifo: bool) -> int:
    """The seconds until a message can be received. Raises SqsFault."""
    if asked and fifo:
        raise bad_value(asked, "DelaySeconds", NOT_OF_TYPE)
    delay = extras.seconds("DelaySeconds") if asked is None or fifo else asked
    if not 0 <= delay <= (MOST_DELAY if call.context.settings.sqs_beyond else NUMBERS["DelaySeconds"][1]):
        raise bad_value(delay, "DelaySeconds", "DelaySeconds must be >= 0 and <= 900.")
    return delay


def _check_token(field: str, token: str | None) -> str | None:
    if token is not None and _TOKEN.match(token) is None:
        reason = f"{field} can only include alphanumeric and punctuation characters. 1 to {MAX_TENANT} in length."
        raise bad_value(token, field, reason)
    return token


def _dedupe_id(entry: SendEntry, extras: Extras, body: bytes, *, fifo: bool) -> str | None:
    """Raises SqsFault."""
    given = _check_token("MessageDeduplicationId", entry.message_deduplication_id)
    if not fifo:
        if given is not None:
            raise bad_value(given, "MessageDeduplicationId", NOT_OF_TYPE)
        return None
    if given is None and not extras.is_set("ContentBasedDeduplication"):
        raise SqsFault(
            "InvalidParameterValue",
            "The queue should either have ContentBasedDeduplication enabled or MessageDeduplicationId provided "
            "explicitly",
            whole=True,
        )
    return given or hashlib.sha256(body).hexdigest()


async def _enqueue(call: SqsCall, policy: Policy, key: Key | None, messages: Sequence[CheckedMessage]) -> list[Answer]:
    batch = Batch.of(
        [one.body for one in messages],
        metadata=[one.metadata for one in messages],
        content_types=[one.kind for one in messages],
        delays_ms=[one.delay_ms for one in messages],
        tenants=[one.tenant for one in messages],
        groups=[one.group for one in messages],
        dedupe_ids=[one.dedupe_id for one in messages],
    )
    name = policy.topic.name
    options.admit_jobs(key, name, batch)
    size = sum(one.size for one in messages) + spans_of(call.request).begin_send(name, batch)
    find = call.context.policies.queue
    policy, found = await call.context.engine.enqueues.place_as_found(policy, batch, size, None, find)
    seqs = found.seqs if isinstance(found, Placement) else found
    spans_of(call.request).set_seqs(seqs)
    call.context.names.learn(policy.topic)
    return [_sent_entry(policy, message, seq) for message, seq in zip(messages, seqs, strict=True)]


def _sent_entry(policy: Policy, message: CheckedMessage, seq: Seq) -> Answer:
    answer: Answer = {"MD5OfMessageBody": md5_of(message.body), "MessageId": id_of(policy.topic.id, seq)}
    for field, given in (
        ("MD5OfMessageAttributes", message.attributes),
        ("MD5OfMessageSystemAttributes", message.system),
    ):
        digest = given.md5()
        if digest is not None:
            answer[field] = digest
    if message.group is not None:
        answer["SequenceNumber"] = sequence_number(seq)
    return answer


def sequence_number(seq: int) -> str:
    """A sequence number: 20 digits, as SQS has them."""
    return f"{seq:020d}"


def md5_of(body: bytes) -> str:
    """The MD5 of a body in hex."""
    return hashlib.md5(body, usedforsecurity=False).hexdigest()
