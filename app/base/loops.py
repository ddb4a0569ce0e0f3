"""The one loop of work in the background: a pass, again and again, and what goes wrong with it."""

from __future__ import annotations

import asyncio
import logging
import math
import random
import time
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Any, Final

from app.base.outages import TOO_SLOW, UNREACHABLE
from app.errors import HoldfastError

RETRY_SECONDS: Final = 5.0
CANCEL_AGAIN_SECONDS: Final = 1.0
REST: Final = math.inf  # from a pass: there is nothing to come back for, until somebody wakes the loop

log = logging.getLogger(__name__)


class Loop:
    """Makes passes until it is stopped. `name` says what they do: "can't {name}" is logged where they can't.

    once: one pass; it may answer in how many seconds it wants the next, or REST; with None that is `every`.
    first: seconds before the first pass. gap: the least seconds from one pass to the next, however often it is woken.
    jitter: by up to this part each pause is shorter, so that processes that started together don't stay together.
    passing: what may go wrong for a while, beside a database's being away or busy and the service's own errors. That is
    logged when it begins and when it is over, and tried again after `retry` seconds, or `every` if that is less.
    """

    def __init__(
        self,
        name: str,
        once: Callable[[], Awaitable[float | None]],
        every: float = REST,
        *,
        first: float = 0.0,
        gap: float = 0.0,
        jitter: float = 0.0,
        retry: float = RETRY_SECONDS,
        passing: tuple[type[Exception], ...] = (),
    ) -> None:
        self._name = name
        self._once = once
        self._every = every
        self._first = first
        self._gap = gap
        self._jitter = jitter
        self._retry = min(every, retry)
        self._passing: tuple[type[Exception], ...] = (HoldfastError, *UNREACHABLE, *passing)
        self._fault = ""  # what is logged, and not over yet
        self._due = REST
        self._at_work = self._wanted = False
        self._not_before = 0.0
        self._sooner = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def start(self) -> None:
        """Begin, or go on after a rest. One that was stopped is left alone. One that is at work makes its next pass
        when that is due; where it would rest, at once."""
        if self._task is None and not self._stopped:
            self._task = asyncio.create_task(self._run(), name=self._name)
        if self._at_work:
            self._wanted = True
        elif self._due == REST:
            self.wake(self._first)

    def wake(self, seconds: float = 0.0) -> None:
        """Make the next pass in `seconds` at the latest; after the one that is being made."""
        due = max(time.monotonic() + seconds, self._not_before)
        if due < self._due:
            self._due = due
            self._sooner.set()

    async def stop(self) -> None:
        """Cancel it for good, and wait until it has ended."""
        self._stopped = True
        if self._task is not None:
            await end_tasks(self._task)

    async def _run(self) -> None:
        while True:
            if (left := self._due - time.monotonic()) > 0:
                self._sooner.clear()
                with suppress(TimeoutError):
                    async with asyncio.timeout(None if left == REST else left):
                        await self._sooner.wait()
                continue
            self._due = REST  # who wakes it from now on means the pass after this one
            self._at_work, self._wanted = True, False
            pause, least = await self._pass()
            self._at_work = False
            if pause == REST and self._wanted:
                pause = self._first
            now, part = time.monotonic(), 1 - random.uniform(0, self._jitter)  # noqa: S311
            self._not_before = now + least * part
            self._due = max(min(self._due, now + pause * part), self._not_before)

    async def _pass(self) -> tuple[float, float]:
        """In how many seconds the next one is due, and may be made."""
        try:
            asked = await self._once()
        except self._passing as error:
            busy = isinstance(error, TOO_SLOW)
            self._say("can't %s: the database is too slow: %r" if busy else "can't %s at the moment: %r", error)
            return self._retry, self._retry
        except Exception:
            self._fault = "a traceback"
            log.exception("can't %s", self._name)
            return self._every, self._retry
        if self._fault:
            self._fault = ""
            log.info("can %s again", self._name)
        return self._every if asked is None else asked, self._gap

    def _say(self, fault: str, error: Exception) -> None:
        if fault != self._fault:
            self._fault = fault
            log.warning(fault, self._name, error)


async def end_tasks(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks, and wait until they have ended; what they raise is dropped.

    One that goes on is cancelled again each second: a cancellation can be lost on its way, by redis-py while it
    connects and by Python 3.11's asyncio.wait_for when it meets the result.
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        done, left = await asyncio.wait(left, timeout=CANCEL_AGAIN_SECONDS)
        await asyncio.gather(*done, return_exceptions=True)
