"""Starts a server process, keeps it running, and stops it in order."""

from __future__ import annotations

import asyncio
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, ExitStack, suppress

log = logging.getLogger(__name__)

SLOT = "_HOLDFAST_SLOT"  # environment variable of a server process: its number, from 0
NUMBERS = "_HOLDFAST_NUMBERS"  # environment variable: the folder in which workers share their metrics
QUICK_DEATH = 2.0  # seconds; a process that lived longer is restarted without a delay
LONGEST_DELAY = 5.0
STILLBORN = 5  # consecutive quick deaths of a worker that never answered, before giving up
REFUSED = 3  # exit code of a server process that refuses its configuration and has logged why


class GaveUp(Exception):
    """A server process does not start. The log has the reason. `code`: the command's exit code."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


class Worker:
    """The process in one slot. It is restarted whenever it ends.

    `door` provides the socket that a process inherits: the listening one, or an end of the dispatcher's channel. A
    process loads its code while PostgreSQL starts. It gets the database's URL through a pipe, whose end also tells it
    that the supervisor is gone.
    """

    def __init__(
        self,
        slot: int,
        environ: Mapping[str, str],
        door: Callable[[], AbstractContextManager[socket.socket]],
        *,
        name: str,
        stop_seconds: float,
    ) -> None:
        self._environ = dict(environ) | {SLOT: str(slot)}
        self._door = door
        self._name = name
        self._stop_seconds = stop_seconds
        self._process: asyncio.subprocess.Process | None = None
        self._pipe: int | None = None
        self._url: str | None = None
        self.answered = False

    def use(self, url: str) -> None:
        """Set the database's URL. If it changes, the running process is restarted with the new one."""
        before, self._url = self._url, url
        if before is None:
            self._send_url()
        elif before != url and self._process is not None:
            with suppress(ProcessLookupError):
                self._process.terminate()

    async def keep(self) -> None:
        """Run until cancelled, then stop the process in order. Raises GaveUp if it never starts."""
        delay, quick = 0.0, 0
        for start in range(sys.maxsize):
            began = time.monotonic()
            code = await self._run()
            lived = time.monotonic() - began
            if start == 0 and code == REFUSED:
                raise GaveUp(f"{self._name} did not start. See the log above for the reason.", code=2)
            quick = quick + 1 if lived < QUICK_DEATH else 0
            delay = 0.0 if quick <= 1 else min(LONGEST_DELAY, max(0.1, delay * 2))
            if quick >= STILLBORN and not self.answered:
                raise GaveUp(f"{self._name} ended {quick} times at its start. See the log above for the reason.")
            log.error("%s %s. Restarting it%s", self._name, _end(code), f" in {delay:.1f} s" if delay else "")
            await asyncio.sleep(delay)

    async def _run(self) -> int:
        """Start a process and wait for its end. Returns its exit code, negative for a signal."""
        lifeline, held = os.pipe()
        try:
            with ExitStack() as inherited:
                inherited.callback(os.close, lifeline)
                fds = (inherited.enter_context(self._door()).fileno(), lifeline)
                self._process = process = await asyncio.create_subprocess_exec(
                    sys.executable, "-m", "app", "_server", *map(str, fds),
                    pass_fds=fds, env=self._environ, stdin=asyncio.subprocess.DEVNULL, start_new_session=True,
                )  # fmt: skip
            self._pipe = held
            self._send_url()
            try:
                return await process.wait()
            finally:
                if process.returncode is None:
                    await self._end(process)
        finally:
            self._pipe = None
            os.close(held)

    def _send_url(self) -> None:
        if self._pipe is not None and self._url is not None:
            with suppress(BrokenPipeError):
                os.write(self._pipe, f"{self._url}\n".encode())

    async def _end(self, process: asyncio.subprocess.Process) -> None:
        with suppress(ProcessLookupError):
            process.terminate()
        try:
            await asyncio.wait_for(process.wait(), self._stop_seconds + 1.5)
        except TimeoutError:
            log.warning("%s did not stop in time and was killed", self._name)
            with suppress(ProcessLookupError):
                process.kill()
            await process.wait()


def url_from(lifeline: int) -> str | None:
    """Wait for the database's URL from the supervisor's pipe. None if the supervisor is gone."""
    words = b""
    while not words.endswith(b"\n"):
        if not (more := os.read(lifeline, 4096)):
            return None
        words += more
    return words.decode().strip()


def _end(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
