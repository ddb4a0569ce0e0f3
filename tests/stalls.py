"""How long something took while the machine was there to do it.

A shared machine stands still for seconds now and then: a virtual one is paused, or its processors are somebody else's.
A test that bounds how soon something happens counts the time without those pauses, which a thread sees as beats that
come late. What is slow itself, and what only waits, lets the beats go on, and is not excused.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import Final, ParamSpec

P = ParamSpec("P")

BEAT_SECONDS: Final = 0.01
LATE_SECONDS: Final = 0.03  # more than the interpreter's switch between threads takes


class Pulse(threading.Thread):
    """Beats until the process ends."""

    def __init__(self) -> None:
        super().__init__(name="pulse", daemon=True)
        self.pauses: deque[tuple[float, float]] = deque(maxlen=10_000)  # from, to

    def run(self) -> None:
        last = time.monotonic()
        while True:
            time.sleep(BEAT_SECONDS)
            now = time.monotonic()
            if now - last > BEAT_SECONDS + LATE_SECONDS:
                self.pauses.append((last, now - BEAT_SECONDS))
            last = now

    def paused(self, began: float) -> float:
        """Seconds since then, of time.monotonic(), that were pauses."""
        time.sleep(BEAT_SECONDS)  # the beat that was late has been told
        return sum(end - max(start, began) for start, end in [*self.pauses] if end > began)


_pulse: Final = Pulse()


def start() -> None:
    """Once a process, before lasted()."""
    if not _pulse.is_alive():
        _pulse.start()


def paused(began: float) -> float:
    """For how many seconds since `began`, of time.monotonic(), the machine stood still."""
    return _pulse.paused(began)


def lasted(began: float) -> float:
    """How many seconds this has taken since `began`, of time.monotonic(), while the machine went on. To be held against
    upper bounds only: what must not come early is measured by the clock alone."""
    return time.monotonic() - began - paused(began)


def undisturbed(test: Callable[P, Awaitable[None]]) -> Callable[P, Awaitable[None]]:
    """Of a test of how much happens in a time: it fails in a run that no pause fell into, or in the fifth."""

    @wraps(test)
    async def repeated(*args: P.args, **kwargs: P.kwargs) -> None:
        for _ in range(4):
            began = time.monotonic()
            try:
                return await test(*args, **kwargs)
            except AssertionError:
                if not paused(began):
                    raise
        return await test(*args, **kwargs)

    return repeated
