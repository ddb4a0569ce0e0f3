"""The socket that the service listens on, and whether somebody answers there."""

from __future__ import annotations

import asyncio
import errno
import ipaddress
import resource
import socket
from contextlib import suppress

from app.errors import ConfigurationError

BACKLOG = 2048


class AddressTaken(Exception):
    """Another process listens there."""


def bind(host: str, port: int) -> socket.socket:
    """The listening socket. Raises Taken, or ConfigurationError for an address that this machine doesn't have."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        family, kind, proto, _, address = found[0]
        listener = socket.socket(family, kind, proto)
    except OSError as error:
        raise ConfigurationError(f"HOLDFAST_HOST={host} is not an address to listen on: {error.strerror}") from None
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(BACKLOG)
    except OSError as error:
        listener.close()
        if error.errno == errno.EADDRINUSE:
            text = f"Port {port} on {host} is taken: set HOLDFAST_PORT, or stop what listens there."
            raise AddressTaken(text) from None
        raise ConfigurationError(f"Can't listen on {host} port {port}: {error.strerror}") from None
    return listener


def allow_files(count: int) -> int:
    """Let this process, and those it starts, open so many files if the system permits it. Returns how many they may.

    Systems permit 1,024 at first, and more to a process that asks. What connects beyond that is cut off without a word.
    """
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = count if hard == resource.RLIM_INFINITY else min(count, hard)
    if soft != resource.RLIM_INFINITY and soft < wanted:
        with suppress(OSError, ValueError):  # macOS names no limit, and has one
            resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))
    soft = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return count if soft == resource.RLIM_INFINITY else soft


def nearest(bound: socket.socket) -> tuple[str, int]:
    """Address and port under which this machine reaches the socket."""
    host, port = bound.getsockname()[:2]
    if ipaddress.ip_address(host).is_unspecified:
        host = "::1" if ":" in host else "127.0.0.1"
    return host, port


async def status(host: str, port: int, target: str) -> int | None:
    """The status of one GET; None for no answer. While no server process runs it waits in the socket's backlog."""
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
