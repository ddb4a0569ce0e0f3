"""Server-sent events: bytes in, frames out (WHATWG HTML, section 9.2, without what this service never sends).

httpx-sse (0.4.3) is as fast. It reads an httpx response, though, where the transport gives bytes and errors of this
client, and would be a second dependency of everybody for these 40 lines.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Frame:
    """One event. `id` is the last one seen on the stream, "" before any."""

    event: str
    data: str
    id: str


class Frames:
    """Puts bytes together to frames. Lines end at a line feed only: what else Unicode takes for the end of one may be
    data."""

    def __init__(self) -> None:
        self._rest = b""
        self._event = ""
        self._data: list[str] = []
        self._id = ""

    def feed(self, chunk: bytes) -> Iterator[Frame]:
        """The frames that this completes."""
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
        return None  # a comment, retry, or a field that nobody knows
