"""Bodies and answers of enqueue, dequeue, ack, nack and extend in the messages dialect. Unknown fields are a 400."""

from __future__ import annotations

from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from app.features.queue.results import HandedIn, ProgressBody
from app.http.bounds import (
    MAX_ERROR_BYTES,
    MAX_META_KEYS,
    MAX_RECORDS,
    MAX_SEQS,
    BatchKey,
    DedupeId,
    Group,
    Key,
    Tenants,
    about,
    text,
)
from app.http.messages.message import Message
from app.http.payloads import MAX_TYPE_BYTES, TYPE_PATTERN
from app.http.users import UserId
from app.kernel.claim.walk import MAX_CLAIM
from app.kernel.topics.backoff import MOST_REFUNDS
from app.kernel.topics.settings import DEAD_LETTERS, MOST_DELIVERIES, PATTERN, TEN_YEARS_MS, Tenant
from app.kernel.topics.webhooks import MAX_URL_BYTES

MOST_SECONDS = TEN_YEARS_MS // 1000
MOST_LEASE_SECONDS = 86_400
TopicName = Annotated[str, about("The topic's name.", pattern=PATTERN)]
_MOST_OF_NAME = 254 - len(DEAD_LETTERS)  # room for the name of its dead letters' topic
NewTopicName = Annotated[
    str,
    about(
        f"The topic's name. It can't end in {DEAD_LETTERS}.",
        pattern=PATTERN.replace("254", str(_MOST_OF_NAME)),
    ),
]
Encoding = Annotated[
    Literal["base64"] | None, about('"base64": payloads are returned as base64. Bytes that are not text always are.')
]
Seconds = Annotated[float, Meta(ge=0, le=MOST_SECONDS)]
LeaseId = Annotated[
    str,
    about(
        "The lease_id of the dequeue's answer. A call with an outdated one has no effect.",
        pattern="^(lease_[0-9a-fA-F]{1,64})?$",
    ),
]
Visibility = Annotated[
    float | None,
    about("How long the message stays hidden, clamped to 0.1 to 86400 s. Absent, 0 or less: the topic's."),
]


class MessageFields(msgspec.Struct, kw_only=True, gc=False, forbid_unknown_fields=True):
    """One message."""

    payload: Annotated[str, about("A text of up to 1 MiB, kept byte for byte, or bytes as base64.", minLength=1)]
    encoding: Annotated[Literal["base64"] | None, about("base64: payload is the base64 of bytes.")] = None
    content_type: Annotated[
        Annotated[str, Meta(extra_json_schema={"pattern": TYPE_PATTERN, "maxLength": MAX_TYPE_BYTES})] | None,
        about("Absent: application/json if payload is JSON, application/octet-stream for base64, else text/plain."),
    ] = None
    metadata: Annotated[
        Annotated[dict[str, str], Meta(max_length=MAX_META_KEYS)] | None,
        about("Returned with the message. Up to 16 KiB."),
    ] = None
    priority: Annotated[Annotated[int, Meta(ge=0, le=9)] | None, about("Highest first.", 0)] = None
    delay_seconds: Annotated[Seconds | None, about("How long it stays hidden.", 0)] = None
    run_at: Annotated[str | None, about("Hidden until then: an RFC 3339 time with its offset.", format="date-time")] = (
        None
    )
    ttl_seconds: Annotated[Seconds | None, about("The time to live from now. 0: for ever. Absent: the topic's.")] = None
    max_deliveries: Annotated[
        Annotated[int, Meta(ge=0, le=MOST_DELIVERIES)] | None,
        about("Most deliveries. 0: no limit. Absent: the topic's."),
    ] = None
    key: Annotated[
        Key | None,
        about("If a message with this key waits, it is updated and keeps its id. A leased one is left alone."),
    ] = None
    group: Annotated[
        Group | None,
        about("One message of a group is delivered at a time, in order. Topics whose names end in .fifo need one."),
    ] = None
    dedupe_id: DedupeId | None = None
    webhook: Annotated[
        Annotated[str, Meta(max_length=MAX_URL_BYTES, extra_json_schema={"format": "uri"})] | None,
        about("The URL to call when the message ends, instead of the topic's webhook. docs/webhooks.md."),
    ] = None
    user_id: Annotated[
        UserId | None, about("The application's id of the message's user. It is stored in metadata as $user_id.")
    ] = None
    tenant: Annotated[Tenant | None, about("The message's tenant. Dequeues share fairly between tenants.", "")] = None


