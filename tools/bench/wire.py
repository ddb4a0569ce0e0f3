"""Counts the statements that are sent to a PostgreSQL, on their way there: what its sessions send, and nothing else."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from typing import Final
from urllib.parse import urlsplit, urlunsplit

from app.base.db import sql

SECRECY: Final = (80877103, 80877104)  # what asks for TLS, and for GSSAPI
NO: Final = b"N"


class Wire:
    """Statements by their files' names, or as they begin; BEGIN and COMMIT are statements too."""

    def __init__(self, host: str, port: int) -> None:
        self.sent: Counter[str] = Counter()
        self._server = host, port

    async def carry(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """One connection, until either side ends it."""
        try:
            to_reader, to_writer = await asyncio.open_connection(*self._server)
            try:
                back = asyncio.create_task(_pour(to_reader, writer))
                with suppress(asyncio.IncompleteReadError, OSError):
                    await self._read(reader, writer, to_writer)
                back.cancel()
            finally:
                to_writer.close()
        finally:
            writer.close()

    async def _read(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, to: asyncio.StreamWriter) -> None:
        first = await _message(reader)
        while int.from_bytes(first[4:8]) in SECRECY:
            writer.write(NO)
            first = await _message(reader)
        to.write(first)
        prepared: dict[bytes, bytes] = {}
        portals: dict[bytes, bytes] = {}
        while True:
            kind, message = await reader.readexactly(1), await _message(reader)
            to.write(kind + message)
            if kind not in b"QPBE":
                continue
            name, _, rest = message[4:].partition(b"\0")
            if kind == b"P":
                prepared[name] = rest.partition(b"\0")[0]
            elif kind == b"B":
                portals[name] = prepared.get(rest.partition(b"\0")[0], b"")
            else:
                self.sent[_called(name if kind == b"Q" else portals.get(name, b""))] += 1


@asynccontextmanager
async def counted(url: str) -> AsyncIterator[tuple[str, Wire]]:
    """A URL that leads to the same database, without TLS, and what is sent that way."""
    parts = urlsplit(url)
    wire = Wire(parts.hostname or "127.0.0.1", parts.port or 5432)
    server = await asyncio.start_server(wire.carry, "127.0.0.1", 0)
    port = server.sockets[0].getsockname()[1]
    login = parts.netloc.rpartition("@")[0]
    try:
        yield urlunsplit(parts._replace(netloc=f"{login}@127.0.0.1:{port}")), wire
    finally:
        server.close()


async def _message(reader: asyncio.StreamReader) -> bytes:
    """The next one, its length before it."""
    length = await reader.readexactly(4)
    return length + await reader.readexactly(int.from_bytes(length) - 4)


async def _pour(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while piece := await reader.read(65_536):
            writer.write(piece)
            await writer.drain()
    writer.close()


def _called(query: bytes) -> str:
    text = query.decode()
    name = sql.name_of(text)
    return " ".join(text.split())[:40] if name == "other" else name
