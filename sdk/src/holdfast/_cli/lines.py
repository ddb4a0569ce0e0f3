"""Files of one record a line, in batches: what `holdfast enqueue` reads."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from enum import StrEnum
from typing import Any, BinaryIO, Final

from holdfast import models

MAX_BATCH_BYTES: Final = 8 << 20
_FIELDS: Final = {field.name for field in dataclasses.fields(models.Record)}


class Form(StrEnum):
    """What a line is."""

    JSON = "json"  # the data of a record
    TEXT = "text"  # the same, as a text
    RECORD = "record"  # an object with data, tag, priority and so on


class BadLine(Exception):
    """A line that is no record: which, and why."""


@dataclass(slots=True)
class Batch:
    """Records of lines `first` to `last`; `size` in bytes. Empty lines are none."""

    first: int
    last: int = 0
    size: int = 0
    records: list[models.Record] = field(default_factory=list)
    digest: Any = field(default_factory=hashlib.sha256)

    def key(self, run: str, source: str) -> str:
        """Its idempotency key: the same lines of the same run are written once."""
        named = hashlib.sha256(f"{run}\0{source}\0{self.first}\0".encode())
        named.update(self.digest.digest())
        return named.hexdigest()


def batches(file: BinaryIO, form: Form, size: int, first_line: int) -> Iterator[Batch]:
    """The records of a file from a line on, `size` a batch, or fewer where they are large. Raises BadLine: nothing of
    the batch that such a line is in has been handed out, so that the others are the same once it is mended."""
    batch = Batch(first_line)
    for number, line in enumerate(file, 1):
        if number < first_line:
            continue
        if text := line.strip():
            try:
                batch.records.append(record_of(line.rstrip(b"\r\n") if form is Form.TEXT else text, form))
            except ValueError as error:
                torn = "" if line.endswith(b"\n") else ", where the file ends"
                raise BadLine(f"line {number}{torn}: {error}") from error
        batch.last = number
        batch.size += len(line)
        batch.digest.update(line)
        if batch.records and (len(batch.records) >= size or batch.size >= MAX_BATCH_BYTES):
            yield batch
            batch = Batch(number + 1)
    if batch.records:
        yield batch


def loads(text: str) -> Any:
    """JSON, as it is defined: NaN and infinities are none. Raises ValueError."""
    try:
        return json.loads(text, parse_constant=_finite, parse_float=_finite)
    except RecursionError as error:
        raise ValueError("nested too deep") from error


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is no number of JSON's, or too large")
    return number


def record_of(line: bytes, form: Form) -> models.Record:
    """The record of a line. Raises ValueError."""
    text = line.decode()
    if form is Form.TEXT:
        return models.Record(data=text)
    value = loads(text)
    if form is Form.JSON:
        return models.Record(data=value)
    if not isinstance(value, dict) or "data" not in value:
        raise ValueError("a record is an object that has data")
    if unknown := value.keys() - _FIELDS:
        raise ValueError(f"a record has no {', '.join(sorted(unknown))}")
    if value.get("run_at"):
        value["run_at"] = datetime.fromisoformat(value["run_at"])
    return models.Record(**value)
