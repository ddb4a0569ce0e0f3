"""`holdfast worker --processes N --reload`: a parent process that runs worker processes."""

from __future__ import annotations

import asyncio
import logging
import signal
import sys
from asyncio.subprocess import Process
from collections.abc import Sequence
from contextlib import suppress
from pathlib import PurePath
from typing import Final

try:
    from watchfiles import PythonFilter, awatch
except ImportError:
    CAN_RELOAD = False
else:
    CAN_RELOAD = True

log: Final = logging.getLogger("holdfast")

WORKED_SECONDS: Final = 60.0  # a worker that lives this long has started successfully
FIRST_PAUSE_SECONDS: Final = 0.5
LAST_PAUSE_SECONDS: Final = 30.0
DEATHS: Final = 3  # of each process, until the parent gives up
KILL_SECONDS: Final = 15.0  # after a worker's grace
USAGE: Final = 2  # exit code of a worker with wrong arguments, which would fail again


class Processes:
    """Keeps `count` workers running, each as `python -m holdfast worker …` in its own process group, so that a
    terminal's Ctrl-C reaches only this parent.

    Each worker's stdin is a pipe from the parent. A worker drains when it ends, even if the parent was killed."""

    def __init__(self, words: Sequence[str], count: int, *, grace: float, reload: bool) -> None:
        self._words = words
        self._count = count
        self._grace = grace
        self._reload = reload
        self._running: dict[int, Process] = {}
        self._terminated: set[Process] = set()  # terminated once. A second signal makes them return their running jobs
        self._deaths = [0] * count  # consecutive deaths of each worker
        self._worked = False  # whether any worker has started successfully
        self._stopping = asyncio.Event()
        self._nudge = asyncio.Event()  # ends pauses
        self._exit = 0

    async def run(self) -> int:
        """Run until SIGTERM or SIGINT, which are passed on to the workers each time, or until all workers die
        repeatedly. Returns the exit code, 0 if the workers ended well."""
        loop = asyncio.get_running_loop()
        for kind in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(kind, self._stop)
        keepers = [asyncio.create_task(self._keep(number)) for number in range(self._count)]
        watcher = asyncio.create_task(self._watch()) if self._reload else None
        try:
            await asyncio.gather(*keepers)
        finally:
            if watcher:
                watcher.cancel()
        return self._exit

    def _stop(self) -> None:
        again = self._stopping.is_set()
        if not again:
            asyncio.get_running_loop().call_later(self._grace + KILL_SECONDS, self._kill)
        self._stopping.set()
        self._nudge.set()
        for process in self._running.values():
            self._terminate(process, again)

    def _terminate(self, process: Process, again: bool = False) -> None:
        """Terminate a worker, once unless `again`."""
        if again or process not in self._terminated:
            self._terminated.add(process)
            process.terminate()

    def _kill(self) -> None:
        for process in self._running.values():
            log.error("Worker process %d does not end. Killing it", process.pid)
            process.kill()

    async def _keep(self, number: int) -> None:
        """Run a worker, and replace it when it has ended."""
        while not self._stopping.is_set():
            try:
                process = await self._start()
            except OSError as error:
                await self._after_death(number, f"A worker process can't start: {error}", 1)
                continue
            self._running[number] = process
            if self._stopping.is_set():  # the signal came while this one started
                self._terminate(process)
            survives = asyncio.get_running_loop().call_later(WORKED_SECONDS, self._has_worked, number)
            code = await process.wait()
            survives.cancel()
            del self._running[number]
            terminated = process in self._terminated
            self._terminated.discard(process)
            if self._stopping.is_set():
                well = code in (0, -signal.SIGTERM)  # SIGTERM before it handled signals: it had no jobs yet
                self._exit = self._exit or (0 if well else 1)
            elif not terminated:
                await self._after_death(number, f"Worker process {process.pid} ended with exit code {code}", code)

    def _has_worked(self, number: int) -> None:
        self._deaths[number] = 0
        self._worked = True

    async def _start(self) -> Process:
        command = [sys.executable, "-m", "holdfast", "worker", *self._words]
        process = await asyncio.create_subprocess_exec(*command, stdin=asyncio.subprocess.PIPE, process_group=0)
        log.info("Worker process %d started", process.pid)
        return process

    async def _after_death(self, number: int, what: str, code: int) -> None:
        """Wait before the worker is replaced, longer after each death; or give up."""
        self._deaths[number] += 1
        hopeless = (code == USAGE and not self._worked) or min(self._deaths) >= DEATHS
        if hopeless and not self._reload:
            log.error("%s. Giving up", what)
            self._exit = code if code > 0 else 1
            self._stop()
            return
        pause = min(FIRST_PAUSE_SECONDS * 2 ** (self._deaths[number] - 1), LAST_PAUSE_SECONDS)
        log.warning("%s. Restarting it in %g s", what, pause)
        with suppress(TimeoutError):
            await asyncio.wait_for(self._nudge.wait(), pause)

    async def _watch(self) -> None:
        """Replace the workers when a source file changes. Each drains first."""
        try:
            async for names in awatch(".", watch_filter=PythonFilter()):
                changed = sorted({PurePath(name).name for _, name in names})
                log.info("%s changed: restarting the workers", ", ".join(changed))
                self._nudge.set()
                self._nudge.clear()
                for process in self._running.values():
                    self._terminate(process)
        except (OSError, RuntimeError) as error:
            log.error("Can't watch for changes any more: %s", error)
