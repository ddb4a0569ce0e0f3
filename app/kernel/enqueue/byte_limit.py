"""The quota of bytes that all topics together may hold."""

from __future__ import annotations

from typing import Final

from app.base.db.pool import Pools
from app.base.fresh import Fresh
from app.errors import Throttled
from app.kernel.counts import inspector

FRESH_SECONDS: Final = 1.0


class Room:
    """What is held is counted at most every FRESH_SECONDS, and only while something is written; in between, what this
    process lets in is added. What other processes write meanwhile may go above the quota."""

    def __init__(self, pools: Pools, most: int) -> None:
        self.most = most  # bytes; 0: no quota, and nothing to ask
        self._pools = pools
        self._held = 0
        self._fresh: Fresh[None, None] = Fresh(FRESH_SECONDS)

    async def take(self, size: int) -> None:
        """Let so many bytes in. Raises Throttled, and asyncpg's errors."""
        await self._fresh.get(None, self._look)
        if self._held + size > self.most:
            raise Throttled(
                f"All topics together may hold {self.most} bytes, and have no room for {size} more.",
                {"limit": "max_total_bytes", "max": self.most},
            )
        self._held += size

    async def _look(self) -> None:
        before = self._held
        held = await inspector.total_bytes(self._pools.rest)
        self._held = held + self._held - before
