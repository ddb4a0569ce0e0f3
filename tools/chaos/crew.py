"""Workers of the SDK, as processes that are begun anew whenever they end."""

from __future__ import annotations

import asyncio
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

from tools.chaos.system import TICK, Clock, environment, signalled
from tools.chaos.traffic import LEASE_MS

STOP_SECONDS: Final = 40


class Member:
    """One place for a worker. Each process that takes it has a name, and a file of the history, of its own."""

    def __init__(self, name: str, url: str, folder: Path, root: Path, topics: Sequence[str]) -> None:
        self.name = name
        self.clock = Clock(folder / f"clock-{name}")
        self.log = folder / f"{name}.log"
        self._folder, self._root = folder, root
        self._env = {"HOLDFAST_URL": url, "CHAOS_FOLDER": str(folder), "CHAOS_TOPICS": ",".join(topics)}
        self._env["CHAOS_LEASE"] = str(LEASE_MS / 1000)
        self.starts = 0
        self.process = self._start()

    @property
    def pid(self) -> int:
        return self.process.pid

    def keep(self) -> None:
        """Begin anew what has ended."""
        if self.process.poll() is not None:
            self.process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        self.starts += 1
        # The service may be of another tree, the recorder is of this one.
        own = environment(self._root, self.clock)
        own["PYTHONPATH"] = f"{own['PYTHONPATH']}:{Path(__file__).parents[2]}"
        own |= self._env | {"CHAOS_WHO": f"{self.name}-{self.starts}"}
        with self.log.open("ab") as log:
            command = [sys.executable, "-m", "tools.chaos.worker"]
            return subprocess.Popen(command, cwd=self._folder, env=own, stderr=log)


class Crew:
    """Those of a round."""

    def __init__(self, names: Sequence[str], urls: Sequence[str], folder: Path, root: Path, topics: list[str]) -> None:
        self.members = [Member(name, url, folder, root, topics) for name, url in zip(names, urls, strict=True)]
        self._keeping = asyncio.create_task(self._keep())

    async def stop(self) -> list[int]:
        """Tell them to end. Their exit codes."""
        self._keeping.cancel()
        for member in self.members:
            signalled(member.pid, signal.SIGCONT)
            signalled(member.pid, signal.SIGTERM)
        return await asyncio.gather(*(asyncio.to_thread(_ended, member.process) for member in self.members))

    def kill(self) -> None:
        """End what still runs, whatever it does."""
        self._keeping.cancel()
        for member in self.members:
            member.process.kill()
            member.process.wait()

    async def _keep(self) -> None:
        while True:
            await asyncio.sleep(TICK)
            for member in self.members:
                member.keep()


def _ended(process: subprocess.Popen[bytes]) -> int:
    try:
        return process.wait(STOP_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        return process.wait()
