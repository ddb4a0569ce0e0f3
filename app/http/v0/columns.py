"""The records of a request, checked and turned into columns."""

from __future__ import annotations

import re
from collections.abc import Sequence
from typing import Any, Final

import msgspec

from app.errors import InvalidRequest, RecordTooLarge
from app.http import options
from app.http.body import decoded
from app.http.bounds import MAX_META_BYTES, MAX_META_KEYS, MAX_NODE_BYTES, MAX_RECORD_BYTES
from app.http.fields import check_text
from app.http.payloads import BYTES, JSON, check_json, check_type, kept, of_base64
from app.http.users import with_user
from app.http.v0.record_bodies import AppendBody, LogAppendBody, LogRecord, Record
from app.kernel.forms import PayloadForm, form_of
from app.kernel.model import MAX_TAG_BYTES, Batch

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
    batch, _ = columns_of(AppendBody(records=[decoded(text, _record, "The record")]))
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
            return payload, kept(payload, content_type or BYTES)
    form = form_of(content_type)
    if form is PayloadForm.TEXT and data[:1] == b'"':
        return _text.decode(data).encode(), content_type
    if form is not PayloadForm.JSON:
        raise InvalidRequest(f'data of type {content_type} is a text, if that is text/…, or {{"$base64": "…"}}.')
    return data, kept(data, content_type or JSON)


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
