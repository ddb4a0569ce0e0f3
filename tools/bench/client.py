"""An HTTP client that costs little: keep-alive connections, prepared requests, answers by content-length."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Generator, Sequence
from dataclasses import dataclass
from typing import cast


@dataclass(frozen=True, slots=True)
class Later:
    """A request that is sent at a time of time.monotonic(), or at once if that has passed."""

    at: float
    request: bytes


Script = Generator[bytes | Later, bytes, None]  # yields requests, is sent the bodies of their answers


def post(path: str, body: bytes) -> bytes:
    """A request."""
    head = (
        f"POST {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\ncontent-length: {len(body)}\r\n"
    )
    return b"%b\r\n%b" % (head.encode(), body)


class Connection(asyncio.Protocol):
    """Plays a script: sends a request, waits for its whole answer, sends the next."""

    def __init__(self, script: Script) -> None:
        self._script = script
        self._buffer = b""
        self._transport: asyncio.WriteTransport | None = None
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def start(self) -> None:
        """Send the first request."""
        try:
            self._send(next(self._script))
        except StopIteration:
            self._end()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        self._buffer = self._buffer + data if self._buffer else data
        end = self._buffer.find(b"\r\n\r\n")
        if end < 0:
            return
        head = self._buffer[:end].lower()
        start = head.index(b"content-length: ") + 16
        stop = head.find(b"\r\n", start)
        length = int(head[start : stop if stop > 0 else end])
        if len(self._buffer) < end + 4 + length:
            return
        if head[9:10] != b"2":
            self._end(RuntimeError(self._buffer[:600].decode(errors="replace")))
            return
        answer, self._buffer = self._buffer[end + 4 :], b""
        try:
            self._send(self._script.send(answer))
        except StopIteration:
            self._end()
        except Exception as error:
            self._end(error)

    def _send(self, request: bytes | Later) -> None:
        assert self._transport is not None
        if isinstance(request, bytes):
            self._transport.write(request)
        else:
            wait = max(0.0, request.at - time.monotonic())
            asyncio.get_running_loop().call_later(wait, self._send_late, request.request)

    def _send_late(self, request: bytes) -> None:
        if not self.finished.done():  # else it has broken meanwhile
            self._send(request)

    def connection_lost(self, exc: Exception | None) -> None:
        self._end(exc or ConnectionResetError("closed by the server"))

    def _end(self, error: Exception | None = None) -> None:
        if self.finished.done():
            return
        if error is None:
            self.finished.set_result(None)
        else:
            self.finished.set_exception(error)
        assert self._transport is not None
        self._transport.close()


async def connect(ports: Sequence[int], scripts: Sequence[Script]) -> list[Connection]:
    """A connection for each script, spread over the ports; none has been started."""
    loop = asyncio.get_running_loop()
    return [
        (await loop.create_connection(lambda script=script: Connection(script), "127.0.0.1", port))[1]  # type: ignore[misc]
        for script, port in zip(scripts, [ports[i % len(ports)] for i in range(len(scripts))], strict=True)
    ]


async def play(connections: Sequence[Connection]) -> None:
    """Start all, and wait for all. Raises RuntimeError if any answer is not 2xx."""
    for connection in connections:
        connection.start()
    await asyncio.gather(*(connection.finished for connection in connections))
