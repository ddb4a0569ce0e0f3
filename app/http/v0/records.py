"""Records of an append in v0: its bodies and answers, and the records checked and turned into columns.

Unknown fields of a call are a 400; those of a record are ignored, as the original does: its clients send back what they
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
from app.kernel.forms import PayloadForm, form_of
from app.kernel.model import MAX_TAG_BYTES, Batch
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


_LEVELS: Final = frozenset([None, *range(10)])
_record = msgspec.json.Decoder(Record)
_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def columns_of(body: AppendBody | LogAppendBody, order: str = "highest_first") -> tuple[Batch, int]:
    """Check the records and turn them into columns; and the bytes of their data and metadata. `order` is the topic's
    priority_order.

    Raises InvalidRequest, RecordTooLarge; names the record by its place, from 0.
    """
    records: Sequence[Record | LogRecord] = body.records
    if not records:
        raise InvalidRequest("records must hold at least one record.")
    if body.node is not None:
        check_text(body.node, "node", MAX_NODE_BYTES)
    payloads = [bytes(record.data) for record in records]
    metadata = [_metadata(i, record.meta) for i, record in enumerate(records)]
    if isinstance(body, AppendBody):
        _say_for_whom(metadata, body.records)
    size = 0
    for i, payload in enumerate(payloads):
        text = metadata[i]
        weight = len(payload) + (0 if text is None else len(text.encode()))
        if weight > MAX_RECORD_BYTES:
            raise RecordTooLarge(
                f"Record {i}: data and meta are {weight} bytes together; {MAX_RECORD_BYTES} are the most.",
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
        _type(batch, body.records)
    return batch, size


def check_priority(priority: int | None, order: str, where: str = "") -> None:
    """Raises InvalidRequest for a priority that jobs of a topic with this priority_order can't have."""
    if priority not in _LEVELS and order != "lowest_first":
        raise InvalidRequest(
            f"{where}priority must be 0 to 9, and is {priority}. A topic whose priority_order is lowest_first takes "
            "-32768 to 32767."
        )


def record_of(text: bytes) -> Batch:
    """One record in JSON as a batch. Raises as columns_of."""
    batch, _ = columns_of(AppendBody(records=[decode_json(text, _record, "The record")]))
    return batch


class _Base64(msgspec.Struct, forbid_unknown_fields=True):
    """Bytes, as JSON shows them."""

    text: str = msgspec.field(name="$base64")


_BASE64: Final = re.compile(rb'\{\s*"\$base64"\s*:')
_base64 = msgspec.json.Decoder(_Base64)
_text = msgspec.json.Decoder(str)


def _type(batch: Batch, records: Sequence[Record]) -> None:
    """Where data is no JSON, or has a type of its own: the bytes that it stands for, and their type."""
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
            pass  # an object with other fields is what it looks like
        else:
            payload = of_base64(shown.text)
            return payload, stored_type(payload, content_type or BYTES)
    form = form_of(content_type)
    if form is PayloadForm.TEXT and data[:1] == b'"':
        return _text.decode(data).encode(), content_type
    if form is not PayloadForm.JSON:
        raise InvalidRequest(f'data of type {content_type} is a text, if that is text/…, or {{"$base64": "…"}}.')
    return data, stored_type(data, content_type or JSON)


def _of_jobs(body: AppendBody) -> dict[str, list[Any]]:
    """What only jobs have."""
    return {
        **options.columns_of(body.records, "Record {}: "),
        "delays_ms": [record.delay_ms for record in body.records],
        "ttls_ms": [record.ttl_ms for record in body.records],
    }


def _say_for_whom(metadata: list[str | None], records: Sequence[Record]) -> None:
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
