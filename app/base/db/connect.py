"""Connects to PostgreSQL. A URL may have several hosts.

asyncpg tries hosts one after another within one timeout. A host that does not answer would use up all of it each time,
and the others would never be tried.
"""

from __future__ import annotations

import asyncio
import os
import re
import socket
import ssl
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

import asyncpg

from app.errors import ConfigurationError

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

# Errors after which another host is tried. A wrong password, for example, is wrong everywhere.
ELSEWHERE: Final = (OSError, asyncpg.CannotConnectNowError, asyncpg.TargetServerAttributeNotMatched)

PASSING: Final = (
    OSError,  # includes unknown names, such as of a container that has not started
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InternalClientError,  # a server killed in mid-answer can surface as a protocol state error
)
CONNECT_SECONDS: Final = 10.0

# Connections to a dead machine don't end by themselves. Unacknowledged data ends one after UNHEARD_SECONDS. Keepalives
# start after IDLE_SECONDS and repeat every EVERY_SECONDS. The system's defaults are a quarter of an hour, and never.
UNHEARD_SECONDS: Final = 10
IDLE_SECONDS: Final = 5
EVERY_SECONDS: Final = 2


class Away(ConfigurationError):
    """The database is unavailable, for a reason that may be temporary."""


class Hosts:
    """The hosts of one URL. The last one that answered is tried first."""

    def __init__(self, url: str) -> None:
        self._urls = apart(url)
        self._first = 0

    async def connect(self, _url: str = "", *, timeout: float, **options: Any) -> Connection:  # noqa: ASYNC109  (asyncpg's)
        """Like asyncpg.connect, with an equal part of `timeout` seconds for each host. Raises the last host's error.

        `_url` is ignored; pools pass it."""
        number = len(self._urls)
        for turn in range(number):
            place = (self._first + turn) % number
            try:
                connection: Connection = await asyncpg.connect(self._urls[place], timeout=timeout / number, **options)
            except ELSEWHERE:
                if turn == number - 1:
                    raise
            else:
                self._first = place
                _bound(connection)
                return connection
        raise AssertionError(number)


async def connect(url: str, patience: float) -> Connection:
    """Connect at the start of the service. Waits up to `patience` seconds for a server that is starting up.

    Raises ConfigurationError, or Away for a temporary reason. The message has host, port and reason, never the
    password."""
    end = asyncio.get_running_loop().time() + patience
    connection = None
    while connection is None:
        try:
            connection = await Hosts(url).connect(
                timeout=CONNECT_SECONDS, statement_cache_size=0, server_settings={"synchronous_commit": "on"}
            )
        except asyncpg.CannotConnectNowError as error:
            # It is starting up or replaying its log.
            if asyncio.get_running_loop().time() >= end:
                raise Away(f"The database at {place_of(url)} is not ready: {reason_of(error)}") from None
            await asyncio.sleep(0.1)
        except asyncpg.TargetServerAttributeNotMatched:
            raise Away(f"None of the servers at {place_of(url)} matches target_session_attrs") from None
        except (
            OSError,
            ValueError,
            asyncpg.PostgresError,
            asyncpg.InterfaceError,
            asyncpg.InternalClientError,
        ) as error:
            passing = isinstance(error, PASSING) and not isinstance(error, ssl.SSLError)
            kind = Away if passing else ConfigurationError
            raise kind(f"The database at {place_of(url)} can't be reached: {reason_of(error)}") from None
    return connection


def place_of(url: str) -> str:
    """Hosts and ports of a URL, for messages."""
    hosts = urlsplit(url).netloc.rpartition("@")[2].split(",")
    return ", ".join(host if re.search(r":\d+\Z", host) else f"{host or 'localhost'}:5432" for host in hosts)


def reason_of(error: BaseException) -> str:
    """An error's message as one line."""
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECT_SECONDS:.0f} s"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno) if error.errno > 0 else str(error.strerror)
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _bound(connection: Connection) -> None:
    """Set timeouts on the connection's socket. asyncpg has no arguments for them."""
    transport = getattr(connection, "_transport", None)
    link = None if transport is None else transport.get_extra_info("socket")
    if link is None or link.family not in {socket.AF_INET, socket.AF_INET6}:
        return
    link.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    for name, value in (
        ("TCP_KEEPIDLE", IDLE_SECONDS),
        ("TCP_KEEPINTVL", EVERY_SECONDS),
        ("TCP_KEEPCNT", (UNHEARD_SECONDS - IDLE_SECONDS) // EVERY_SECONDS + 1),
        ("TCP_USER_TIMEOUT", UNHEARD_SECONDS * 1000),
    ):
        if hasattr(socket, name):  # depends on the system
            link.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def apart(url: str) -> list[str]:
    """Split a URL with several hosts into one URL for each host."""
    parts = urlsplit(url)
    login, at, hosts = parts.netloc.rpartition("@")
    if "," not in hosts:
        return [url]
    return [urlunsplit(parts._replace(netloc=f"{login}{at}{host}")) for host in hosts.split(",")]
