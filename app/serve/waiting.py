"""Who calls while the service waits for its database is told so, by the supervisor: the workers can't answer yet."""

from __future__ import annotations

import asyncio
import json
import socket
from contextlib import suppress
from typing import Final

from app.serve.listener import BACKLOG

MOST: Final = 256  # connections at once; more are closed without a word
HEAD_BYTES: Final = 16 * 1024
SECONDS: Final = 5.0  # for a request to come
LINGER_SECONDS: Final = 1.0  # what a client still sends is taken for so long: a reset could swallow the answer

MESSAGE: Final = "The service is waiting for its database. Try again."
# Each dialect's form of an error, as app.errors.Unavailable has it. The framework that renders them is the workers'.
V0: Final = {"error": {"code": "not_ready", "message": MESSAGE}}
MESSAGES: Final = {"error": MESSAGE, "code": "not_ready"}


class WaitingRoom:
    """Takes connections of a listening socket, which the caller closes, from `open` to `close`. 503 is what all get."""

    def __init__(self, bound: socket.socket) -> None:
        self._bound = bound
        self._server: asyncio.Server | None = None
        self._guests = 0

    async def open(self) -> None:
        # A copy, as the server closes what it was given.
        own = self._bound.dup()
        self._server = await asyncio.start_server(self._answer, sock=own, limit=HEAD_BYTES, backlog=BACKLOG)

    def close(self) -> None:
        """Take no more. Who is here is answered all the same."""
        if self._server is not None:
            self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._guests += 1
        try:
            if self._guests <= MOST:
                with suppress(OSError, EOFError, asyncio.LimitOverrunError, TimeoutError):
                    async with asyncio.timeout(SECONDS):
                        head = await reader.readuntil(b"\r\n\r\n")
                        writer.write(answer_to(head))
                        writer.write_eof()
                    async with asyncio.timeout(LINGER_SECONDS):
                        while await reader.read(HEAD_BYTES):
                            pass
        finally:
            self._guests -= 1
            writer.close()


def answer_to(head: bytes) -> bytes:
    """The answer to a request with this first line."""
    method, _, rest = head.partition(b" ")
    body = json.dumps(MESSAGES if rest.startswith(b"/api/") else V0).encode()
    fields = (
        b"HTTP/1.1 503 Service Unavailable",
        b"content-type: application/json",
        b"content-length: %d" % len(body),
        b"retry-after: 1",
        b"connection: close",
    )
    return b"\r\n".join(fields) + b"\r\n\r\n" + (b"" if method == b"HEAD" else body)
