"""A message's schema and JSON. The JSON is formatted by hand, because encoding is most of the cost of a dequeue."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, UnsetType

from app.base.times import rfc3339
from app.http.bounds import about
from app.http.fields import encode, history
from app.http.payloads import to_base64
from app.http.sight import WHY
from app.kernel.jobs import JobView, Status
from app.kernel.model import Job, PayloadForm, form_of, id_of, is_utf8
from app.kernel.settle.results import Progress
from app.kernel.topics.policy import Policy

_strings = msgspec.json.Decoder(dict[str, str])
_values = msgspec.json.Decoder(dict[str, msgspec.Raw])


class PurgeAnswer(msgspec.Struct):
    """How many were deleted."""

    deleted: int


class MessageProgress(msgspec.Struct):
    """Progress that the message's worker reported, and when."""

    percent: int
    at: str
    note: str | UnsetType = UNSET


class Message(msgspec.Struct, kw_only=True):
    """A message. Fields without a value are left out. retry_count counts deliveries that ended without an ack:
    `crashes` of them by missing the deadline, `failures` otherwise. original_crashes are a dead letter's crashes in its
    original topic. These three are left out if 0, suspected_poison if false."""

    id: str
    topic: str
    key: str | UnsetType = UNSET
    group: str | UnsetType = UNSET
    tenant: str | UnsetType = UNSET
    payload: str | UnsetType = UNSET
    encoding: Literal["base64"] | UnsetType = UNSET
    content_type: str | UnsetType = UNSET
    metadata: dict[str, str] | UnsetType = UNSET
    hidden: Annotated[str | UnsetType, about("Why payload and metadata are not shown.")] = UNSET
    status: Literal["pending", "processing", "failed", "expired"]
    retry_count: int
    crashes: int | UnsetType = UNSET
    failures: int | UnsetType = UNSET
    suspected_poison: bool | UnsetType = UNSET
    max_retries: int
    priority: int | UnsetType = UNSET
    last_error: str | UnsetType = UNSET
    visibility_timeout: str | UnsetType = UNSET
    progress: MessageProgress | UnsetType = UNSET
    cancelled: Annotated[Literal[True] | UnsetType, about("The job was cancelled. It ends with its lease.")] = UNSET
    lease_id: str | UnsetType = UNSET
    token: Annotated[str | UnsetType, about("Names the job and its lease in SQL.")] = UNSET
    expires_at: str | UnsetType = UNSET
    created_at: str
    updated_at: str | UnsetType = UNSET
    original_topic: str | UnsetType = UNSET
    original_crashes: int | UnsetType = UNSET
    dlq_moved_at: str | UnsetType = UNSET


def write_claimed(policy: Policy, job: Job, *, base64: bool) -> bytes:
    """The JSON of a message that the caller has just claimed."""
    rest = job.rest
    topic = policy.topic
    return (
        b'{"id":"%b","topic":"%b"%b,%b,"metadata":%b,"status":"processing","retry_count":%d,%b"max_retries":%d%b,"lease_id":"lease_%b","token":"%b:%d:lease_%b","visibility_timeout":"%b","created_at":"%b"%b%b%b}'
        % (
            id_of(rest.first_topic_id or topic.id, rest.first_seq or job.seq).encode(),
            topic.name.encode(),
            _names(job),
            _payload(job.payload, job.content_type, base64=base64),
            _metadata(job.metadata),
            job.deliveries - 1,
            history(job.deliveries - 1, job.crashes, job.original_crashes),
            policy.max_retries if rest.max_deliveries is None else rest.max_deliveries,
            b"" if rest.last_error is None else b',"last_error":%b' % encode(rest.last_error),
            lease := job.lease.encode(),
            topic.name.encode(),
            job.seq,
            lease,
            time_of(job.deadline_ms),
            time_of(job.created_ms),
            b"" if rest.expires_ms is None else b',"expires_at":"%b"' % time_of(rest.expires_ms),
            _origin(job.original_topic, job.original_crashes),
            b"" if rest.dlq_moved_ms is None else b',"dlq_moved_at":"%b"' % time_of(rest.dlq_moved_ms),
        )
    )


