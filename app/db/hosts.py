"""Connecting where a URL names several hosts, one of which may say nothing at all.

asyncpg tries them one after the other within one timeout: a host whose machine is gone takes all of it, each time, and
the one that is left is never asked.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit, urlunsplit

import asyncpg

if TYPE_CHECKING:
    Connection = asyncpg.Connection[asyncpg.Record]

# What one host may say and another not. A wrong password is wrong everywhere.
ELSEWHERE: Final = (OSError, asyncpg.CannotConnectNowError, asyncpg.TargetServerAttributeNotMatched)


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
                return connection
        raise AssertionError(number)


def apart(url: str) -> list[str]:
    """A URL for each host of one that names several by commas; the rest of it in each."""
    parts = urlsplit(url)
    login, at, hosts = parts.netloc.rpartition("@")
    return [urlunsplit(parts._replace(netloc=f"{login}{at}{host}")) for host in hosts.split(",")]
