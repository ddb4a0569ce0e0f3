"""Connecting to PostgreSQL, also where a URL names several hosts of which one may not answer at all.

asyncpg tries them one after the other within one timeout: a host whose machine is gone takes all of it, each time, and
the one that is left is never asked.
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

# What one host may say and another not. A wrong password is wrong everywhere.
ELSEWHERE: Final = (OSError, asyncpg.CannotConnectNowError, asyncpg.TargetServerAttributeNotMatched)

PASSING: Final = (
    OSError,  # also a name that nobody knows yet, as of a container that has not been started
    asyncpg.PostgresConnectionError,
    asyncpg.CannotConnectNowError,
    asyncpg.AdminShutdownError,
    asyncpg.CrashShutdownError,
    asyncpg.TooManyConnectionsError,
    asyncpg.InternalClientError,  # a server killed in mid-answer can surface as a protocol state error
)
CONNECT_SECONDS: Final = 10.0

# A machine that is gone ends no connection. What is sent to it is given up after so many seconds without a word that it
# came; who waits for an answer asks whether it is there after IDLE, and every EVERY then. The system's own bounds are a
# quarter of an hour, and for ever.
UNHEARD_SECONDS: Final = 10
IDLE_SECONDS: Final = 5
EVERY_SECONDS: Final = 2


class Away(ConfigurationError):
    """The database can't be asked now, for a reason that may pass by itself."""


class Hosts:
    """The hosts of one URL. The one that answered is asked first the next time."""

    def __init__(self, url: str) -> None:
        self._urls = apart(url)
        self._first = 0

    async def connect(self, _url: str = "", *, timeout: float, **options: Any) -> Connection:  # noqa: ASYNC109  (asyncpg's)
        """As asyncpg.connect, with an equal part of `timeout` seconds for each host; of several refusals the last one.

        `_url` is what a pool calls it with, which is known."""
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
    """A connection for the start of the service; a server that is starting up is asked for `patience` seconds.

    Raises ConfigurationError, of which Away may pass by itself, with host, port and reason, and never the password.
    """
    end = asyncio.get_running_loop().time() + patience
    connection = None
    while connection is None:
        try:
            connection = await Hosts(url).connect(
                timeout=CONNECT_SECONDS, statement_cache_size=0, server_settings={"synchronous_commit": "on"}
            )
        except asyncpg.CannotConnectNowError as error:
            # It is starting up or replays its log; that ends by itself.
            if asyncio.get_running_loop().time() >= end:
                raise Away(f"The database at {place_of(url)} is not ready: {reason_of(error)}") from None
            await asyncio.sleep(0.1)
        except asyncpg.TargetServerAttributeNotMatched:
            raise Away(f"None of the servers at {place_of(url)} is what target_session_attrs asks for") from None
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
    """An error's message, in one line."""
    if isinstance(error, TimeoutError):
        return f"no answer within {CONNECT_SECONDS:.0f} s"
    if isinstance(error, OSError) and error.errno is not None:
        return os.strerror(error.errno) if error.errno > 0 else str(error.strerror)
    return str(error).splitlines()[0] if str(error) else type(error).__name__


def _bound(connection: Connection) -> None:
    """asyncpg has no argument for options of its socket."""
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
        if hasattr(socket, name):  # not each system has all of them
            link.setsockopt(socket.IPPROTO_TCP, getattr(socket, name), value)


def apart(url: str) -> list[str]:
    """A URL for each host of one that names several by commas; the rest of it in each."""
    parts = urlsplit(url)
    login, at, hosts = parts.netloc.rpartition("@")
    if "," not in hosts:
        return [url]
    return [urlunsplit(parts._replace(netloc=f"{login}{at}{host}")) for host in hosts.split(",")]
