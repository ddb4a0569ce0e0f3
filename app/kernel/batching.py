"""Group commit: the calls that arrive while a statement runs form the next statement.

A statement costs as much as fifty rows, so callers share one. There is no fixed delay: a call that finds no statement
under way is sent at once.
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

RETRIES: Final = 3  # of a statement that lost a race and was rolled back


class MustSplit(Exception):
    """Raised by a commit that can't handle its items together, and handled none. Each item then runs alone."""


async def retry_lost_race(run: Callable[[], Awaitable[Result]]) -> Result:
    """Run a statement, and again if it lost a race. Raises its errors."""
    for _ in range(RETRIES):
        try:
            return await run()
        except LOST_RACE:
            await asyncio.sleep(random.uniform(0.001, 0.01))  # noqa: S311  two that met must not meet again
    return await run()


class GroupCommit(Generic[Item, Result]):
    """Groups of calls, with one statement in flight for each key.

    `commit(items)` runs one statement for all items, and returns a result or an error for each, in order.
    `weight(item)`: how much an item adds to a statement. A statement has at most `most`, or one heavier item.
    `on_abandoned(item, result)`: called with a result whose caller was cancelled.
    `window(item)`: for how many seconds the first item of a group waits for others; 0: not at all.
    `max_waiting`: how many calls can wait for one key; further ones raise TooManyWaiting.
    """

    def __init__(
        self,
        commit: Callable[[Sequence[Item]], Awaitable[Sequence[Result | BaseException]]],
        *,
        max_waiting: int,
        most: int = 1_000,
        weight: Callable[[Item], int] = lambda _item: 1,
        on_abandoned: Callable[[Item, Result], None] | None = None,
        window: Callable[[Item], float] | None = None,
    ) -> None:
        self._commit = commit
        self._max_waiting = max_waiting
        self._most = most
        self._weight = weight
        self._on_abandoned = on_abandoned
        self._window = window
        self._waiting: dict[Hashable, deque[tuple[Item, asyncio.Future[Result]]]] = {}
        self._runners: dict[Hashable, asyncio.Task[None]] = {}

    def submit(self, key: Hashable, item: Item) -> asyncio.Future[Result]:
        """Join the next group. The future is done once its statement is committed.

        Cancelling it removes the item if its statement was not sent yet. Raises TooManyWaiting at once if too many
        calls wait. The future raises the error that `commit` returned, or Unavailable.
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
        """The number of calls whose statements were not sent yet."""
        return sum(len(waiting) for waiting in self._waiting.values())

    async def drain(self) -> None:
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
            # No call can be added between the check above and here, because there is no await in between.
            del self._waiting[key], self._runners[key]

    def _take(self, waiting: deque[tuple[Item, asyncio.Future[Result]]]) -> list[tuple[Item, asyncio.Future[Result]]]:
        calls: list[tuple[Item, asyncio.Future[Result]]] = []
        room = self._most
        while waiting:
            item, future = waiting[0]
            if not future.done():  # done: its caller was cancelled
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
                if self._on_abandoned is not None and not isinstance(result, BaseException):
                    self._on_abandoned(item, result)
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
                    return [error_for_caller(error)] * len(items)
                await asyncio.sleep(random.uniform(0.001, 0.01))  # noqa: S311  two that met must not meet again
            except MustSplit:
                return [(await self._attempt([item]))[0] for item in items]
            except asyncpg.PostgresError as error:
                # The server refused the statement, so it did nothing. Find out which item is the cause.
                if len(items) == 1 or as_unavailable(error) is not None:
                    return [error_for_caller(error)] * len(items)
                return [(await self._attempt([item]))[0] for item in items]
            except Exception as error:
                return [error_for_caller(error)] * len(items)
        raise AssertionError("unreachable")


def error_for_caller(error: Exception) -> Exception:
    """The error for a caller. All callers of a group get the same object."""
    if isinstance(error, HoldfastError):
        return error
    return as_unavailable(error) or error


async def rows_of(db: Connection, statement: str, *values: Any) -> Sequence[asyncpg.Record]:
    """Run a statement that reads topics' sequences and leaves out topics without one. It fails if a sequence is dropped
    after the statement's snapshot; then it runs once more with a new snapshot."""
    try:
        return await db.fetch(statement, *values)
    except asyncpg.InternalServerError:
        return await db.fetch(statement, *values)
