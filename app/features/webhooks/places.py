"""How much is sent at once, and to whom: a slow receiver holds up nobody but itself."""

from __future__ import annotations

from collections import Counter
from typing import Final

AT_ONCE: Final = 32  # requests of one process
SLOW_AT_ONCE: Final = 4  # of them, to a slow destination
SLOW_SECONDS: Final = 2.0
MOST_SLOW: Final = 10_000


class Places:
    """Places for requests under way. A destination is slow if its last request took SLOW_SECONDS or longer."""

    def __init__(self) -> None:
        self._taken: Counter[str] = Counter()
        self._slow: dict[str, None] = {}  # in the order in which they were found to be

    @property
    def free(self) -> int:
        """How many there are."""
        return AT_ONCE - self._taken.total()

    def take(self, destination: str) -> bool:
        """Take a place, unless those of a slow destination are taken."""
        if destination in self._slow and self._taken[destination] >= SLOW_AT_ONCE:
            return False
        self._taken[destination] += 1
        return True

    def leave(self, destination: str, seconds: float) -> None:
        """Give a place back, after a request that took so long."""
        self._taken[destination] -= 1
        if not self._taken[destination]:
            del self._taken[destination]
        self._slow.pop(destination, None)
        if seconds >= SLOW_SECONDS:
            self._slow[destination] = None
            if len(self._slow) > MOST_SLOW:
                del self._slow[next(iter(self._slow))]
