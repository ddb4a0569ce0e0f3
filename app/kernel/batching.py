"""Group commit: whatever arrives while a statement runs is the next statement.

A statement costs as much as fifty rows do, so callers share one. There is never a fixed delay: a call that finds
nothing under way is sent at once.
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Sequence
from typing import Any, Final, Generic, TypeVar

import asyncpg

from app.base.outages import LOST_RACE, as_unavailable
from app.errors import HoldfastError, TooManyWaiting
from app.kernel.model import Connection

Item = TypeVar("Item")
Result = TypeVar("Result")

RETRIES: Final = 3  # of a statement that lost a deadlock, rolled back whole


class Apart(Exception):
    """Raised by a commit that can't do its items together, and did none: each is tried by itself."""


async def tried_again(run: Callable[[], Awaitable[Result]]) -> Result:
    """Run one statement, and again when it lost a race. Raises what it raises."""
    for _ in range(RETRIES):
        try:
            return await run()
        except LOST_RACE:
            await asyncio.sleep(random.uniform(0.001, 0.01))  # noqa: S311  two that met must not meet again
    return await run()


class GroupCommit(Generic[Item, Result]):
    """Groups of calls, with one statement in flight for each key.

    `commit(items)` runs one statement for all, and returns one result or one error for each item, in order.
    `weight(item)`: what an item adds to a statement. A statement carries `most` at most, or one heavier item.
    `left(item, result)`: called with a result whose caller has gone.
    `window(item)`: for how many seconds the first item of a group waits for others, 0 for none.
    `max_waiting`: how many calls may wait for one key; more raise TooManyWaiting.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[Item]], Awaitable[Sequence[Result | BaseException]]],
        *,
        max_waiting: int,
        most: int = 1_000,
        weight: Callable[[Item], int] = lambda _item: 1,
        left: Callable[[Item, Result], None] | None = None,
        window: Callable[[Item], float] | None = None,
    ) -> None:
        self._commit = commit
        self._max_waiting = max_waiting
        self._most = most
        self._weight = weight
        self._left = left
        self._window = window
        self._waiting: dict[Hashable, deque[tuple[Item, asyncio.Future[Result]]]] = {}
        self._runners: dict[Hashable, asyncio.Task[None]] = {}

    def submit(self, key: Hashable, item: Item) -> asyncio.Future[Result]:
        """Join the group that is forming; the future is done once its statement is committed.

        Cancelling it takes the item out, if its statement has not been sent yet. Raises TooManyWaiting at once when too
        many wait; the future raises what `commit` answers, or Unavailable.
        """
        waiting = self._waiting.get(key)
        if waiting is None:
            waiting = self._waiting[key] = deque()
            self._runners[key] = asyncio.create_task(self._run(key, waiting))
        elif len(waiting) >= self._max_waiting:
            raise TooManyWaiting(self._max_waiting)
        future: asyncio.Future[Result] = asyncio.get_running_loop().create_future()
        waiting.append((item, future))
        return future

    def waiting(self) -> int:
        """How many calls' statements have not been sent."""
        return sum(len(waiting) for waiting in self._waiting.values())

    async def drain(self) -> None:
        """Wait for all that was submitted."""
        while self._runners:
            await asyncio.wait(list(self._runners.values()))

    async def _run(self, key: Hashable, waiting: deque[tuple[Item, asyncio.Future[Result]]]) -> None:
        try:
            while waiting:
                if self._window is not None and (seconds := self._window(waiting[0][0])) > 0:
                    await asyncio.sleep(seconds)
                calls = self._take(waiting)
                if calls:
                    await self._settle(calls)
        finally:
            # Nothing can be appended between the check above and here: no await stands between them.
            del self._waiting[key], self._runners[key]

    def _take(self, waiting: deque[tuple[Item, asyncio.Future[Result]]]) -> list[tuple[Item, asyncio.Future[Result]]]:
        calls: list[tuple[Item, asyncio.Future[Result]]] = []
        room = self._most
        while waiting:
            item, future = waiting[0]
            if not future.done():  # done: its caller has gone
                weight = self._weight(item)
                if calls and weight > room:
                    break
                room -= weight
                calls.append((item, future))
            waiting.popleft()
        return calls

    async def _settle(self, calls: list[tuple[Item, asyncio.Future[Result]]]) -> None:
        results = await self._attempt([item for item, _ in calls])
        for (item, future), result in zip(calls, results, strict=True):
            if future.done():
                if self._left is not None and not isinstance(result, BaseException):
                    self._left(item, result)
            elif isinstance(result, BaseException):
                future.set_exception(result)
            else:
                future.set_result(result)

    async def _attempt(self, items: Sequence[Item]) -> Sequence[Result | BaseException]:
        for attempt in range(RETRIES + 1):
            try:
                return await self._commit(items)
            except LOST_RACE as error:
                if attempt == RETRIES:
                    return [for_caller(error)] * len(items)
                await asyncio.sleep(random.uniform(0.001, 0.01))  # noqa: S311  two that met must not meet again
            except Apart:
                return [(await self._attempt([item]))[0] for item in items]
            except asyncpg.PostgresError as error:
                # The server refused it, so nothing was done: find out whose fault it is.
                if len(items) == 1 or as_unavailable(error) is not None:
                    return [for_caller(error)] * len(items)
                return [(await self._attempt([item]))[0] for item in items]
            except Exception as error:
                return [for_caller(error)] * len(items)
        raise AssertionError("unreachable")


def for_caller(error: Exception) -> Exception:
    """The error that a caller gets. All callers of a group get the same object."""
    if isinstance(error, HoldfastError):
        return error
    return as_unavailable(error) or error


async def rows_of(db: Connection, statement: str, *values: Any) -> Sequence[asyncpg.Record]:
    """Run a statement that reads topics' sequences and leaves out topics without one. A sequence that is dropped after
    the statement's snapshot makes it fail: then run it once more, with a new snapshot."""
    try:
        return await db.fetch(statement, *values)
    except asyncpg.InternalServerError:
        return await db.fetch(statement, *values)
