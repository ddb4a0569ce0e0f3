"""Turns dataclasses and records into request bodies."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from holdfast._decode import payload
from holdfast._msgpack import is_msgpack, pack
from holdfast._wire import encode, without_none
from holdfast.models.records import Record


def fields_of(value: Any) -> dict[str, Any]:
    """A dataclass as a dict, without fields that are None."""
    return without_none(
        {
            field.name: fields_of(one) if dataclasses.is_dataclass(one := getattr(value, field.name)) else one
            for field in dataclasses.fields(value)
        }
    )


def data_of(data: Any, content_type: str | None = None) -> Any:
    """A payload as JSON; bytes become {"$base64": "…"}."""
    if is_msgpack(content_type):
        data, _ = content_of(data, content_type)
    if isinstance(data, (bytes, bytearray, memoryview)):
        return {"$base64": base64.b64encode(data).decode()}
    return data


def content_of(data: Any, content_type: str | None) -> tuple[bytes, str]:
    """The bytes and content type that the service stores for a payload. Raises TypeError or ValueError if the payload
    can't be encoded."""
    data = payload(data)
    if isinstance(data, (bytes, bytearray, memoryview)):
        return bytes(data), content_type or "application/octet-stream"
    kind = content_type or "application/json"
    if is_msgpack(kind):
        return pack(data), kind
    if is_json(kind):
        return encode(data), kind
    if is_text(kind) and isinstance(data, str):
        return data.encode(), kind
    raise TypeError(f"a {type(data).__name__} can't be sent as {kind}: pass bytes, or str for text/…")


def is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


def is_text(content_type: str) -> bool:
    return content_type.lower().startswith("text/")


def moment_of(at: datetime | None) -> str | None:
    """Format a time. Raises ValueError if it has no time zone."""
    if at is not None and at.tzinfo is None:
        raise ValueError(f"{at.isoformat()} has no time zone: add one, such as datetime.UTC")
    return None if at is None else at.isoformat()


def record_of(record: Any, trace: Mapping[str, str]) -> dict[str, Any]:
    """A record as JSON. Anything else than a Record is the data of one. Its own trace context takes precedence."""
    if not isinstance(record, Record):
        record = Record(data=record)
    meta = {**trace, **(record.meta or {})} if trace else record.meta
    fields = fields_of(dataclasses.replace(record, data=None, meta=None, run_at=None))
    data = data_of(record.data, record.content_type)
    return {"data": data} | fields | without_none({"meta": meta, "run_at": moment_of(record.run_at)})


def records_of(records: Iterable[Any], trace: Mapping[str, str]) -> list[dict[str, Any]]:
    """The records of a batch as JSON. Raises ValueError for an empty batch."""
    made = [record_of(record, trace) for record in records]
    if not made:
        raise ValueError("a batch must have at least one record")
    return made
