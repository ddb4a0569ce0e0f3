"""Bodies and answers of an append. Unknown fields of a call are a 400; those of a record are ignored, as the original
does: its clients send back what they have read."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from app.http.bounds import MAX_META_KEYS, MAX_RECORDS, BatchKey, DedupeId, Group, Key, Priority, Producer, Tag, about
from app.http.payloads import JSON, MAX_TYPE_BYTES, TYPE_PATTERN
from app.http.users import UserId
from app.kernel.topics.policy import AskedInFull
from app.kernel.topics.settings import TEN_YEARS_MS, Tenant
from app.kernel.topics.webhooks import MAX_URL_BYTES

_META = about(
    "An object of up to 16 KiB, which comes back with the job; with data 1 MiB at most.",
    type=["object", "null"],
    maxProperties=MAX_META_KEYS,
)
_DATA = about("Any JSON of up to 1 MiB without U+0000, nested 128 deep at most. It comes back byte for byte.")


class Record(msgspec.Struct, gc=False):
    """One job."""

    data: Annotated[Raw, _DATA, about('{"$base64": "…"} is kept as the bytes that it says.')]
    tag: Tag | None = None
    node: Producer | None = None
    meta: Annotated[Raw, _META] = msgspec.field(default_factory=Raw)
    priority: Annotated[
        Priority | None, about("0 to 9, high first. Where the topic's priority_order is lowest_first: any of these.", 0)
    ] = None
    delay_ms: Annotated[
        Annotated[int, Meta(ge=0, le=TEN_YEARS_MS)] | None, about("How long it stays hidden, in ms.", 0)
    ] = None
    run_at: Annotated[str | None, about("Hidden until then: an RFC 3339 time with its offset.", format="date-time")] = (
        None
    )
    ttl_ms: Annotated[
        Annotated[int, Meta(ge=0, le=TEN_YEARS_MS)] | None,
        about("It expires so many ms from now, 0 for never; the topic's if absent."),
    ] = None
    max_deliveries: Annotated[
        Annotated[int, Meta(ge=0, le=10_000)] | None, about("How often it is delivered at most; the topic's if absent.")
    ] = None
    key: Annotated[
        Key | None,
        about("A job of this key that waits is updated: data and meta; it keeps its seq. One that is leased is left."),
    ] = None
    content_type: Annotated[
        Annotated[str, Meta(extra_json_schema={"pattern": TYPE_PATTERN, "maxLength": MAX_TYPE_BYTES})] | None,
        about('Of data: JSON, unless it is a text whose type is text/…, or {"$base64": "…"}, which is bytes.', JSON),
    ] = None
    group: Annotated[
        Group | None,
        about("One job of a group is out at a time, in the order of enqueueing. Names that end in .fifo ask for one."),
    ] = None
    dedupe_id: DedupeId | None = None
    user_id: Annotated[
        UserId | None, about("The user that it is for, an id of the application's own: in meta as $user_id.")
    ] = None
    tenant: Annotated[Tenant | None, about("Whose job it is: claims share fairly between tenants.", "")] = None
    webhook: Annotated[
        Annotated[str, Meta(max_length=MAX_URL_BYTES, extra_json_schema={"format": "uri"})] | None,
        about("Is told over HTTP of the job's end, in place of the topic's webhook. docs/webhooks.md."),
    ] = None


class _Whole(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """What is said of all records of a call."""

    node: Producer | None = None
    create: Annotated[
        bool | None, about("Whether to make a topic that is absent. Without it: unless config.auto_create is false.")
    ] = None
    config: Annotated[AskedInFull | None, about("Settings of the topic. They count if this call creates it.")] = None
    idempotency_key: BatchKey | None = None
    disable_backpressure: Annotated[bool | None, about("Changes nothing.")] = None


class AppendBody(_Whole, kw_only=True):
    """Jobs for a queue: all of them are written, or none is."""

    records: Annotated[list[Record], about("1 to 10000 jobs.", minItems=1, maxItems=MAX_RECORDS)]


class LogRecord(msgspec.Struct, gc=False):
    """One record of a log. Other fields, a job's too, are ignored."""

    data: Annotated[Raw, _DATA]
    tag: Tag | None = None
    node: Producer | None = None
    meta: Annotated[Raw, _META] = msgspec.field(default_factory=Raw)


class LogAppendBody(_Whole, kw_only=True):
    """Records for a log: all of them are written, or none is."""

    records: Annotated[list[LogRecord], about("1 to 10000 records.", minItems=1, maxItems=MAX_RECORDS)]


class AppendAnswer(msgspec.Struct):
    """The seqs of the new records, in their order; of a log, contiguous. deduped: these are an earlier batch's with the
    same idempotency key; nothing was written. duplicates: places, from 0, whose seqs are earlier ones by dedupe_id."""

    topic: str
    first_seq: int
    last_seq: int
    head_seq: int
    count: int
    created: bool
    deduped: bool
    seqs: list[int] | UnsetType = UNSET
    duplicates: list[int] | UnsetType = UNSET
