"""A closed-loop HTTP client that costs little: keep-alive connections, prepared requests, answers by content-length.

It runs in a process of its own, so that its time is not the service's.
"""

from __future__ import annotations

import asyncio
import multiprocessing
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import cast

import uvloop


@dataclass(frozen=True, slots=True)
class Load:
    """POST `bodies` to `path` over `connections`: each once, or, with `seconds`, in turn for so long."""

    port: int
    path: str
    bodies: Sequence[bytes]
    connections: int
    seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Outcome:
    """How many requests were answered with 2xx, in how many seconds; the answers' bodies if they were kept."""

    requests: int
    seconds: float
    answers: list[bytes]

    @property
    def rate(self) -> float:
        """Requests a second."""
        return self.requests / self.seconds


def drive(load: Load, *, keep: bool = False) -> Outcome:
    """Run a load in another process. Raises RuntimeError if any answer is not 2xx."""
    context = multiprocessing.get_context("spawn")
    with context.Pool(1) as pool:
        outcome = pool.apply(_run, (load, keep))
    if isinstance(outcome, str):
        raise RuntimeError(outcome)
    return outcome


def _run(load: Load, keep: bool) -> Outcome | str:
    return uvloop.run(_drive(load, keep))


class _Connection(asyncio.Protocol):
    """Sends a request, waits for its whole answer, sends the next."""

    def __init__(self, requests: Iterator[bytes], keep: list[bytes] | None) -> None:
        self._requests = requests
        self._keep = keep
        self._buffer = b""
        self._transport: asyncio.WriteTransport | None = None
        self.count = 0
        self.finished: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.WriteTransport, transport)
        self._next()

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
            self.finished.set_exception(RuntimeError(self._buffer[:600].decode(errors="replace")))
            return
        if self._keep is not None:
            self._keep.append(self._buffer[end + 4 :])
        self._buffer = b""
        self.count += 1
        self._next()

    def connection_lost(self, exc: Exception | None) -> None:
        if not self.finished.done():
            self.finished.set_exception(exc or ConnectionResetError("closed by the server"))

    def _next(self) -> None:
        request = next(self._requests, None)
        assert self._transport is not None
        if request is not None:
            self._transport.write(request)
        elif not self.finished.done():
            self.finished.set_result(None)
            self._transport.close()


async def _drive(load: Load, keep: bool) -> Outcome | str:
    head = f"POST {load.path} HTTP/1.1\r\nhost: bench\r\ncontent-type: application/json\r\ncontent-length: "
    ready = [f"{head}{len(body)}\r\n\r\n".encode() + body for body in load.bodies]
    until = None if load.seconds is None else time.perf_counter() + load.seconds

    def requests() -> Iterator[bytes]:
        if until is None:
            yield from ready
        while until is not None and time.perf_counter() < until:
            yield from ready

    shared = requests()
    answers: list[bytes] = []
    loop = asyncio.get_running_loop()
    began = time.perf_counter()
    made = [
        await loop.create_connection(lambda: _Connection(shared, answers if keep else None), "127.0.0.1", load.port)
        for _ in range(load.connections)
    ]
    try:
        await asyncio.gather(*(connection.finished for _, connection in made))
    except (RuntimeError, OSError) as error:
        return str(error)
    return Outcome(sum(connection.count for _, connection in made), time.perf_counter() - began, answers)
