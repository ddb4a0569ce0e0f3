"""One POST: to an address that was checked, no redirect followed, and of the answer only its status."""

from __future__ import annotations

import asyncio
import contextlib
import ssl
from collections.abc import Mapping
from functools import cache
from typing import Final
from urllib.parse import urlsplit

from app.features.webhooks.targets import Allowed, addresses_of

TIMEOUT_SECONDS: Final = 15.0  # for all of it
CONNECT_SECONDS: Final = 5.0  # to one address
MAX_HEAD_BYTES: Final = 32 * 1024  # of an answer


class AnswerError(Exception):
    """What came back is no answer to an HTTP request."""


async def post(url: str, headers: Mapping[str, str], body: bytes, allowed: Allowed) -> int:
    """Send a request; the status of its answer, whose body is not read.

    Raises BlockedError, AnswerError, TimeoutError, ssl.SSLError and OSError.
    """
    parts = urlsplit(url)
    host, secure = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        addresses = await addresses_of(host, port, allowed)
        reader, writer = await _connected(addresses, port, host if secure else None)
        try:
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            own = {"host": parts.netloc, "content-length": str(len(body)), "connection": "close"}
            return await _asked(reader, writer, target, own | dict(headers), body)
        finally:
            writer.transport.abort()


async def _connected(
    addresses: list[str], port: int, server: str | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """The first of these that answers; with TLS for the name `server`, if one is given."""
    for last, address in ((one is addresses[-1], one) for one in addresses):
        try:
            async with asyncio.timeout(CONNECT_SECONDS):
                if server is None:
                    return await asyncio.open_connection(address, port)
                return await asyncio.open_connection(address, port, ssl=_context(), server_hostname=server)
        except OSError:
            if last:
                raise
    raise AssertionError("there is one address at least")


async def _asked(
    reader: asyncio.StreamReader,
    writer: asyncio.StreamWriter,
    target: str,
    headers: Mapping[str, str],
    body: bytes,
) -> int:
    import h11  # noqa: PLC0415  (start time)

    connection = h11.Connection(h11.CLIENT, max_incomplete_event_size=MAX_HEAD_BYTES)
    try:
        request = h11.Request(method="POST", target=target, headers=list(headers.items()))
        for part in (request, h11.Data(data=body), h11.EndOfMessage()):
            writer.write(connection.send(part) or b"")
        with contextlib.suppress(ConnectionError):  # who answers before it has read all may have said why
            await writer.drain()
        while not isinstance(event := connection.next_event(), h11.Response):
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(MAX_HEAD_BYTES))
            elif not isinstance(event, h11.InformationalResponse):
                raise AnswerError("it hung up without an answer")
        return event.status_code
    except h11.ProtocolError as error:
        raise AnswerError(str(error)) from None


@cache
def _context() -> ssl.SSLContext:
    return ssl.create_default_context()
