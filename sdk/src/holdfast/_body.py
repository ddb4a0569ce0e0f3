"""What is sent, of dataclasses and records."""

from __future__ import annotations

import base64
import dataclasses
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Any

from holdfast._decode import payload
from holdfast._msgpack import is_msgpack, pack
from holdfast._wire import encode, said
from holdfast.models.records import Record


def fields_of(value: Any) -> dict[str, Any]:
    """A dataclass as an object, without what it does not say."""
    return said(
        {
            field.name: fields_of(one) if dataclasses.is_dataclass(one := getattr(value, field.name)) else one
            for field in dataclasses.fields(value)
        }
    )


def data_of(data: Any, content_type: str | None = None) -> Any:
    """What a job is to carry, as it is sent: bytes have a form of their own."""
    if is_msgpack(content_type):
        data, _ = content_of(data, content_type)
    if isinstance(data, (bytes, bytearray, memoryview)):
        return {"$base64": base64.b64encode(data).decode()}
    return data


def content_of(data: Any, content_type: str | None) -> tuple[bytes, str]:
    """The bytes that the service keeps of what a job is to carry, and their type. Raises TypeError or ValueError for
    what has none."""
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
    raise TypeError(f"a {type(data).__name__} is no {kind}: give bytes, or str for text/…")


def is_json(content_type: str) -> bool:
    kind = content_type.partition(";")[0].strip().lower()
    return kind == "application/json" or kind.endswith("+json")


def is_text(content_type: str) -> bool:
    return content_type.lower().startswith("text/")


def moment_of(at: datetime | None) -> str | None:
    """A time as it is sent. Raises ValueError for one without a time zone: nobody can tell when that is."""
    if at is not None and at.tzinfo is None:
        raise ValueError(f"{at.isoformat()} has no time zone: give one, such as datetime.UTC")
    return None if at is None else at.isoformat()


def record_of(record: Any, trace: Mapping[str, str]) -> dict[str, Any]:
    """A record as it is sent; what is none is the data of one. Its own trace goes before the call's."""
    if not isinstance(record, Record):
        record = Record(data=record)
    meta = {**trace, **(record.meta or {})} if trace else record.meta
    said_of_it = fields_of(dataclasses.replace(record, data=None, meta=None, run_at=None))
    data = data_of(record.data, record.content_type)
    return {"data": data} | said_of_it | said({"meta": meta, "run_at": moment_of(record.run_at)})


def records_of(records: Iterable[Any], trace: Mapping[str, str]) -> list[dict[str, Any]]:
    """The records of a batch. Raises ValueError if there is none: the service would."""
    made = [record_of(record, trace) for record in records]
    if not made:
        raise ValueError("a batch has at least one record")
    return made
