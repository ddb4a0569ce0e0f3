"""How often somebody may try to sign in within a minute: as one name from one address, and from one address in all.
The database counts, for all processes. Tries are never counted by name alone: strangers could lock a user out."""

from __future__ import annotations

import hashlib
import ipaddress
import time
from collections.abc import Callable
from datetime import timedelta
from typing import TYPE_CHECKING, ClassVar, Final

from app.base.db import sql
from app.errors import Throttled

if TYPE_CHECKING:
    from app.base.db.pool import Pool
    from app.kernel.model import Connection

_SQL: Final = sql.load_all(__package__)
_COUNT = _SQL["count_tries"]
_UNCOUNT = _SQL["uncount_tries"]
_SWEEP = _SQL["sweep_tries"]

MOST: Final = 10  # of one name from one address; of keys, which have none, from one address
MOST_OF_ADDRESS: Final = 50  # whatever the names: an office behind one address is let in, a list of names is not
SECONDS: Final = 60
AGAIN_SECONDS: Final = 1  # that a process remembers of an address that has no more: good tries are taken back meanwhile
MOST_KEPT: Final = 100_000  # names and addresses in the database
MOST_REFUSED: Final = 10_000  # that a process remembers; beyond, it asks the database about the oldest again


class TooManyTries(Throttled):
    """Somebody has tried too often to sign in."""

    retry_after: ClassVar[int] = SECONDS


class Limiter:
    """Tries of the SECONDS that begin with the first of them. What a name has used up at one address, it still has at
    another: nobody is locked out by a stranger elsewhere."""

    def __init__(self, pool: Pool, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._pool = pool
        self._clock = clock
        self._refused: dict[bytes, float] = {}  # until when; a flood costs the database nothing

    async def take(self, name: str, address: str) -> None:
        """Count a try, before it is known how it ends, and alike for names that there are and those that there are not.
        Raises TooManyTries, Unavailable."""
        keys, now = _keys(name, address), self._clock()
        for key, most in zip(keys, (MOST, MOST_OF_ADDRESS), strict=True):
            if now < self._refused.get(key, 0):
                _refuse(most)
        found = await self._pool.fetch(_COUNT, *keys, timedelta(seconds=SECONDS), MOST)
        rows = {row["who"]: row for row in found}
        for key, most, longest in zip(keys, (MOST, MOST_OF_ADDRESS), (SECONDS, AGAIN_SECONDS), strict=True):
            if key in rows and rows[key]["tries"] > most:
                self._refused.pop(key, None)
                self._refused[key] = now + min(rows[key]["left_s"], longest)
                if len(self._refused) > MOST_REFUSED:
                    del self._refused[next(iter(self._refused))]
                _refuse(most)

    async def succeeded(self, name: str, address: str) -> None:
        """The try that was counted was a good one: the name begins anew at this address, whose other tries stay."""
        await self._pool.execute(_UNCOUNT, _keys(name, address), True)

    async def give_back(self, name: str, address: str) -> None:
        """The try that was counted was none: nothing was found out by it."""
        await self._pool.execute(_UNCOUNT, _keys(name, address), False)


async def sweep(db: Connection, limit: int) -> int:
    """Forget up to `limit` names and addresses whose time is over, and those above MOST_KEPT: how many."""
    count: int = await db.fetchval(_SWEEP, MOST_KEPT, limit)
    return count


def _refuse(most: int) -> None:
    raise TooManyTries(f"At most {most} tries to sign in within {SECONDS} s.", {"limit": "sign_in_tries", "max": most})


def _keys(name: str, address: str) -> list[bytes]:
    """A name at an address, and the address, as digests: what is typed for a name may be long, or a password."""
    who = _who(address).encode()
    return [hashlib.sha256(part).digest() for part in (b"name\0%b\0%b" % (who, name.encode()), b"address\0%b" % who)]


def _who(address: str) -> str:
    """An address; of IPv6 its network of 64 bits, all of which are one customer's."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        mapped = parsed.ipv4_mapped
        return str(mapped) if mapped else str(ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))
    return address
