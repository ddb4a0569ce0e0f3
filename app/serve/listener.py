"""The listening socket: binds it, checks whether a worker answers, and answers 503 until one does."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import json
import resource
import socket
from contextlib import suppress
from typing import Final

from app.errors import ConfigurationError, Unavailable

BACKLOG = 2048
MOST_WAITING: Final = 256  # concurrent connections; others are closed without an answer
HEAD_BYTES: Final = 16 * 1024
REQUEST_SECONDS: Final = 5.0  # for a request to arrive
LINGER_SECONDS: Final = 1.0  # how long to read what a client still sends: a reset could destroy the answer

WAITING: Final = "The service is waiting for its database. Try again."
# app.errors.Unavailable in each dialect's format. Written by hand, because only the workers load the web framework.
_DOCS: Final = Unavailable(WAITING).docs
_V0_BODY: Final = {"error": {"code": "not_ready", "message": WAITING, "docs": _DOCS}}
_MESSAGES_BODY: Final = {"error": WAITING, "code": "not_ready", "docs": _DOCS}


class AddressTaken(Exception):
    """Another process listens on this address."""


def bind(host: str, port: int) -> socket.socket:
    """Open the listening socket. Raises AddressTaken, and ConfigurationError for an address of another machine."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, proto, _, address = found[0]
        listener = socket.socket(family, kind, proto)
    except OSError as error:
        raise ConfigurationError(f"Can't listen on HOLDFAST_HOST={host}: {error.strerror}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            text = f"Port {port} on {host} is already in use. Set HOLDFAST_PORT, or stop the process that uses it."
            raise AddressTaken(text) from None
        raise ConfigurationError(f"Can't listen on {host} port {port}: {error.strerror}") from None
    return listener


def allow_files(count: int) -> int:
    """Raise the limit of open files to `count`, for this process and its children. Returns the resulting limit.

    The default is 1,024 on most systems. Connections beyond the limit are closed without an answer.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # macOS reports no limit but has one
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return count if soft == resource.RLIM_INFINITY else soft


def nearest(bound: socket.socket) -> tuple[str, int]:
    """Address and port at which this machine reaches the socket."""
    host, port = bound.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = "::1" if ":" in host else "127.0.0.1"
    return host, port


async def status(host: str, port: int, target: str) -> int | None:
    """The status of a GET; None without an answer. While no worker runs, it waits in the socket's backlog."""
    try:
        reader, writer = await asyncio.open_connection(host, port)
        try:
            writer.write(f"GET {target} HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n".encode())
            words = (await reader.readline()).split()
            return int(words[1]) if len(words) > 1 and words[0] == b"HTTP/1.1" and words[1].isdigit() else None
        finally:
            writer.close()
    except OSError:
        return None


class WaitingRoom:
    """Answers 503 on a listening socket, which the caller closes, from `open` to `close`. Used while the service waits
    for its database and the workers can't answer yet."""

    def __init__(self, bound: socket.socket) -> None:
        self._bound = bound
        self._server: asyncio.Server | None = None
        self._guests = 0

    async def open(self) -> None:
        # A copy, because the server closes its socket.
        own = self._bound.dup()
        self._server = await asyncio.start_server(self._answer, sock=own, limit=HEAD_BYTES, backlog=BACKLOG)

    def close(self) -> None:
        """Accept no more connections. Existing ones are still answered."""
        if self._server is not None:
            self._server.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._guests += 1
        try:
            if self._guests <= MOST_WAITING:
                with suppress(OSError, EOFError, asyncio.LimitOverrunError, TimeoutError):
                    async with asyncio.timeout(REQUEST_SECONDS):
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
    """The 503 for a request with this header."""
    method, _, rest = head.partition(b" ")
    body = json.dumps(_MESSAGES_BODY if rest.startswith(b"/api/") else _V0_BODY).encode()
    fields = (
        b"HTTP/1.1 503 Service Unavailable",
        b"content-type: application/json",
        b"content-length: %d" % len(body),
        b"retry-after: 1",
        b"connection: close",
    )
    return b"\r\n".join(fields) + b"\r\n\r\n" + (b"" if method == b"HEAD" else body)
