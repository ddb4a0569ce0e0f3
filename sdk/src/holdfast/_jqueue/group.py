"""Group commit: calls that arrive while a request is running are sent together as the next batch."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Awaitable, Callable, Sequence
from contextvars import Context
from typing import Generic, Protocol, TypeVar

A = TypeVar("A")
R = TypeVar("R")
A_contra = TypeVar("A_contra", contravariant=True)
R_co = TypeVar("R_co", covariant=True)


class Commit(Protocol[A_contra, R_co]):
    """Carries out a batch. Returns one outcome for each call: a value to return, or an exception to raise."""

    __name__: str

    def __call__(self, calls: Sequence[A_contra], /) -> Awaitable[Sequence[R_co | BaseException]]: ...


class Group(Generic[A, R]):
    """Batches one kind of call. A batch has at most `most` calls, and at most `most_bytes` by `weigh` or a single
    larger call. One batch runs at a time. `unclaimed` gets the outcomes of cancelled callers."""

    def __init__(
        self,
        commit: Commit[A, R],
        *,
        most: int = 1_000,
        weigh: Callable[[A], int] = lambda _: 0,
        most_bytes: int = 8 << 20,
        unclaimed: Callable[[Sequence[R]], Awaitable[None]] | None = None,
    ) -> None:
        self._commit = commit
        self._most = most
        self._weigh = weigh
        self._most_bytes = most_bytes
        self._unclaimed = unclaimed
        self._pending: deque[tuple[A, asyncio.Future[R]]] = deque()
        self._writer: asyncio.Task[None] | None = None

    async def submit(self, call: A) -> R:
        """Make a call. Returns its outcome. If the caller is cancelled, the call may still be carried out."""
        answered: asyncio.Future[R] = asyncio.get_running_loop().create_future()
        self._pending.append((call, answered))
        if self._writer is None:
            # Starts with the next iteration of the event loop, so calls made together are in the first batch. Uses an
            # empty context: a caller's own context, such as its trace, must not apply to others.
            self._writer = asyncio.create_task(self._write(), name="holdfast-group", context=Context())
        return await answered

    async def drain(self) -> None:
        """Wait until all submitted calls are done."""
        while self._writer is not None:
            await asyncio.wait([self._writer])

    async def _write(self) -> None:
        batch: list[tuple[A, asyncio.Future[R]]] = []
        try:
            while batch := self._next():
                await self._settle(batch, await self._outcomes([call for call, _ in batch]))
        finally:
            self._writer = None
            for _, answered in (*batch, *self._pending):  # not empty only if this task was cancelled
                answered.cancel()

    async def _outcomes(self, calls: Sequence[A]) -> Sequence[R | BaseException]:
        try:
            return await self._commit(calls)
        except Exception as error:
            return [error] * len(calls)

    async def _settle(
        self, batch: Sequence[tuple[A, asyncio.Future[R]]], outcomes: Sequence[R | BaseException]
    ) -> None:
        unclaimed: list[R] = []
        for (_, answered), outcome in zip(batch, outcomes, strict=True):
            if answered.done():  # the caller was cancelled
                if not isinstance(outcome, BaseException):
                    unclaimed.append(outcome)
            elif isinstance(outcome, BaseException):
                answered.set_exception(outcome)
            else:
                answered.set_result(outcome)
        if unclaimed and self._unclaimed is not None:
            await self._unclaimed(unclaimed)

    def _next(self) -> list[tuple[A, asyncio.Future[R]]]:
        batch: list[tuple[A, asyncio.Future[R]]] = []
        weight = 0
        while self._pending and len(batch) < self._most:
            if self._pending[0][1].done():  # the caller was cancelled before the call began
                self._pending.popleft()
                continue
            weight += self._weigh(self._pending[0][0])
            if batch and weight > self._most_bytes:
                break
            batch.append(self._pending.popleft())
        return batch
