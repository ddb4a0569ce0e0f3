"""Interleavings that are forced: a rival goes on only once the database says that it waits."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Coroutine
from dataclasses import dataclass
from typing import Any, TypeVar

from tests.queue.calls import Session, until

T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Rivals:
    """Sessions: the one that acts first, the one that has to wait or to go without, and one that looks."""

    one: Session
    other: Session
    observer: Session

    @contextlib.asynccontextmanager
    async def first(self, *, commits: bool = True) -> AsyncIterator[None]:
        """A transaction of `one`'s. What waits behind it goes on at its end."""
        transaction = self.one.transaction()
        await transaction.start()
        try:
            yield
        except BaseException:
            await transaction.rollback()
            raise
        await (transaction.commit() if commits else transaction.rollback())

    async def behind(self, verb: Coroutine[Any, Any, T]) -> asyncio.Task[T]:
        """Begin what has to wait for `one`, and return once it does."""
        late = asyncio.create_task(verb)
        await self.meet()
        return late

    async def meet(self) -> None:
        """Wait until somebody waits for a lock that `one` has."""
        pid = self.one.get_server_pid()

        async def waits() -> bool:
            found = await self.observer.fetchval(
                "SELECT EXISTS (SELECT 1 FROM pg_stat_activity WHERE $1 = ANY (pg_blocking_pids(pid)))", pid
            )
            return bool(found)

        await until(waits, "the rival waits")
