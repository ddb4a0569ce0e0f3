"""Connecting where a URL names several hosts, one of which may say nothing at all.

asyncpg tries them one after the other within one timeout: a host whose machine is gone takes all of it, each time, and
the one that is left is never asked.
"""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

import asyncpg

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

# What one host may say and another not. A wrong password is wrong everywhere.
ELSEWHERE: Final = (OSError, asyncpg.CannotConnectNowError, asyncpg.TargetServerAttributeNotMatched)

# A machine that is gone ends no connection. What is sent to it is given up after so many seconds without a word that it
# came; who waits for an answer asks whether it is there after IDLE, and every EVERY then. The system's own bounds are a
# quarter of an hour, and for ever.
UNHEARD_SECONDS: Final = 10
IDLE_SECONDS: Final = 5
EVERY_SECONDS: Final = 2


class Hosts:
    """Those of one URL. Who was the right one is asked first the next time."""

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
