"""Bodies and answers of v0's append. Checks records and turns them into columns.

Unknown fields of a call are a 400. Unknown fields of a record are ignored, because clients send back records that they
have read.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import UNSET, Meta, Raw, UnsetType

from app.errors import InvalidRequest, RecordTooLarge
from app.http import options
from app.http.body import decode_json
from app.http.bounds import (
    MAX_META_BYTES,
    MAX_META_KEYS,
    MAX_NODE_BYTES,
    MAX_RECORD_BYTES,
    MAX_RECORDS,
    BatchKey,
    DedupeId,
    Group,
    Key,
    Priority,
    Producer,
    Tag,
    about,
)
from app.http.fields import check_text
from app.http.payloads import BYTES, JSON, MAX_TYPE_BYTES, TYPE_PATTERN, check_json, check_type, of_base64, stored_type
from app.http.users import UserId, with_user
from app.kernel.model import MAX_TAG_BYTES, Batch, PayloadForm, form_of
from app.kernel.topics.policy import AskedInFull
from app.kernel.topics.settings import TEN_YEARS_MS, Tenant
from app.kernel.topics.webhooks import MAX_URL_BYTES

_META = about(
    "An object of up to 16 KiB, returned with the job. Together with data at most 1 MiB.",
    type=["object", "null"],
    maxProperties=MAX_META_KEYS,
)
_DATA = about("Any JSON of up to 1 MiB without U+0000, nested at most 128 levels deep. Returned byte for byte.")


class Record(msgspec.Struct, gc=False):
    """One job."""

    data: Annotated[Raw, _DATA, about('{"$base64": "…"} is stored as the decoded bytes.')]
    tag: Tag | None = None
    node: Producer | None = None
    meta: Annotated[Raw, _META] = msgspec.field(default_factory=Raw)
    priority: Annotated[
        Priority | None,
        about("0 to 9, highest first. The whole range needs a topic whose priority_order is lowest_first.", 0),
    ] = None
    delay_ms: Annotated[
        Annotated[int, Meta(ge=0, le=TEN_YEARS_MS)] | None, about("How long until the job is ready, in ms.", 0)
    ] = None
    run_at: Annotated[
        str | None, about("When the job becomes ready: an RFC 3339 time with an offset.", format="date-time")
    ] = None
    ttl_ms: Annotated[
        Annotated[int, Meta(ge=0, le=TEN_YEARS_MS)] | None,
        about("How long until the job expires, in ms; 0: never. Absent: the topic's."),
    ] = None
    max_deliveries: Annotated[
        Annotated[int, Meta(ge=0, le=10_000)] | None, about("The most deliveries of the job. Absent: the topic's.")
    ] = None
    key: Annotated[
        Key | None,
        about("Updates data and meta of a waiting job with this key, which keeps its seq. Leased jobs are unaffected."),
    ] = None
    content_type: Annotated[
        Annotated[str, Meta(extra_json_schema={"pattern": TYPE_PATTERN, "maxLength": MAX_TYPE_BYTES})] | None,
        about('The type of data. For text/… data is a string; for other types but JSON it is {"$base64": "…"}.', JSON),
    ] = None
    group: Annotated[
        Group | None,
        about("One job of a group runs at a time, in the order of enqueueing. Required in topics that end in .fifo."),
    ] = None
    dedupe_id: DedupeId | None = None
    user_id: Annotated[
        UserId | None, about("The application's id of the user that the job is for. Stored in meta as $user_id.")
    ] = None
    tenant: Annotated[Tenant | None, about("The tenant of the job. Claims share fairly between tenants.", "")] = None
    webhook: Annotated[
        Annotated[str, Meta(max_length=MAX_URL_BYTES, extra_json_schema={"format": "uri"})] | None,
        about("A URL to notify of the job's end, instead of the topic's webhook. docs/webhooks.md."),
    ] = None


class _AppendOptions(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Fields for all records of a call."""

    node: Producer | None = None
    create: Annotated[
        bool | None, about("Whether to create a missing topic. Absent: true, unless config.auto_create is false.")
    ] = None
    config: Annotated[AskedInFull | None, about("Settings of the topic, used if this call creates it.")] = None
    idempotency_key: BatchKey | None = None
    disable_backpressure: Annotated[bool | None, about("Has no effect.")] = None


class AppendBody(_AppendOptions, kw_only=True):
    """Jobs for a queue. All of them are written, or none."""

    records: Annotated[list[Record], about("1 to 10000 jobs.", minItems=1, maxItems=MAX_RECORDS)]


class LogRecord(msgspec.Struct, gc=False):
    """One record of a log. Other fields, including a job's, are ignored."""

    data: Annotated[Raw, _DATA]
    tag: Tag | None = None
    node: Producer | None = None
    meta: Annotated[Raw, _META] = msgspec.field(default_factory=Raw)


class LogAppendBody(_AppendOptions, kw_only=True):
    """Records for a log. All of them are written, or none."""

    records: Annotated[list[LogRecord], about("1 to 10000 records.", minItems=1, maxItems=MAX_RECORDS)]


class AppendAnswer(msgspec.Struct):
    """The seqs of the new records, in their order; contiguous in a log. deduped: the seqs belong to an earlier batch
    with the same idempotency key, and nothing was written. duplicates: indexes, from 0, of records that an earlier job
    with the same dedupe_id stands for."""

    topic: str
    first_seq: int
    last_seq: int
    head_seq: int
    count: int
    created: bool
    deduped: bool
    seqs: list[int] | UnsetType = UNSET
    duplicates: list[int] | UnsetType = UNSET


