"""Files of one record a line, in batches: what `holdfast enqueue` reads."""

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
    """What a line is."""

    JSON = "json"  # the data of a record
    TEXT = "text"  # the same, as a text
    RECORD = "record"  # an object with data, tag, priority and so on


class BadLine(Exception):
    """A line that is no record: which, and why."""


@dataclass(frozen=True, slots=True)
class Line:
    """A record, and where it stands. `size` in bytes, with that of empty lines before it. `torn`: the file ends in it,
    without the end of a line."""

    number: int
    size: int
    text: bytes
    torn: bool
    record: models.Record


def lines(file: BinaryIO, form: Form, first_line: int) -> Iterator[Line]:
    """The records of a file from a line on; empty lines are none. Raises BadLine."""
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
    """Lines in batches of up to `size`, or fewer where they are large. Of the batch that a bad line would be in none is
    handed out, so that the others are the same once it is mended."""

    def __init__(self, found: Iterator[Line], size: int) -> None:
        self._found = found
        self._size = size
        self._back: deque[Line] = deque()  # to be handed out once more

    def next(self) -> list[Line]:
        """One batch; empty if there is no more. Raises BadLine."""
        batch: list[Line] = []
        size = 0
        while len(batch) < self._size and size < MAX_BATCH_BYTES and (line := self._line()):
            if batch and line.torn:  # which stands alone: there may be more of it the next time
                self._back.appendleft(line)
                break
            batch.append(line)
            size += line.size
        return batch

    def as_taken(self, batch: list[Line], count: int) -> list[Line]:
        """The lines of a batch that was taken before, when it had so many records. The next one begins behind them, as
        it did then. Raises BadLine."""
        self._back.extendleft(reversed(batch[count:]))
        there = batch[:count]
        while len(there) < count and (line := self._line()):
            there.append(line)
        return there

    def _line(self) -> Line | None:
        return self._back.popleft() if self._back else next(self._found, None)


def key_of(run: str, source: str, first: Line) -> str:
    """The idempotency key of the batch that begins with this line: by that alone it is known in a later run of the same
    name, whatever follows it in the file by then."""
    named = hashlib.sha256(f"{run}\0{source}\0{first.number}\0".encode())
    named.update(first.text)
    return named.hexdigest()


def loads(text: str) -> Any:
    """JSON, as it is defined: NaN and infinities are none, and halves of surrogate pairs no text. Raises ValueError."""
    try:
        value = json.loads(text, parse_constant=_finite, parse_float=_finite)
        if _HALF.search(text):  # maybe of a pair
            encode(value)
    except RecursionError as error:
        raise ValueError("nested too deep") from error
    except UnicodeEncodeError as error:
        raise ValueError(f"{error.object[error.start : error.end]!r} is in no Unicode text") from error
    return value


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
    if (run_at := value.get("run_at")) is not None:
        value["run_at"] = moment(run_at)
    if not isinstance(value.get("meta"), dict | None):
        raise ValueError("meta is an object")
    return models.Record(**value)


def moment(text: Any) -> datetime:
    """A time with its zone, as RFC 3339 has it. Raises ValueError."""
    try:
        at = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        raise ValueError(f"{text!r:.80} is no time, such as 2026-12-24T18:00:00Z.") from None
    if at.tzinfo is None:
        raise ValueError(f"{text!r} has no time zone: end it with Z, or with an offset such as +01:00.")
    return at
