"""Send one signed POST to a checked address. Redirects are not followed, and only the answer's status is read.

Private addresses are refused unless the operator allows them. Signatures follow Standard Webhooks, version 1.
"""

from __future__ import annotations

import asyncio
import base64
import binascii
import contextlib
import functools
import hashlib
import hmac
import ipaddress
import socket
import ssl
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from typing import Final
from urllib.parse import urlsplit

import msgspec

from app.settings import Network

Address = ipaddress.IPv4Address | ipaddress.IPv6Address

TIMEOUT_SECONDS: Final = 15.0  # for a whole request
CONNECT_SECONDS: Final = 5.0  # for one address
MAX_HEAD_BYTES: Final = 32 * 1024  # of an answer
PREFIX: Final = "whsec_"
_NAT64: Final = ipaddress.IPv6Network("64:ff9b::/96")
# Addresses that ipaddress may call public but are not: IPv4-compatible IPv6, local NAT64, former site-local addresses,
# protocol assignments, and 6to4 relays.
_RESERVED: Final = tuple(
    map(ipaddress.ip_network, ("::/96", "64:ff9b:1::/48", "fec0::/10", "192.0.0.0/24", "192.88.99.0/24"))
)
_LOOKUPS: Final = ThreadPoolExecutor(8, "webhook-lookup")  # a name server that hangs blocks no other work


class BlockedError(Exception):
    """Requests to this host are not allowed."""


class AnswerError(Exception):
    """The answer is not HTTP."""


class AllowedTargets(msgspec.Struct, frozen=True):
    """Targets that the operator allows besides public addresses: lower-case host names, and networks."""

    hosts: frozenset[str] = frozenset()
    networks: tuple[Network, ...] = ()

    def covers(self, host: str, address: Address) -> bool:
        """Whether a request to this host may go to this address."""
        inner = embedded_ipv4(address)
        if host.lower() in self.hosts or any(one in net for net in self.networks for one in (address, inner)):
            return True
        return _is_public(address) and _is_public(inner)


def embedded_ipv4(address: Address) -> Address:
    """Return the IPv4 address that an IPv6 address embeds, or the address itself if it embeds none."""
    if isinstance(address, ipaddress.IPv4Address):
        return address
    if address in _NAT64:
        return ipaddress.IPv4Address(int(address) & 0xFFFFFFFF)
    teredo = address.teredo
    return address.ipv4_mapped or address.sixtofour or (teredo[1] if teredo else address)


def _is_public(address: Address) -> bool:
    return address.is_global and not address.is_multicast and not any(address in net for net in _RESERVED)


async def addresses_of(host: str, port: int, allowed: AllowedTargets) -> list[str]:
    """Look up a host's allowed addresses, at least one. Connect to these, as a second look-up could answer others.

    Raises BlockedError, and OSError for an unknown host.
    """
    look_up = functools.partial(socket.getaddrinfo, host, port, type=socket.SOCK_STREAM)
    found = await asyncio.get_running_loop().run_in_executor(_LOOKUPS, look_up)
    addresses = list(dict.fromkeys(str(entry[4][0]) for entry in found))
    fit = [one for one in addresses if allowed.covers(host, ipaddress.ip_address(one))]
    if not fit:
        raise BlockedError(f"{host} is {addresses[0]}, which is not public: HOLDFAST_WEBHOOK_ALLOW can allow it")
    return fit


def signature(secret: str, identity: str, timestamp: int, body: bytes) -> str:
    """Sign `id.timestamp.body`. A secret with the prefix whsec_ is decoded as base64; any other is used as it is."""
    mac = hmac.new(_key_of(secret), b"%b.%d.%b" % (identity.encode(), timestamp, body), hashlib.sha256)
    return "v1," + base64.b64encode(mac.digest()).decode()


def _key_of(secret: str) -> bytes:
    if secret.startswith(PREFIX):
        try:
            return base64.b64decode(secret.removeprefix(PREFIX), validate=True)
        except binascii.Error:
            pass
    return secret.encode()


async def post(url: str, headers: Mapping[str, str], body: bytes, allowed: AllowedTargets) -> int:
    """Send a request. Returns the status of the answer, whose body is not read.

    Raises BlockedError, AnswerError, TimeoutError, ssl.SSLError and OSError.
    """
    parts = urlsplit(url)
    host, secure = parts.hostname or "", parts.scheme == "https"
    port = parts.port or (443 if secure else 80)
    async with asyncio.timeout(TIMEOUT_SECONDS):
        addresses = await addresses_of(host, port, allowed)
        reader, writer = await _connect(addresses, port, host if secure else None)
        try:
            target = (parts.path or "/") + (f"?{parts.query}" if parts.query else "")
            own = {"host": parts.netloc, "content-length": str(len(body)), "connection": "close"}
            return await _send(reader, writer, target, own | dict(headers), body)
        finally:
            writer.transport.abort()


async def _connect(
    addresses: list[str], port: int, server: str | None
) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    """Connect to the first address that answers; with TLS if `server` names one."""
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


async def _send(
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
        with contextlib.suppress(ConnectionError):  # a server may answer before it has read the whole request
            await writer.drain()
        while not isinstance(event := connection.next_event(), h11.Response):
            if event is h11.NEED_DATA:
                connection.receive_data(await reader.read(MAX_HEAD_BYTES))
            elif not isinstance(event, h11.InformationalResponse):
                raise AnswerError("the connection was closed without an answer")
        return event.status_code
    except h11.ProtocolError as error:
        raise AnswerError(str(error)) from None


@functools.cache
def _context() -> ssl.SSLContext:
    return ssl.create_default_context()
