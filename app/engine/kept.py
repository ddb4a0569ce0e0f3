"""Readings that pages share: what one page has asked for, others show too, for a while."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Any, Final, TypeVar

from app import tasks

Said = TypeVar("Said")

FRESH_SECONDS: Final = 30.0
MOST: Final = 100  # that are kept, and that are under way
AT_ONCE: Final = 2  # of the pool's connections: what else it is for must find some


class Kept:
    """Answers by key, each FRESH_SECONDS old at most. Who asks while a reading is under way shares it."""

    def __init__(self) -> None:
        self._kept: dict[Hashable, tuple[Any, float]] = {}
        self._under_way: dict[Hashable, asyncio.Task[Any]] = {}
        self._turn = asyncio.Semaphore(AT_ONCE)

    async def get(self, key: Hashable, read: Callable[[], Awaitable[Said]], patience: float) -> Said | None:
        """What `read` answers; None where that takes longer than `patience` seconds, or too much is under way. It is
        read to its end then, for who asks next: it has to have a limit of its own. Raises what it raises."""
        kept = self._kept.get(key)
        if kept is not None and time.monotonic() < kept[1]:
            answer: Said = kept[0]
            return answer
        task = self._under_way.get(key)
        if task is None:
            if len(self._under_way) >= MOST:
                return None
            task = self._under_way[key] = asyncio.create_task(self._read(key, read))
            task.add_done_callback(lambda done: self._landed(key, done))
        done, _ = await asyncio.wait([task], timeout=patience)
        return task.result() if done else None

    async def close(self) -> None:
        """Stop reading."""
        await tasks.end(*self._under_way.values())

    async def _read(self, key: Hashable, read: Callable[[], Awaitable[Said]]) -> Said:
        async with self._turn:
            answer = await read()
        self._kept.pop(key, None)
        if len(self._kept) >= MOST:
            del self._kept[next(iter(self._kept))]
        self._kept[key] = (answer, time.monotonic() + FRESH_SECONDS)
        return answer

    def _landed(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        del self._under_way[key]
        if not task.cancelled():
            task.exception()  # seen, also where all who asked have left
