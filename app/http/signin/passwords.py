"""Passwords: what one must be, and bcrypt, which takes a quarter of a second by intention and so runs in threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final, TypeVar

import bcrypt

from app.errors import InvalidRequest, Unavailable

T = TypeVar("T")

LEAST_CHARACTERS: Final = 12
MOST_BYTES: Final = 72  # what bcrypt looks at; it would take longer ones for equal that begin alike
COST: Final = 12
AT_ONCE: Final = 2
MOST_WAITING: Final = 100
_FIELD: Final = {"field": "password"}


class Passwords:
    """Makes and checks hashes, AT_ONCE of them at a time in a process, off the event loop."""

    def __init__(self, cost: int = COST) -> None:
        """`cost`: the binary logarithm of bcrypt's rounds, for new hashes."""
        self._cost = cost
        # Well formed, and of no password: checked in place of a user's that there is not, which takes as long.
        self._nobody = f"$2b${cost:02}${'.' * 53}"
        self._room = asyncio.Semaphore(AT_ONCE)
        self._waiting = 0

    async def hash(self, password: str) -> str:
        """The password's hash, with a salt of its own. Raises InvalidRequest, Unavailable."""
        given = check(password)
        return (await self._in_turn(lambda: bcrypt.hashpw(given, bcrypt.gensalt(self._cost)))).decode()

    async def matches(self, kept: str | None, password: str) -> bool:
        """Whether it is the password of the hash `kept`; None, for a user that there is not, takes as long.

        Raises Unavailable.
        """
        given = password.encode()
        fits = len(given) <= MOST_BYTES
        against = (self._nobody if kept is None else kept).encode()
        matched = await self._in_turn(lambda: bcrypt.checkpw(given[:MOST_BYTES], against))
        return matched and fits and kept is not None

    async def _in_turn(self, work: Callable[[], T]) -> T:
        if self._waiting >= MOST_WAITING:
            raise Unavailable(
                "Too many passwords are to be checked at the moment.", {"limit": "passwords", "max": MOST_WAITING}
            )
        self._waiting += 1
        try:
            async with self._room:
                return await asyncio.to_thread(work)
        finally:
            self._waiting -= 1


def check(password: str) -> bytes:
    """The password's bytes, if it can be one. Raises InvalidRequest."""
    given = password.encode()
    if len(password) < LEAST_CHARACTERS:
        raise InvalidRequest(f"A password has at least {LEAST_CHARACTERS} characters.", _FIELD)
    if len(given) > MOST_BYTES:
        raise InvalidRequest(f"A password has at most {MOST_BYTES} bytes of UTF-8; this one has {len(given)}.", _FIELD)
    if "\0" in password:
        raise InvalidRequest("A password has no NUL character (U+0000).", _FIELD)
    return given
