"""Bodies and answers of enqueue, dequeue, ack, nack and extend in the messages dialect. Other fields are a 400."""

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
        f"The topic's name; none that ends in {DEAD_LETTERS}.",
        pattern=PATTERN.replace("254", str(_MOST_OF_NAME)),
    ),
]
Encoding = Annotated[
    Literal["base64"] | None, about('"base64": payloads come as base64, as bytes that are no text do anyway.')
]
Seconds = Annotated[float, Meta(ge=0, le=MOST_SECONDS)]
LeaseId = Annotated[
    str,
    about(
        "The lease_id that the dequeue answered: fences off who lost the lease.", pattern="^(lease_[0-9a-fA-F]{1,64})?$"
    ),
]
Visibility = Annotated[
    float | None,
    about("How long the message stays hidden, clamped to 0.1 to 86400 s; the topic's if absent, 0 or less."),
]


class MessageFields(msgspec.Struct, kw_only=True, gc=False, forbid_unknown_fields=True):
    """One message."""

    payload: Annotated[str, about("A text of up to 1 MiB, kept byte for byte; or bytes, as base64.", minLength=1)]
    encoding: Annotated[Literal["base64"] | None, about("base64: payload is the base64 of bytes.")] = None
    content_type: Annotated[
        Annotated[str, Meta(extra_json_schema={"pattern": TYPE_PATTERN, "maxLength": MAX_TYPE_BYTES})] | None,
        about("application/json if payload is JSON, else text/plain; of base64, application/octet-stream."),
    ] = None
    metadata: Annotated[
        Annotated[dict[str, str], Meta(max_length=MAX_META_KEYS)] | None,
        about("Comes back with the message; up to 16 KiB."),
    ] = None
    priority: Annotated[Annotated[int, Meta(ge=0, le=9)] | None, about("High first.", 0)] = None
    delay_seconds: Annotated[Seconds | None, about("How long it stays hidden.", 0)] = None
    run_at: Annotated[str | None, about("Hidden until then: an RFC 3339 time with its offset.", format="date-time")] = (
        None
    )
    ttl_seconds: Annotated[
        Seconds | None, about("It expires so long from now, 0 for never; as the topic says if absent.")
    ] = None
    max_deliveries: Annotated[
        Annotated[int, Meta(ge=0, le=MOST_DELIVERIES)] | None,
        about("How often it is delivered at most, 0 for no end; as the topic says if absent."),
    ] = None
    key: Annotated[
        Key | None,
        about("A message of this key that waits is updated, and keeps its id. One that is processed is left alone."),
    ] = None
    group: Annotated[
        Group | None,
        about("One message of a group is out at a time, in their order. Names that end in .fifo ask for one."),
    ] = None
    dedupe_id: DedupeId | None = None
    webhook: Annotated[
        Annotated[str, Meta(max_length=MAX_URL_BYTES, extra_json_schema={"format": "uri"})] | None,
        about("Is told over HTTP of the message's end, in place of the topic's webhook. docs/webhooks.md."),
    ] = None
    user_id: Annotated[
        UserId | None, about("The user that it is for, an id of the application's own: in metadata as $user_id.")
    ] = None
    tenant: Annotated[Tenant | None, about("Whose message it is: dequeues share fairly between tenants.", "")] = None


class EnqueueBody(MessageFields, kw_only=True, gc=False):
    """A message and its topic, which is made if it is absent."""

    topic: NewTopicName
    idempotency_key: BatchKey | None = None


class BatchMessage(MessageFields, kw_only=True, gc=False):
    """One message of a batch."""


class BatchBody(msgspec.Struct, forbid_unknown_fields=True):
    """Messages for one topic: all of them are enqueued, or none is."""

    topic: NewTopicName
    messages: Annotated[list[BatchMessage], about(f"1 to {MAX_RECORDS}.", minItems=1, maxItems=MAX_RECORDS)]
    idempotency_key: BatchKey | None = None


class EnqueueAnswer(msgspec.Struct):
    """The message's id. duplicate: it is that of an earlier message with the same dedupe_id, or of an earlier call with
    the same idempotency key; nothing was enqueued."""

    id: str
    duplicate: Literal[True] | UnsetType = UNSET


class BatchAnswer(msgspec.Struct):
    """The messages' ids, in their order. duplicates: the places, from 0, of those that were not enqueued, and whose ids
    are those of earlier messages with the same dedupe_id; absent if there are none. deduped: these are those of an
    earlier call with the same idempotency key, perhaps more or fewer; nothing was enqueued."""

    ids: list[str]
    duplicates: list[int] | UnsetType = UNSET
    deduped: Literal[True] | UnsetType = UNSET


class DequeueBody(msgspec.Struct, forbid_unknown_fields=True):
    """From where, how many and for how long. There are no consumer groups here."""

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
    """The lease, to be fenced, and what the message is completed with."""

    lease_id: LeaseId | None = None
    result: HandedIn = msgspec.field(default_factory=Raw)


class AckBatchBody(msgspec.Struct, forbid_unknown_fields=True):
    """Messages, and perhaps their leases."""

    ids: Annotated[list[str], about(f"At most {MAX_SEQS}.", maxItems=MAX_SEQS)]
    lease_ids: Annotated[list[LeaseId] | None, about("One for each id, or none at all.", maxItems=MAX_SEQS)] = None
    results: Annotated[
        Annotated[list[HandedIn], about("One for each id.", maxItems=MAX_SEQS)] | None,
        about("What each is completed with."),
    ] = None


class AckBatchAnswer(msgspec.Struct):
    """How many were completed; those in `skipped` the caller does not hold."""

    acked: int
    skipped: list[str]


class MessageNack(msgspec.Struct, forbid_unknown_fields=True):
    """What went wrong."""

    error: Annotated[
        Annotated[str, text("Kept as the message's last_error.", most=MAX_ERROR_BYTES)] | None, about("Why.")
    ] = None
    delay_seconds: Annotated[
        Annotated[float, Meta(ge=0, le=MOST_LEASE_SECONDS)] | None,
        about("How long the message stays hidden. Absent: as the topic's backoff says, if at all."),
    ] = None
    refund: Annotated[
        bool | None, about(f"true: gives the delivery back, at most {MOST_REFUNDS} times a message.", False)
    ] = None
    lease_id: LeaseId | None = None
    consumer_group: Literal[""] | None = None


class MessageNacked(msgspec.Struct):
    """Whether the delivery was given back; else it counts."""

    id: str
    refunded: bool


class MessageExtend(msgspec.Struct, forbid_unknown_fields=True):
    """For how long from now, the lease, to be fenced, and how far the work is."""

    visibility_timeout_seconds: Visibility = None
    lease_id: LeaseId | None = None
    progress: ProgressBody | None = None


class MessageExtended(msgspec.Struct):
    """Until when the message is hidden now; and whether it was cancelled, so that nobody waits for it any more."""

    id: str
    visibility_timeout: str
    cancelled: Literal[True] | UnsetType = UNSET


class DequeueAnswer(msgspec.Struct):
    """The messages that the caller holds now, in the order in which they are to be worked on; perhaps none."""

    messages: list[Message]
