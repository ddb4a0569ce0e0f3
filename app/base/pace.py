"""The pace of a sweep: counts rows and rests between batches."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import Final

from app.base.outages import LOST_RACE

LONGEST_REST: Final = 10.0  # seconds
ATTEMPTS: Final = 5  # of a batch that was rolled back after a deadlock or serialization failure


class Pace:
    """The pace of one run. After each batch it rests for `ease` times the batch's duration, so it slows down on a busy
    database. `moved` counts the rows moved so far."""

    def __init__(self, ease: float = 0.0, moved: int = 0) -> None:
        self.moved = moved
        self._ease = ease

    async def drain(self, move: Callable[[], Awaitable[int]], enough: int = 1) -> None:
        """Move batches until one moves fewer than `enough` rows."""
        while await self.batch(move) >= enough:
            pass

    async def batch(self, move: Callable[[], Awaitable[int]]) -> int:
        """Move one batch, and rest if it moved anything. Returns the number of rows."""
        began = time.monotonic()
        count = await _retry(move)
        self.moved += count
        if count and self._ease:
            await asyncio.sleep(min(self._ease * (time.monotonic() - began), LONGEST_REST))
        return count


async def _retry(move: Callable[[], Awaitable[int]]) -> int:
    for _ in range(ATTEMPTS - 1):
        try:
            return await move()
        except LOST_RACE:
            continue
    return await move()
