"""An HTTP server that is told of jobs: it keeps what comes, and answers as it is set."""

from __future__ import annotations

import asyncio
import base64
import hashlib
import hmac
import json
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import Any

OK = b"HTTP/1.1 204 No Content\r\n\r\n"
SECRET = "a secret of the tests that has some length"


@dataclass(frozen=True, slots=True)
class Request:
    """What came. `path` is its target."""

    path: str
    headers: dict[str, str]
    content: bytes

    @property
    def body(self) -> dict[str, Any]:
        told: dict[str, Any] = json.loads(self.content)
        return told

    def is_signed_with(self, key: bytes) -> bool:
        """Verified as docs/webhooks.md says."""
        identity, at = self.headers["webhook-id"], self.headers["webhook-timestamp"]
        mac = hmac.new(key, f"{identity}.{at}.".encode() + self.content, hashlib.sha256)
        return self.headers["webhook-signature"] == "v1," + base64.b64encode(mac.digest()).decode()


class Receiver:
    """Listens on a port of 127.0.0.1, which it keeps while it is down."""

    def __init__(self) -> None:
        self.requests: list[Request] = []
        self.answers: list[bytes] = []  # to the next ones; then OK
        self.hold = False  # never to answer
        self.port = 0
        self._server: asyncio.Server | None = None
        self._came = asyncio.Condition()
        self._open: set[asyncio.StreamWriter] = set()

    async def up(self, certificate: Path | None = None, key: Path | None = None) -> None:
        """Listen; with a certificate, over TLS."""
        context = None
        if certificate is not None:
            context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
            context.load_cert_chain(certificate, key)
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", self.port, ssl=context)
        self.port = self._server.sockets[0].getsockname()[1]

    async def down(self) -> None:
        assert self._server is not None
        self._server.close()
        for writer in self._open:
            writer.transport.abort()
        await self._server.wait_closed()

    def url(self, path: str = "/hook", host: str = "127.0.0.1") -> str:
        return f"http://{host}:{self.port}{path}"

    async def get(self, count: int = 1) -> list[Request]:
        """The first so many, once they are there."""
        async with asyncio.timeout(30), self._came:
            await self._came.wait_for(lambda: len(self.requests) >= count)
        return self.requests[:count]

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._open.add(writer)
        try:
            head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
            fields = (line.split(": ", 1) for line in head[1:] if line)
            headers = {name.lower(): value for name, value in fields}
            content = await reader.readexactly(int(headers["content-length"]))
            async with self._came:
                self.requests.append(Request(head[0].split()[1], headers, content))
                self._came.notify_all()
            if self.hold:
                await reader.read()
            writer.write(self.answers.pop(0) if self.answers else OK)
            await writer.drain()
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._open.discard(writer)
            writer.close()
