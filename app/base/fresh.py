"""A cache of values that are read at most every few seconds. Concurrent callers share a reading."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Awaitable, Callable, Hashable
from typing import Final, Generic, TypeVar

from app.base.loops import end_tasks

Key = TypeVar("Key", bound=Hashable)
Value = TypeVar("Value")

MOST: Final = 10_000


class Fresh(Generic[Key, Value]):
    """A cache of values by key. Concurrent callers share a reading.

    - ttl: how long a value is valid, in seconds from the start of its reading.
    - share: after a reading of s seconds, the next one starts no sooner than `share` * s seconds later.
    - retry: seconds without a reading after a failure. `within` returns None meanwhile.
    - most: limit of cached values, and of concurrent readings.
    - at_once: limit of readings at the same time; others wait.
    - until: returns until when a value is valid, by time.monotonic(). A value that has already expired is returned and
      not cached.
    """

    def __init__(
        self,
        ttl: float,
        *,
        share: float = 0.0,
        retry: float = 0.0,
        most: int = MOST,
        at_once: int | None = None,
        until: Callable[[Value], float] | None = None,
    ) -> None:
        self.ttl = ttl
        self._share = share
        self._retry = retry
        self._most = most
        self._until = until
        self._turn = None if at_once is None else asyncio.Semaphore(at_once)
        self._kept: dict[Key, tuple[Value, float]] = {}
        self._failed: dict[Key, float] = {}  # no reading before this time
        self._under_way: dict[Key, asyncio.Task[Value]] = {}
        self._left: set[asyncio.Task[Value]] = set()  # running readings of forgotten keys

    def peek(self, key: Key) -> Value | None:
        """The cached value if it is valid, else None."""
        good = self._good(key)
        return None if good is None else good[0]

    async def get(self, key: Key, read: Callable[[], Awaitable[Value]]) -> Value:
        """The value, read if necessary. Raises the errors of `read`. Cancelling a caller does not cancel the
        reading."""
        good = self._good(key)
        if good is not None:
            return good[0]
        return await asyncio.shield(self._task(key, read))

    async def within(self, key: Key, read: Callable[[], Awaitable[Value]], patience: float) -> Value | None:
        """The value; None if reading it takes longer than `patience` seconds, if there are too many readings, or after
        a recent failure. A slow reading continues for later callers, so `read` needs a time limit. Raises its
        errors."""
        good = self._good(key)
        if good is not None:
            return good[0]
        if key not in self._under_way and (
            len(self._under_way) >= self._most or time.monotonic() < self._failed.get(key, -math.inf)
        ):
            return None
        task = self._task(key, read)
        done, _ = await asyncio.wait([task], timeout=patience)
        return task.result() if done else None

    def may_keep(self, key: Key) -> bool:
        """Whether the current reading may cache its value: its key has not been forgotten meanwhile."""
        return self._under_way.get(key) is asyncio.current_task()

    def forget(self, key: Key) -> None:
        """Make the next caller read the value again. A running reading answers only its current callers."""
        self._kept.pop(key, None)
        self._failed.pop(key, None)
        task = self._under_way.pop(key, None)
        if task is not None:
            self._left.add(task)

    def forget_all(self) -> None:
        """Forget all keys."""
        for key in [*self._kept, *self._under_way]:
            self.forget(key)

    async def stop(self) -> None:
        """Cancel all readings."""
        await end_tasks(*self._under_way.values(), *self._left)

    def _good(self, key: Key) -> tuple[Value, float] | None:
        kept = self._kept.get(key)
        return kept if kept is not None and time.monotonic() < kept[1] else None

    def _task(self, key: Key, read: Callable[[], Awaitable[Value]]) -> asyncio.Task[Value]:
        task = self._under_way.get(key)
        if task is None:
            task = self._under_way[key] = asyncio.create_task(self._read(key, read))
            task.add_done_callback(lambda done: self._finish(key, done))
        return task

    async def _read(self, key: Key, read: Callable[[], Awaitable[Value]]) -> Value:
        if self._turn is not None:
            async with self._turn:
                return await self._read_now(key, read)
        return await self._read_now(key, read)

    async def _read_now(self, key: Key, read: Callable[[], Awaitable[Value]]) -> Value:
        began = time.monotonic()
        try:
            value = await read()
        except BaseException:
            if self.may_keep(key) and self._retry:
                now = time.monotonic()
                self._failed[key] = now + max(self._retry, self._share * (now - began))
            raise
        if self.may_keep(key):
            now = time.monotonic()
            until = max(began + self.ttl, now + self._share * (now - began))
            self._keep(key, value, until if self._until is None else self._until(value))
        return value

    def _keep(self, key: Key, value: Value, until: float) -> None:
        self._failed.pop(key, None)
        self._kept.pop(key, None)
        if until <= time.monotonic():
            return
        if len(self._kept) >= self._most:
            del self._kept[next(iter(self._kept))]  # the oldest
        self._kept[key] = (value, until)

    def _finish(self, key: Key, task: asyncio.Task[Value]) -> None:
        if self._under_way.get(key) is task:
            del self._under_way[key]
        self._left.discard(task)
        if not task.cancelled():
            task.exception()  # mark it as retrieved, even if all callers have left