class EnqueueBody(MessageFields, kw_only=True, gc=False):
    """A message and its topic, which is created if it does not exist."""

    topic: NewTopicName
    idempotency_key: BatchKey | None = None


class BatchMessage(MessageFields, kw_only=True, gc=False):
    """One message of a batch."""


class BatchBody(msgspec.Struct, forbid_unknown_fields=True):
    """Messages for one topic. Either all are enqueued, or none."""

    topic: NewTopicName
    messages: Annotated[list[BatchMessage], about(f"1 to {MAX_RECORDS}.", minItems=1, maxItems=MAX_RECORDS)]
    idempotency_key: BatchKey | None = None


class EnqueueAnswer(msgspec.Struct):
    """The message's id. duplicate: nothing was enqueued, and the id is that of an earlier message with the same
    dedupe_id, or of an earlier call with the same idempotency key."""

    id: str
    duplicate: Literal[True] | UnsetType = UNSET


class BatchAnswer(msgspec.Struct):
    """The messages' ids, in order. duplicates: the indexes of messages that were not enqueued; their ids are those of
    earlier messages with the same dedupe_id. Absent if there are none. deduped: nothing was enqueued, and the ids are
    those of an earlier call with the same idempotency key. Their number may differ."""

    ids: list[str]
    duplicates: list[int] | UnsetType = UNSET
    deduped: Literal[True] | UnsetType = UNSET


class DequeueBody(msgspec.Struct, forbid_unknown_fields=True):
    """The topic, the number of messages, and the visibility timeout. Consumer groups are not supported."""

    topic: TopicName
    count: Annotated[Annotated[int, Meta(ge=1, le=MAX_CLAIM)] | None, about("Most messages.", 1)] = None
    visibility_timeout_seconds: Visibility = None
    wait_seconds: Annotated[
        Annotated[float, Meta(ge=0, le=30)] | None, about("How long to wait for the first message.", 0)
    ] = None
    encoding: Encoding = None
    tenants: Tenants = None
    consumer_group: Literal[""] | None = None


class MessageAck(msgspec.Struct, forbid_unknown_fields=True):
    """The lease, as a fence, and the message's result."""

    lease_id: LeaseId | None = None
    result: HandedIn = msgspec.field(default_factory=Raw)


class AckBatchBody(msgspec.Struct, forbid_unknown_fields=True):
    """Messages, optionally with their leases and results."""

    ids: Annotated[list[str], about(f"At most {MAX_SEQS}.", maxItems=MAX_SEQS)]
    lease_ids: Annotated[list[LeaseId] | None, about("One for each id.", maxItems=MAX_SEQS)] = None
    results: Annotated[
        Annotated[list[HandedIn], about("One for each id.", maxItems=MAX_SEQS)] | None,
        about("The result of each message."),
    ] = None


class AckBatchAnswer(msgspec.Struct):
    """The number of completed messages. `skipped`: messages that the caller does not hold."""

    acked: int
    skipped: list[str]


class MessageNack(msgspec.Struct, forbid_unknown_fields=True):
    """The error, and when to deliver the message again."""

    error: Annotated[
        Annotated[str, text("Stored as the message's last_error.", most=MAX_ERROR_BYTES)] | None, about("The error.")
    ] = None
    delay_seconds: Annotated[
        Annotated[float, Meta(ge=0, le=MOST_LEASE_SECONDS)] | None,
        about("How long the message stays hidden. Absent: by the topic's backoff."),
    ] = None
    refund: Annotated[
        bool | None, about(f"true: the delivery does not count, up to {MOST_REFUNDS} times per message.", False)
    ] = None
    lease_id: LeaseId | None = None
    consumer_group: Literal[""] | None = None


class MessageNackAnswer(msgspec.Struct):
    """Whether the delivery was refunded. If not, it counts."""

    id: str
    refunded: bool


class MessageExtend(msgspec.Struct, forbid_unknown_fields=True):
    """The new visibility timeout from now, the lease as a fence, and the progress."""

    visibility_timeout_seconds: Visibility = None
    lease_id: LeaseId | None = None
    progress: ProgressBody | None = None


class MessageExtendAnswer(msgspec.Struct):
    """When the visibility timeout ends. cancelled: the message was cancelled, so its work can stop."""

    id: str
    visibility_timeout: str
    cancelled: Literal[True] | UnsetType = UNSET


class DequeueAnswer(msgspec.Struct):
    """The messages that the caller now holds, in the order to process them. May be empty."""

    messages: list[Message]
