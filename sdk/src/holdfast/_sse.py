"""Parses server-sent events from bytes (WHATWG HTML, section 9.2, the parts that this service sends).

httpx-sse (0.4.3) is as fast, but it reads an httpx response where this transport has bytes, and it would be a second
dependency.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Frame:
    """One event. `id` is the last id seen on the stream, "" before the first."""

    event: str
    data: str
    id: str


class Frames:
    """Parses bytes into frames. Lines end at a line feed only: Unicode's other line ends may be data."""

    def __init__(self) -> None:
        self._rest = b""
        self._event = ""
        self._data: list[str] = []
        self._id = ""

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """Add bytes. Yields the frames that they complete."""
        *lines, self._rest = (self._rest + chunk).split(b"\n")
        for line in lines:
            frame = self._take(line.removesuffix(b"\r").decode())
            if frame:
                yield frame

    def _take(self, line: str) -> Frame | None:
        if not line:
            frame = Frame(self._event or "message", "\n".join(self._data), self._id) if self._data else None
            self._event, self._data = "", []
            return frame
        name, _, value = line.partition(":")
        value = value.removeprefix(" ")
        if name == "event":
            self._event = value
        elif name == "data":
            self._data.append(value)
        elif name == "id":
            self._id = value
        return None  # a comment, retry, or an unknown field
