"""What runs a lane's jobs, one after another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, Protocol

from holdfast._worker.taken import Taken


class Lane(Protocol):
    """What a runner needs of its lane: whether it ends, how long a turn is in seconds, and jobs."""

    ending: bool

    @property
    def turn(self) -> float: ...

    def take(self, now: float) -> Taken | None: ...

    async def next(self) -> None: ...

    def call(self, taken: Taken) -> Awaitable[Any]: ...

    def ended(self, taken: Taken, value: Any, seconds: float) -> None: ...


class Runner:
    """One task of a lane, which handlers run in. What cancels it is an interruption of its job, the handler itself, or
    the lane's end."""

    __slots__ = ("_lane", "began", "taken", "task")

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self.taken: Taken | None = None
        self.began = 0.0
        self.task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Until the lane ends."""
        while not self._lane.ending:
            try:
                await self._run()
            except asyncio.CancelledError:
                if self._lane.ending:
                    raise
                await self._absorb()  # of a handler that had kept this task

    async def _run(self) -> None:
        """Where handlers never wait, this would keep the loop for itself: so it has turns."""
        lane, clock = self._lane, time.monotonic
        task = self.task
        assert task is not None
        turn_ends = clock() + lane.turn
        while not lane.ending:
            now = clock()
            taken = lane.take(now)
            if taken is None:
                await lane.next()
                turn_ends = clock() + lane.turn
                continue
            taken.task = task
            self.taken, self.began = taken, now
            value: Any
            try:
                value = await lane.call(taken)
            except (Exception, SystemExit) as error:
                value = error
            except asyncio.CancelledError as error:
                if lane.ending:
                    raise
                value = error
            self.taken = None
            now, began = clock(), now
            lane.ended(taken, value, now - began)
            if task.cancelling():
                await self._absorb()
            elif now >= turn_ends:
                await asyncio.sleep(0)
                turn_ends = clock() + lane.turn

    async def _absorb(self) -> None:
        """A cancellation that was meant for a job may come after it: it is not the next one's."""
        assert self.task is not None
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        while self.task.cancelling():
            self.task.uncancel()
