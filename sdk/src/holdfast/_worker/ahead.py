"""Decides how many jobs a lane claims ahead, from measured durations."""

from __future__ import annotations

from typing import Final

AHEAD_SECONDS: Final = 0.25  # of work to hold ahead; other workers could do it meanwhile
MAX_AHEAD: Final = 3_000  # jobs
LOOK_SECONDS: Final = 2.0


class Ahead:
    """The number of jobs that a lane with `slots` runners should hold. The lane adds to `busy` (seconds that jobs took)
    and `done` (number of jobs); `most` resets them."""

    __slots__ = ("_claimed", "_least", "_seconds", "_service", "_slots", "_waited", "busy", "done", "every")

    def __init__(self, slots: int, lease_ms: int) -> None:
        self._slots = slots
        self._seconds = min(AHEAD_SECONDS, lease_ms / 4000)
        self._service: float | None = None  # seconds per job, measured in the handler
        self._least = 0.0  # seconds per job, from how many jobs began in a period
        self._waited = 0  # jobs waiting at the last call of `surplus`
        self._claimed = 0  # jobs claimed since then
        self.busy, self.done = 0.0, 0
        self.every: Final = min(LOOK_SECONDS, lease_ms / 4000)  # seconds between calls of `surplus`

    def most(self) -> int:
        """How many jobs to hold, including running ones."""
        if self.done:
            measured = self.busy / self.done
            self._service = measured if self._service is None else (self._service + measured) / 2
            self.busy, self.done = 0.0, 0
        if self._service is None:
            return self._slots
        seconds = max(self._service, self._least, 1e-7)
        return self._slots + min(MAX_AHEAD, int(self._slots * self._seconds / seconds))

    def add_claimed(self, count: int) -> None:
        """Report claimed jobs."""
        self._claimed += count

    def surplus(self, waiting: int) -> int:
        """How many of the last waiting jobs will not begin soon. Call it every `every` seconds.

        It is 0 if no job has waited since the last call. Otherwise all slots were busy in that period. As many jobs as
        began in it will begin in the next one; the others are surplus. Jobs then take longer than measured, because
        long ones have not ended yet or they share a processor. The limit of `most` is lowered accordingly."""
        left = waiting - self._claimed
        began = self._waited - left
        seconds = self._slots * self.every / max(began, 1)
        surplus = max(0, waiting - began) if left > 0 else 0
        self._least = seconds if left > 0 else min(self._least, seconds)
        self._waited, self._claimed = waiting - surplus, 0
        return surplus
