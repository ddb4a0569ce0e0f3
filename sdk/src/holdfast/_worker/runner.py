"""Runs a lane's jobs, one after another."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable
from contextlib import suppress
from typing import Any, Protocol

from holdfast._worker.taken import Taken


class Lane(Protocol):
    """A runner's interface to its lane. `turn` is in seconds."""

    ending: bool

    @property
    def turn(self) -> float: ...

    def take(self, now: float) -> Taken | None: ...

    async def next(self) -> None: ...

    def call(self, taken: Taken) -> Awaitable[Any]: ...

    def ended(self, taken: Taken, value: Any, seconds: float) -> None: ...


class Runner:
    """One task of a lane, in which handlers run. A cancellation comes from an interruption of its job, from the handler
    itself, or from the lane's end."""

    __slots__ = ("_lane", "began", "taken", "task")

    def __init__(self, lane: Lane) -> None:
        self._lane = lane
        self.taken: Taken | None = None
        self.began = 0.0
        self.task: asyncio.Task[None] | None = None

    async def run(self) -> None:
        """Run jobs until the lane ends."""
        while not self._lane.ending:
            try:
                await self._run()
            except asyncio.CancelledError:
                if self._lane.ending:
                    raise
                await self._absorb()  # a handler kept this task and cancelled it

    async def _run(self) -> None:
        """Run jobs. Yields to the event loop after each turn, in case handlers never wait."""
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
        """Swallow a cancellation that was meant for a job and came after its end."""
        assert self.task is not None
        with suppress(asyncio.CancelledError):
            await asyncio.sleep(0)
        while self.task.cancelling():
            self.task.uncancel()
