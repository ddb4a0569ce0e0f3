"""How many jobs a lane holds before they can begin: by time, as measured, and not by number."""

from __future__ import annotations

from typing import Final

AHEAD_SECONDS: Final = 0.25  # of work that waits here: what other workers could have done meanwhile
MAX_AHEAD: Final = 3_000  # jobs
LOOK_SECONDS: Final = 2.0


class Ahead:
    """For a lane of so many `slots`. `busy` and `done` are the seconds that jobs took, and how many, since this was
    asked last; whoever runs them adds to them."""

    __slots__ = ("_came", "_least", "_seconds", "_service", "_slots", "_waited", "busy", "done", "every")

    def __init__(self, slots: int, lease_ms: int) -> None:
        self._slots = slots
        self._seconds = min(AHEAD_SECONDS, lease_ms / 4000)
        self._service: float | None = None  # seconds that a job takes, by its handler
        self._least = 0.0  # that it takes, by how many began in a time
        self._waited = 0  # at the last look
        self._came = 0  # since then
        self.busy, self.done = 0.0, 0
        self.every: Final = min(LOOK_SECONDS, lease_ms / 4000)  # seconds from look to look

    def most(self) -> int:
        """How many jobs to hold, with those that run."""
        if self.done:
            measured = self.busy / self.done
            self._service = measured if self._service is None else (self._service + measured) / 2
            self.busy, self.done = 0.0, 0
        if self._service is None:
            return self._slots
        seconds = max(self._service, self._least, 1e-7)
        return self._slots + min(MAX_AHEAD, int(self._slots * self._seconds / seconds))

    def came(self, count: int) -> None:
        """So many were claimed."""
        self._came += count

    def surplus(self, waiting: int) -> int:
        """How many of those that wait, the last ones, will not begin soon. To be asked `every` so many seconds.

        None, while what waits is not what waited at the last look. Where some have waited ever since, no slot was free
        in that time, and as many as began in it will in the next: the rest is the surplus. Jobs take longer then than
        was measured: those that do may not have ended yet, or they have to share a processor. From then on no more is
        held than goes by what has begun since in such a time."""
        left = waiting - self._came
        began = self._waited - left
        seconds = self._slots * self.every / max(began, 1)
        surplus = max(0, waiting - began) if left > 0 else 0
        self._least = seconds if left > 0 else min(self._least, seconds)
        self._waited, self._came = waiting - surplus, 0
        return surplus