def write_message(policy: Policy, job: JobView, *, base64: bool) -> bytes:
    """The JSON of a message for any reader, without the id of its lease."""
    held = job.status is Status.PROCESSING
    return (
        b'{"id":"%b","topic":"%b"%b,%b,"status":"%b","retry_count":%d,%b"max_retries":%d,"priority":%d%b%b,"created_at":"%b","updated_at":"%b"%b%b%b%b}'
        % (
            id_of(job.first_topic_id or job.topic_id, job.first_seq or job.seq).encode(),
            job.topic.encode(),
            _names(job),
            _content(job, base64=base64),
            job.status.value.encode(),
            job.deliveries - held,
            history(job.deliveries - held, job.crashes, job.original_crashes),
            policy.max_retries if job.max_deliveries is None else job.max_deliveries,
            job.priority,
            b"" if job.last_error is None else b',"last_error":%b' % encode(job.last_error),
            b',"visibility_timeout":"%b"%b' % (time_of(job.visible_ms), _progress(job)) if held else b"",
            time_of(job.created_ms),
            time_of(job.updated_ms),
            b',"cancelled":true' * job.cancelled,
            b"" if job.expires_ms is None else b',"expires_at":"%b"' % time_of(job.expires_ms),
            _origin(job.original_topic, job.original_crashes),
            b"" if job.dlq_moved_ms is None else b',"dlq_moved_at":"%b"' % time_of(job.dlq_moved_ms),
        )
    )


def _content(job: JobView, *, base64: bool) -> bytes:
    if job.hidden:
        return b'"hidden":%b' % encode(WHY)
    return b'%b,"metadata":%b' % (_payload(job.payload, job.content_type, base64=base64), _metadata(job.metadata))


def progress_of(progress: Progress) -> MessageProgress:
    """Converts progress to the format of the messages API."""
    return MessageProgress(
        progress.percent, time_of(progress.at_ms).decode(), UNSET if progress.note is None else progress.note
    )


def time_of(ms: int) -> bytes:
    """Format a time in ms since 1970 as RFC 3339."""
    return rfc3339(ms).encode()


def _origin(topic: str | None, crashes: int | None) -> bytes:
    if topic is None:
        return b""
    shown = b',"original_topic":"%b"' % topic.encode()
    return shown + b',"original_crashes":%d' % crashes if crashes else shown


def _progress(job: JobView) -> bytes:
    if job.percent is None:
        return b""
    return b',"progress":%b' % encode(progress_of(Progress(job.percent, job.note, job.progress_ms or 0)))


def _names(job: Job | JobView) -> bytes:
    """The key, group and tenant, if present."""
    shown = b"" if job.key is None else b',"key":%b' % encode(job.key)
    if job.group is not None:
        shown += b',"group":%b' % encode(job.group)
    return shown + b',"tenant":%b' % encode(job.tenant) if job.tenant else shown


def _payload(payload: bytes, content_type: str | None, *, base64: bool) -> bytes:
    """Its fields: text as it is, JSON too; other bytes as base64, and all where that is asked for."""
    kind = b"" if content_type is None else b',"content_type":%b' % encode(content_type)
    if base64 or form_of(content_type) is PayloadForm.BYTES or not is_utf8(payload):
        return b'"payload":"%b","encoding":"base64"%b' % (to_base64(payload), kind)
    return b'"payload":%b%b' % (encode(payload.decode()), kind)


def _metadata(text: str | None) -> bytes:
    """An object of strings. Other values are written as JSON in a string."""
    if text is None:
        return b"{}"
    try:
        _strings.decode(text)
    except msgspec.ValidationError:
        values = _values.decode(text)
        return encode({name: _string(bytes(value)) for name, value in values.items()})
    return text.encode()


def _string(value: bytes) -> str:
    text = value.decode()
    return msgspec.json.decode(value, type=str) if text.startswith('"') else text
