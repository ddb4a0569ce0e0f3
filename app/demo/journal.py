"""What a worker is told, and what it writes down for the demo to read: an append-only file of JSON lines for each.

A line that was written outlives its writer: it is with the system before the job is acked.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True, slots=True)
class Task:
    """`hang_at`: hang in the middle of the first batch that leaves so few jobs ready, as a stuck process does, until
    the demo kills it; None: never."""

    url: str
    key: str
    topic: str
    node: str
    folder: str
    journal: str
    lease_ms: int
    batch: int
    hang_at: int | None


class Writer:
    """Appends lines; each is handed to the system before `write` returns."""

    def __init__(self, path: Path) -> None:
        self._file = path.open("ab", buffering=0)

    def write(self, *lines: dict[str, Any]) -> None:
        self._file.write(b"".join(json.dumps(line).encode() + b"\n" for line in lines))


class Reader:
    """Reads what was added since the last time. A line without its end is left for later: its writer was killed."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._at = 0

    def new(self) -> Iterator[dict[str, Any]]:
        with self._path.open("rb") as file:
            file.seek(self._at)
            text = file.read()
        whole = text[: text.rfind(b"\n") + 1]
        self._at += len(whole)
        for line in whole.splitlines():
            yield json.loads(line)
