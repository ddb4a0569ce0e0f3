"""The worker processes: starting them, watching their journals, killing one, and ending the rest."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict
from pathlib import Path
from typing import Final

from app.demo.client import Refused
from app.demo.journal import Reader, Task
from app.demo.tally import Tally

TICK: Final = 0.02
READY_SECONDS: Final = 30.0


class Crew:
    """One process for each task; a context manager, at whose end none of them runs."""

    def __init__(self, tasks: list[Task], tally: Tally) -> None:
        self._tasks = tasks
        self._tally = tally
        self._processes: dict[str, subprocess.Popen[str]] = {}
        self._journals: dict[str, Reader] = {}

    def __enter__(self) -> Crew:
        for task in self._tasks:
            Path(task.journal).touch()
            self._journals[task.node] = Reader(Path(task.journal))
            process = subprocess.Popen(
                [sys.executable, "-m", "app.demo.worker"],
                stdin=subprocess.PIPE,
                text=True,
                start_new_session=True,  # Ctrl+C is for the demo, which ends them
            )
            self._processes[task.node] = process
            self._tell(task.node, json.dumps(asdict(task)))
        return self

    def __exit__(self, *_: object) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            with suppress(OSError):  # what was not sent to a process that has gone
                process.communicate()

    def go(self) -> None:
        """Let them begin at the same moment, when all of them are ready. Raises Refused."""
        end = time.monotonic() + READY_SECONDS
        while not all(hand.ready for hand in self._tally.hands.values()):
            self._look()
            if any(process.poll() is not None for process in self._processes.values()) or time.monotonic() > end:
                raise Refused("a worker did not start; what it said stands above")
        self._tally.began = time.monotonic()
        for node in self._processes:
            self._tell(node, "go")

    def watch(
        self, finished: Callable[[], bool], killed: Callable[[str, int, int], None], show: Callable[[], None]
    ) -> None:
        """Count what they do until `finished`. One that hangs is killed, and `killed` told its name, how many jobs it
        held, and for how many of them it had written a result. Raises Refused when none is left to go on."""
        while not finished():
            self._look()
            for node, hand in self._tally.hands.items():
                if hand.hangs and not hand.killed:
                    self._processes[node].send_signal(signal.SIGKILL)
                    self._processes[node].wait()
                    hand.killed = True
                    killed(node, hand.batch, hand.in_batch)
            if all(process.poll() is not None for process in self._processes.values()):
                raise Refused("no worker is left; what they said stands above")
            show()
        self._tally.ended = time.monotonic()

    def _look(self) -> None:
        time.sleep(TICK)
        for node, journal in self._journals.items():
            for line in journal.new():
                self._tally.add(node, line)

    def _tell(self, node: str, line: str) -> None:
        stdin = self._processes[node].stdin
        assert stdin is not None
        with suppress(BrokenPipeError):  # it has ended; go() and watch() find that
            stdin.write(f"{line}\n")
            stdin.flush()