_LEVELS: Final = frozenset([None, *range(10)])
_record = msgspec.json.Decoder(Record)
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def columns_of(body: AppendBody | LogAppendBody, order: str = "highest_first") -> tuple[Batch, int]:
    """Check the records and turn them into columns. Returns them and the bytes of data and metadata. `order` is the
    topic's priority_order.

    Raises InvalidRequest, RecordTooLarge; messages name the record by its index, from 0.
    """
    records: Sequence[Record | LogRecord] = body.records
    if not records:
        raise InvalidRequest("records must hold at least one record.")
    if body.node is not None:
        check_text(body.node, "node", MAX_NODE_BYTES)
    payloads = [bytes(record.data) for record in records]
    metadata = [_metadata(i, record.meta) for i, record in enumerate(records)]
    if isinstance(body, AppendBody):
        _add_users(metadata, body.records)
    size = 0
    for i, payload in enumerate(payloads):
        text = metadata[i]
        weight = len(payload) + (0 if text is None else len(text.encode()))
        if weight > MAX_RECORD_BYTES:
            raise RecordTooLarge(
                f"Record {i}: data and meta have {weight} bytes together. The limit is {MAX_RECORD_BYTES}.",
                {"record": i, "bytes": weight, "max_bytes": MAX_RECORD_BYTES},
            )
        check_json(payload)
        size += weight
    producers = [
        body.node if record.node is None else check_text(record.node, "node", MAX_NODE_BYTES) for record in records
    ]
    tags = [record.tag and check_text(record.tag, "tag", MAX_TAG_BYTES) for record in records]
    columns = _of_jobs(body) if isinstance(body, AppendBody) else {}
    batch = Batch.of(payloads, tags=tags, producers=producers, metadata=metadata, **columns)
    if isinstance(body, AppendBody):
        if not _LEVELS.issuperset(batch.priorities):
            for i, priority in enumerate(batch.priorities):
                check_priority(priority, order, f"Record {i}: ")
        _set_types(batch, body.records)
    return batch, size


def check_priority(priority: int | None, order: str, where: str = "") -> None:
    """Raises InvalidRequest for a priority that jobs of a topic with this priority_order can't have."""
    if priority not in _LEVELS and order != "lowest_first":
        raise InvalidRequest(
            f"{where}priority must be 0 to 9, and is {priority}. A topic whose priority_order is lowest_first takes "
            "-32768 to 32767."
        )


def record_of(text: bytes) -> Batch:
    """Parse one record into a batch. Raises as columns_of."""
    batch, _ = columns_of(AppendBody(records=[decode_json(text, _record, "The record")]))
    return batch


class _Base64(msgspec.Struct, forbid_unknown_fields=True):
    """Bytes in JSON."""

    text: str = msgspec.field(name="$base64")


_BASE64: Final = re.compile(rb'\{\s*"\$base64"\s*:')
_base64 = msgspec.json.Decoder(_Base64)
_text = msgspec.json.Decoder(str)


def _set_types(batch: Batch, records: Sequence[Record]) -> None:
    """Decode data with a content type or in base64, and set the batch's content types."""
    types: list[str | None] = []
    for i, record in enumerate(records):
        if record.content_type is None and _BASE64.match(batch.payloads[i]) is None:
            continue
        try:
            payload, kind = _bytes_of(batch.payloads[i], record.content_type)
        except InvalidRequest as error:
            raise InvalidRequest(f"Record {i}: {error.message}") from None
        batch.payloads[i] = payload
        if kind is not None:
            types += [None] * (i - len(types))
            types.append(kind)
    batch.content_types = types


def _bytes_of(data: bytes, content_type: str | None) -> tuple[bytes, str | None]:
    if content_type is not None:
        check_type(content_type)
    if _BASE64.match(data):
        try:
            shown = _base64.decode(data)
        except msgspec.ValidationError:
            pass  # it has other fields: an ordinary object
        else:
            payload = of_base64(shown.text)
            return payload, stored_type(payload, content_type or BYTES)
    form = form_of(content_type)
    if form is PayloadForm.TEXT and data[:1] == b'"':
        return _text.decode(data).encode(), content_type
    if form is not PayloadForm.JSON:
        raise InvalidRequest(f'data of type {content_type} must be {{"$base64": "…"}}, or a string if it is text/….')
    return data, stored_type(data, content_type or JSON)


def _of_jobs(body: AppendBody) -> dict[str, list[Any]]:
    """The columns that only jobs have."""
    return {
        **options.columns_of(body.records, "Record {}: "),
        "delays_ms": [record.delay_ms for record in body.records],
        "ttls_ms": [record.ttl_ms for record in body.records],
    }


def _add_users(metadata: list[str | None], records: Sequence[Record]) -> None:
    for i, record in enumerate(records):
        if record.user_id is not None:
            metadata[i] = with_user(metadata[i], record.user_id)


def _metadata(place: int, raw: msgspec.Raw) -> str | None:
    text = bytes(raw)
    if text in {b"", b"null"}:
        return None
    if len(text) > MAX_META_BYTES:
        raise InvalidRequest(f"Record {place}: meta is longer than {MAX_META_BYTES} bytes.")
    if not text.startswith(b"{"):
        raise InvalidRequest(f"Record {place}: meta must be an object.")
    if len(_object.decode(text)) > MAX_META_KEYS:
        raise InvalidRequest(f"Record {place}: meta has more than {MAX_META_KEYS} keys.")
    check_json(text)
    return text.decode()
