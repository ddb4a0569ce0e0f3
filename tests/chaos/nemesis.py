"""A service as a process, and who kills its parts."""

from __future__ import annotations

import asyncio
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path
from typing import Final

from tests.chaos.history import Outage, Outcome
from tests.chaos.traffic import Traffic
from tests.processes import children, until

ROOT: Final = Path(__file__).parents[2]
RECOVERY_SECONDS: Final = 10.0


class Target(Enum):
    SERVER = "app _server"
    POSTGRES = "postgres"


class Service:
    """`python -m app serve` with a PostgreSQL of its own that flushes, as everybody gets it."""

    def __init__(self, folder: Path) -> None:
        self._out, self._err = folder / "serve.out", folder / "serve.err"
        clean = {name: value for name, value in os.environ.items() if not name.startswith("HOLDFAST_")}
        mine = {"HOLDFAST_PORT": "0", "HOLDFAST_DATA_DIR": str(folder / "data")}
        with self._out.open("wb") as out, self._err.open("wb") as err:
            command = [sys.executable, "-m", "app", "serve"]
            self._process = subprocess.Popen(command, cwd=ROOT, env=clean | mine, stdout=out, stderr=err)

    def url(self) -> str:
        """Where it answers, once it does."""
        found = until(lambda: re.search(r"is running on (\S+) ", self._out.read_text()), 60, or_show=self.log)
        assert found is not None
        return found.group(1)

    def pid(self, target: Target) -> int | None:
        return next(iter(children(self._process.pid, target.value)), None)

    def log(self) -> str:
        """The end of what it said."""
        return self._err.read_text()[-4000:]

    def stop(self) -> int:
        self._process.terminate()
        try:
            return self._process.wait(30)
        finally:
            self._process.kill()


@dataclass(slots=True)
class Nemesis:
    """Kills a part of the service, waits until clients are served again and have got somewhere, and does it again.

    Nobody helps the service up: the clients only call it.
    """

    service: Service
    traffic: Traffic
    dice: random.Random
    recoveries: dict[Target, list[float]] = field(default_factory=lambda: {target: [] for target in Target})

    async def kill(self, target: Target) -> None:
        """One kill, and its recovery: until a job can be enqueued. Fails the test where it takes longer than it may."""
        pid = await asyncio.to_thread(until, lambda: self.service.pid(target), or_show=self.service.log)
        await asyncio.sleep(self.dice.uniform(0, 0.4))
        assert pid is not None
        began = time.time() * 1000
        os.kill(pid, signal.SIGKILL)
        progress = self.traffic.progress
        async with self.traffic.client() as http:
            while await self.traffic.enqueue(http, self.traffic.new_ids(1)) is not Outcome.DONE:
                assert time.time() * 1000 < began + RECOVERY_SECONDS * 1000, self._words(target)
                await asyncio.sleep(0.02)
        self.recoveries[target].append(time.time() - began / 1000)
        await self._wait(target, lambda: progress.claimed > began)
        ended = time.time() * 1000
        self.traffic.history.outages.append(Outage(began, ended))
        await self._wait(target, lambda: min(progress.got, progress.enqueued, progress.acked) > ended)

    async def _wait(self, target: Target, fact: Callable[[], bool]) -> None:
        end = time.monotonic() + RECOVERY_SECONDS
        while not fact():
            assert time.monotonic() < end, self._words(target)
            await asyncio.sleep(0.01)

    def _words(self, target: Target) -> str:
        count = sum(map(len, self.recoveries.values()))
        return (
            f"{count} recoveries, and no progress {RECOVERY_SECONDS:.0f} s after a kill of {target.name}: "
            f"{self.traffic.progress}\n{self.traffic.surprises[-5:]}\n{self.service.log()}"
        )

    def report(self) -> str:
        """The distribution of recovery times, a line for each target."""
        lines = []
        for target, seconds in self.recoveries.items():
            sorted_ = sorted(seconds)
            if sorted_:
                points = {"min": 0.0, "p50": 0.5, "p90": 0.9, "p99": 0.99, "max": 1.0}
                shown = "  ".join(f"{name} {sorted_[round(p * (len(sorted_) - 1))]:.2f}" for name, p in points.items())
                lines.append(f"{target.name:<9} {len(sorted_)} kills; seconds to the next answer: {shown}")
        return "\n".join(lines)
