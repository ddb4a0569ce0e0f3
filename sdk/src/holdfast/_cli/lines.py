"""Reads files of one record per line in batches, for `holdfast enqueue`."""

from __future__ import annotations

import dataclasses
import hashlib
import json
import math
import re
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import Any, BinaryIO, Final

from holdfast import models
from holdfast._wire import encode

MAX_BATCH_BYTES: Final = 8 << 20
_HALF: Final = re.compile(r"\\u[dD][89a-fA-F]")
_FIELDS: Final = {field.name for field in dataclasses.fields(models.Record)}


class Form(StrEnum):
    """The format of a line."""

    JSON = "json"  # a record's data as JSON
    TEXT = "text"  # a record's data as text
    RECORD = "record"  # an object with data, tag, priority and so on


class BadLine(Exception):
    """A line that is not a valid record. The message says which and why."""


@dataclass(frozen=True, slots=True)
class Line:
    """A record and its line. `size`: in bytes, including empty lines before it. `torn`: the last line of the file,
    without a line end."""

    number: int
    size: int
    text: bytes
    torn: bool
    record: models.Record


def lines(file: BinaryIO, form: Form, first_line: int) -> Iterator[Line]:
    """The records of a file from `first_line` on. Skips empty lines. Raises BadLine."""
    size = 0
    for number, line in enumerate(file, 1):
        if number < first_line:
            continue
        size += len(line)
        if not (text := line.strip()):
            continue
        text = line.rstrip(b"\r\n") if form is Form.TEXT else text
        torn = not line.endswith(b"\n")
        try:
            record = record_of(text, form)
        except ValueError as error:
            raise BadLine(f"line {number}{', where the file ends' if torn else ''}: {error}") from error
        yield Line(number, size, text, torn, record)
        size = 0


class Batches:
    """Splits lines into batches of at most `size`, or fewer large ones. The batch with a bad line is not returned at
    all, so that the batches are the same once the line is fixed."""

    def __init__(self, found: Iterator[Line], size: int) -> None:
        self._found = found
        self._size = size
        self._back: deque[Line] = deque()  # lines to return again

    def next(self) -> list[Line]:
        """The next batch; empty at the end. Raises BadLine."""
        batch: list[Line] = []
        size = 0
        while len(batch) < self._size and size < MAX_BATCH_BYTES and (line := self._line()):
            if batch and line.torn:  # a batch of its own: the line may be longer next time
                self._back.appendleft(line)
                break
            batch.append(line)
            size += line.size
        return batch

    def as_taken(self, batch: list[Line], count: int) -> list[Line]:
        """Adjust a batch that an earlier run wrote with `count` records. Returns its lines; the next batch begins after
        them. Raises BadLine."""
        self._back.extendleft(reversed(batch[count:]))
        there = batch[:count]
        while len(there) < count and (line := self._line()):
            there.append(line)
        return there

    def _line(self) -> Line | None:
        return self._back.popleft() if self._back else next(self._found, None)


def key_of(run: str, source: str, first: Line) -> str:
    """The idempotency key of the batch that begins with this line. It depends only on that line, so a later run with
    the same name recognizes the batch even if the file has grown."""
    named = hashlib.sha256(f"{run}\0{source}\0{first.number}\0".encode())
    named.update(first.text)
    return named.hexdigest()


def loads(text: str) -> Any:
    """Parse strict JSON, without NaN, infinities and lone surrogates. Raises ValueError."""
    try:
        value = json.loads(text, parse_constant=_finite, parse_float=_finite)
        if _HALF.search(text):  # may be a lone surrogate
            encode(value)
    except RecursionError as error:
        raise ValueError("nested too deeply") from error
    except UnicodeEncodeError as error:
        raise ValueError(f"{error.object[error.start : error.end]!r} is not valid Unicode") from error
    return value


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a JSON number, or is too large")
    return number


def record_of(line: bytes, form: Form) -> models.Record:
    """Parse a line. Raises ValueError."""
    text = line.decode()
    if form is Form.TEXT:
        return models.Record(data=text)
    value = loads(text)
    if form is Form.JSON:
        return models.Record(data=value)
    if not isinstance(value, dict) or "data" not in value:
        raise ValueError("a record must be an object with data")
    if unknown := value.keys() - _FIELDS:
        raise ValueError(f"a record has no field {', '.join(sorted(unknown))}")
    if (run_at := value.get("run_at")) is not None:
        value["run_at"] = moment(run_at)
    if not isinstance(value.get("meta"), dict | None):
        raise ValueError("meta must be an object")
    return models.Record(**value)


def moment(text: Any) -> datetime:
    """Parse an RFC 3339 time with a zone. Raises ValueError."""
    try:
        at = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise ValueError(f"{text!r:.80} is not a time. Write it like 2026-12-24T18:00:00Z.") from None
    if at.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone. Add Z, or an offset such as +01:00.")
    return at
