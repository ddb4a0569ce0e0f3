"""A network that loses answers after the service has done what was asked, and keeps callers waiting."""

from __future__ import annotations

import asyncio
import re
from collections import deque
from contextlib import suppress
from dataclasses import dataclass
from types import TracebackType
from typing import Self
from urllib.parse import urlsplit


@dataclass(frozen=True, slots=True)
class Fault:
    """What happens to the next request whose line matches: its answer, once the service has given it, is lost, or comes
    when `come` is set; or the service is not asked, and `said` is the body of a 200."""

    line: str
    come: asyncio.Event | None = None
    said: bytes | None = None


class Proxy:
    """Passes HTTP/1.1 on, one request at a time a connection."""

    def __init__(self, upstream: str) -> None:
        parts = urlsplit(upstream)
        assert parts.hostname
        assert parts.port
        self._host, self._port = parts.hostname, parts.port
        self._faults: deque[Fault] = deque()
        self._tasks: set[asyncio.Task[None]] = set()
        self.lines: list[str] = []  # of the requests that came, such as "POST /v0/topics/mail/claim"
        self.connections = 0

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    def lose(self, line: str) -> None:
        """Lose the answer to the next request of this method and path, which ends so."""
        self._faults.append(Fault(line))

    def hold(self, line: str) -> asyncio.Event:
        """The answer comes when this is set."""
        come = asyncio.Event()
        self._faults.append(Fault(line, come))
        return come

    def say(self, line: str, body: bytes) -> None:
        """Answer the next request with a 200 of this body."""
        self._faults.append(Fault(line, said=body))

    async def asked(self, line: str, times: int = 1) -> None:
        """Wait until there were so many requests of this method and path."""
        async with asyncio.timeout(30):
            while self.count(line) < times:
                await asyncio.sleep(0.005)

    def count(self, line: str) -> int:
        """How many requests there were of this method and path, which ends so."""
        return sum(_fits(came, line) for came in self.lines)

    async def __aenter__(self) -> Self:
        self._server = await asyncio.start_server(self._accept, "127.0.0.1", 0)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task
        self._tasks.add(task)
        self.connections += 1
        try:
            with suppress(OSError, asyncio.IncompleteReadError):
                await self._pass_on(reader, writer)
        finally:
            self._tasks.discard(task)
            writer.close()

    async def _pass_on(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection(self._host, self._port)
        try:
            while True:
                request = await _message(reader)
                line = request.split(b" HTTP/", 1)[0].decode()
                self.lines.append(line)
                fault = next((fault for fault in self._faults if _fits(line, fault.line)), None)
                if fault:
                    self._faults.remove(fault)
                if fault and fault.said is not None:
                    length = len(fault.said)
                    writer.write(b"HTTP/1.1 200 OK\r\ncontent-length: %d\r\n\r\n%b" % (length, fault.said))
                    continue
                up_writer.write(request)
                answer = await _message(up_reader)
                if fault and fault.come is None:
                    return
                if fault and fault.come is not None:
                    await fault.come.wait()
                writer.write(answer)
                await writer.drain()
        finally:
            up_writer.close()


def _fits(came: str, line: str) -> bool:
    method, _, path = line.partition(" ")
    came_method, _, came_path = came.partition(" ")
    return method == came_method and came_path.partition("?")[0].endswith(path)


async def _message(reader: asyncio.StreamReader) -> bytes:
    """A request or an answer, whose body has a length."""
    head = await reader.readuntil(b"\r\n\r\n")
    length = re.search(rb"\r\ncontent-length: *(\d+)\r\n", head, re.IGNORECASE)
    return head + (await reader.readexactly(int(length.group(1))) if length else b"")
