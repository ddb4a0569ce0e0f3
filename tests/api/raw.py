"""A client that says exactly what a test wants, as slowly as it wants, over a socket of its own."""

from __future__ import annotations

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

import psutil  # type: ignore[import-untyped]

if TYPE_CHECKING:
    from tests.api.dialect import Body

PATIENCE = 30.0


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer as it came; names of headers in small letters."""

    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def error(self) -> Body:
        """The error of the envelope, which it must be in."""
        assert self.headers["content-type"] == "application/json"
        error: Body = json.loads(self.body)["error"]
        assert isinstance(error["message"], str)
        return error

    def limit(self) -> tuple[int, str, object]:
        """Status, code and detail: what a refusal by a limit is told by."""
        error = self.error
        return self.status, error["code"], error.get("detail")


class Raw:
    """One connection."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer
        self.port: int = writer.get_extra_info("sockname")[1]

    async def send(self, *pieces: bytes) -> None:
        """Each as a segment of its own, probably. The server may have closed by then: what it said is still to read."""
        with contextlib.suppress(ConnectionError):
            for piece in pieces:
                self.writer.write(piece)
                await self.writer.drain()

    async def drip(self, text: bytes, seconds: float) -> None:
        """A byte, a pause, a byte, until it is all said or the other side is heard of."""
        for place in range(len(text)):
            await self.send(text[place : place + 1])
            await asyncio.sleep(seconds)
            if self.reader.at_eof() or self.reader._buffer:  # type: ignore[attr-defined]
                return

    async def answer(self) -> Answer:
        """The next answer."""
        async with asyncio.timeout(PATIENCE):
            head = (await self.reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            headers = {name.lower(): value.strip() for name, _, value in (line.partition(":") for line in head[1:])}
            length = int(headers.get("content-length", 0))
            return Answer(int(head[0].split()[1]), headers, await self.reader.readexactly(length))

    async def ask(self, *pieces: bytes) -> Answer:
        await self.send(*pieces)
        return await self.answer()

    async def closed(self) -> bytes:
        """What still comes before the server closes the connection, in order or not."""
        with contextlib.suppress(ConnectionError):
            async with asyncio.timeout(PATIENCE):
                return await self.reader.read()
        return b""


@contextlib.asynccontextmanager
async def raw(url: str, *, receive_bytes: int = 0) -> AsyncIterator[Raw]:
    """A connection. `receive_bytes`: of the kernel's buffer, where a reader is to be slow."""
    parts = urlsplit(url)
    sock = socket.socket()
    if receive_bytes:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
    sock.setblocking(False)
    await asyncio.get_running_loop().sock_connect(sock, (parts.hostname, parts.port))
    reader, writer = await asyncio.open_connection(sock=sock, limit=receive_bytes or 2**16)
    try:
        yield Raw(reader, writer)
    finally:
        writer.close()


def get(path: str = "/healthz", *headers: str, key: str = "") -> bytes:
    return _head("GET", path, headers, key) + b"\r\n"


def post(path: str, body: bytes, *, key: str = "", declared: int | None = None) -> bytes:
    """`declared`: a length that is not the body's."""
    length = len(body) if declared is None else declared
    headers = ("content-type: application/json", f"content-length: {length}")
    return _head("POST", path, headers, key) + b"\r\n" + body


def chunked(path: str, *, key: str = "", method: str = "POST") -> bytes:
    """The head of a request whose body comes in chunks."""
    return _head(method, path, ("content-type: application/json", "transfer-encoding: chunked"), key) + b"\r\n"


def chunk(body: bytes) -> bytes:
    return b"%x\r\n%b\r\n" % (len(body), body)


def _head(method: str, path: str, headers: tuple[str, ...], key: str) -> bytes:
    lines = [
        f"{method} {path} HTTP/1.1",
        "host: localhost",
        *headers,
        *([f"authorization: Bearer {key}"] if key else []),
    ]
    return "".join(f"{line}\r\n" for line in lines).encode()


def connected(pid: int) -> set[int]:
    """The ports of the clients whose connections a process holds."""
    found = psutil.Process(pid).net_connections(kind="tcp")
    return {one.raddr.port for one in found if one.raddr and one.status != psutil.CONN_LISTEN}


async def eventually_true(fact: Callable[[], bool], seconds: float = PATIENCE) -> None:
    async with asyncio.timeout(seconds):
        while not fact():
            await asyncio.sleep(0.02)
