"""How often somebody may try to sign in: so often within a minute for each address."""

from __future__ import annotations

import ipaddress
import time
from collections import deque
from collections.abc import Callable
from typing import ClassVar, Final

from app.errors import Throttled

MOST: Final = 10
SECONDS: Final = 60
MOST_ADDRESSES: Final = 10_000  # that are kept; beyond, who tried longest ago is forgotten


class TooManyTries(Throttled):
    """Somebody has tried too often to sign in."""

    retry_after: ClassVar[int] = SECONDS


class Limiter:
    """Tries by address, within the last SECONDS. A process counts for itself."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._tries: dict[str, deque[float]] = {}  # who tried last stands last

    def take(self, address: str) -> None:
        """Count a try, before it is known how it ends. Raises TooManyTries."""
        who, now = _who(address), self._clock()
        tries = self._tries.pop(who, None) or deque(maxlen=MOST)
        while tries and tries[0] <= now - SECONDS:
            tries.popleft()
        full = len(tries) == MOST
        if not full:
            tries.append(now)
        self._tries[who] = tries
        if len(self._tries) > MOST_ADDRESSES:
            del self._tries[next(iter(self._tries))]
        if full:
            raise TooManyTries(
                f"At most {MOST} tries to sign in within {SECONDS} s.", {"limit": "sign_in_tries", "max": MOST}
            )

    def give_back(self, address: str) -> None:
        """It was none that counts."""
        tries = self._tries.get(_who(address))
        if tries:
            tries.pop()


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
