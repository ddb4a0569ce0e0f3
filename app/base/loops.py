"""The loop of all background work: makes passes and handles their errors."""

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
REST: Final = math.inf  # returned by a pass: no next pass until the loop is woken

log = logging.getLogger(__name__)


class Loop:
    """Makes passes until it is stopped.

    - name: what a pass does, as in the log line "can't {name}".
    - once: makes one pass. Returns the seconds until the next one, or REST; None stands for `every`.
    - first: seconds before the first pass.
    - gap: least seconds between passes, even if the loop is woken.
    - jitter: each pause is shortened by a random part up to this, so that processes don't run in step.
    - passing: temporary errors, in addition to an unreachable or busy database and the service's own errors. They are
      logged when they begin and end. The next pass comes after `retry` seconds, or `every` if that is less.
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
        self._fault = ""  # the logged error that is not over yet
        self._due = REST
        self._at_work = self._wanted = False
        self._not_before = 0.0
        self._sooner = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self._stopped = False

    def start(self) -> None:
        """Start the loop, or wake it from a rest. Has no effect on a stopped loop. If a pass is running and would rest
        afterwards, another pass follows."""
        if self._task is None and not self._stopped:
            self._task = asyncio.create_task(self._run(), name=self._name)
        if self._at_work:
            self._wanted = True
        elif self._due == REST:
            self.wake(self._first)

    def wake(self, seconds: float = 0.0) -> None:
        """Make the next pass within `seconds`, after the current one."""
        due = max(time.monotonic() + seconds, self._not_before)
        if due < self._due:
            self._due = due
            self._sooner.set()

    async def stop(self) -> None:
        """Cancel the loop for good and wait until it has ended."""
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
            self._due = REST  # a wake from now on is for the pass after this one
            self._at_work, self._wanted = True, False
            pause, least = await self._pass()
            self._at_work = False
            if pause == REST and self._wanted:
                pause = self._first
            now, part = time.monotonic(), 1 - random.uniform(0, self._jitter)  # noqa: S311
            self._not_before = now + least * part
            self._due = max(min(self._due, now + pause * part), self._not_before)

    async def _pass(self) -> tuple[float, float]:
        """Make a pass. Returns the seconds until the next one is due, and the least seconds until it."""
        try:
            asked = await self._once()
        except self._passing as error:
            busy = isinstance(error, TOO_SLOW)
            self._log_once("can't %s: the database is too slow: %r" if busy else "can't %s right now: %r", error)
            return self._retry, self._retry
        except Exception:
            self._fault = "a traceback"
            log.exception("can't %s", self._name)
            return self._every, self._retry
        if self._fault:
            self._fault = ""
            log.info("can %s again", self._name)
        return self._every if asked is None else asked, self._gap

    def _log_once(self, fault: str, error: Exception) -> None:
        if fault != self._fault:
            self._fault = fault
            log.warning(fault, self._name, error)


async def end_tasks(*tasks: asyncio.Task[Any]) -> None:
    """Cancel tasks and wait until they have ended. Drops their exceptions.

    Cancels again each second, because a cancellation can get lost: in redis-py while it connects, and in Python 3.11's
    asyncio.wait_for if it arrives together with the result.
    """
    left = set(tasks)
    while left:
        for task in left:
            task.cancel()
        done, left = await asyncio.wait(left, timeout=CANCEL_AGAIN_SECONDS)
        await asyncio.gather(*done, return_exceptions=True)
