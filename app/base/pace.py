"""The pace of a sweep: how far a run is, and how it rests between batches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from app.base.outages import LOST_RACE

LONGEST_REST: Final = 10.0  # seconds
ATTEMPTS: Final = 5  # of a batch that loses a race for locks: rolled back whole, it can go again


class Pace:
    """Of one run. After a batch it rests for `ease` times as long as the batch took: where the database is busy batches
    take longer, and so do the rests. `moved` is what the run has moved so far."""

    def __init__(self, ease: float = 0.0, moved: int = 0) -> None:
        self.moved = moved
        self._ease = ease

    async def drain(self, move: Callable[[], Awaitable[int]], enough: int = 1) -> None:
        """Move batch after batch, until one comes back with fewer than `enough`."""
        while await self.batch(move) >= enough:
            pass

    async def batch(self, move: Callable[[], Awaitable[int]]) -> int:
        """Move one batch, and rest if anything was moved. Returns how much."""
        began = time.monotonic()
        count = await _won(move)
        self.moved += count
        if count and self._ease:
            await asyncio.sleep(min(self._ease * (time.monotonic() - began), LONGEST_REST))
        return count


async def _won(move: Callable[[], Awaitable[int]]) -> int:
    for _ in range(ATTEMPTS - 1):
        try:
            return await move()
        except LOST_RACE:
            continue
    return await move()
