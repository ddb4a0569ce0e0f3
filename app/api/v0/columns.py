"""The records of a request, checked and turned into columns."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import msgspec

from app.api.body import check_depth
from app.api.bounds import (
    MAX_META_BYTES,
    MAX_META_KEYS,
    MAX_NODE_BYTES,
    MAX_RECORD_BYTES,
    MAX_RECORDS,
    MAX_TAG_BYTES,
)
from app.api.fields import check_text, time_of
from app.api.v0.record_bodies import AppendBody, LogAppendBody, LogRecord, Record
from app.errors import BatchTooLarge, InvalidRequest, RecordTooLarge
from app.queue.model import Batch

_object = msgspec.json.Decoder(dict[str, msgspec.Raw])


def columns_of(body: AppendBody | LogAppendBody) -> tuple[Batch, int]:
    """Check the records and turn them into columns; and the bytes of their data and metadata.

    Raises InvalidRequest, BatchTooLarge, RecordTooLarge; names the record by its place, from 0.
    """
    records: Sequence[Record | LogRecord] = body.records
    if not records:
        raise InvalidRequest("records must hold at least one record.")
    if len(records) > MAX_RECORDS:
        raise BatchTooLarge(f"At most {MAX_RECORDS} records a call.", {"records": len(records), "max": MAX_RECORDS})
    if body.node is not None:
        check_text(body.node, "node", MAX_NODE_BYTES)
    payloads = [bytes(record.data) for record in records]
    metadata = [_metadata(i, record.meta) for i, record in enumerate(records)]
    size = 0
    for i, payload in enumerate(payloads):
        text = metadata[i]
        weight = len(payload) + (0 if text is None else len(text.encode()))
        if weight > MAX_RECORD_BYTES:
            raise RecordTooLarge(
                f"Record {i}: data and meta are {weight} bytes together; {MAX_RECORD_BYTES} are the most.",
                {"record": i, "bytes": weight, "max_bytes": MAX_RECORD_BYTES},
            )
        check_depth(payload)
        size += weight
    producers = [
        body.node if record.node is None else check_text(record.node, "node", MAX_NODE_BYTES) for record in records
    ]
    batch = Batch(
        payloads=payloads,
        tags=_unless_default([record.tag and check_text(record.tag, "tag", MAX_TAG_BYTES) for record in records]),
        producers=_unless_default(producers),
        metadata=_unless_default(metadata),
    )
    if isinstance(body, AppendBody):
        _schedule(batch, body.records)
    return batch, size


def _schedule(batch: Batch, records: Sequence[Record]) -> None:
    """What only jobs have."""
    batch.priorities = _unless_default([record.priority for record in records])
    batch.delays_ms = _unless_default([record.delay_ms for record in records])
    batch.run_ats = _unless_default(
        [
            None if record.run_at is None else time_of(record.run_at, f"Record {i}: run_at")
            for i, record in enumerate(records)
        ]
    )
    batch.ttls_ms = _unless_default([record.ttl_ms for record in records])
    batch.keys = _unless_default([record.key for record in records])
    batch.max_deliveries = _unless_default([record.max_deliveries for record in records])


def _unless_default(column: list[Any]) -> list[Any]:
    """The column, or none at all where every record leaves it to its default: it is not sent then."""
    return [] if column.count(None) == len(column) else column


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
    check_depth(text)
    return text.decode()
