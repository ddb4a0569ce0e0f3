"""`serve`: holds the listening socket, keeps PostgreSQL and the server process running, and ends them in order.

The socket stays open while the server process is restarted: connections wait in its backlog and none is refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import socket
import sys
import time
from collections.abc import Mapping

from app import __version__
from app.db import schema
from app.db.embedded import EmbeddedPostgres
from app.errors import ConfigurationError
from app.settings import Settings
from app.supervisor import listener

log = logging.getLogger(__name__)

TICK = 0.1
QUICK_DEATH = 2.0  # seconds; a process that lived longer is started again without a delay
LONGEST_DELAY = 5.0
STILLBORN = 5  # quick deaths without an answer ever, after which it is given up
REFUSED = 3  # exit code of a server process that can't start like this; it has said why
WHOLE_STOP = 10.0


class GaveUp(Exception):
    """The server process does not come up. The reason is in the log above. `code`: what the command ends with."""

    def __init__(self, text: str, code: int = 1) -> None:
        super().__init__(text)
        self.code = code


async def serve(settings: Settings, environ: Mapping[str, str]) -> int:
    """Run until SIGTERM or SIGINT; the exit code. Raises ConfigurationError when the service can't start like this."""
    try:
        with listener.bind(settings.host, settings.port) as bound:
            return await Supervisor(settings, environ, bound).run()
    except listener.Taken as error:
        print(f"holdfast: {error}", file=sys.stderr)
        return 1
    except GaveUp as error:
        print(f"holdfast: {error}", file=sys.stderr)
        return error.code


class Supervisor:
    """One run of the service around a listening socket that the caller closes."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], bound: socket.socket) -> None:
        self._settings = settings
        self._environ = environ
        self._bound = bound
        self._postgres: EmbeddedPostgres | None = None
        self._child: asyncio.subprocess.Process | None = None
        self._url = ""
        self._version = ""
        self._answered = False

    async def run(self) -> int:
        stop = asyncio.Event()
        loop = asyncio.get_running_loop()
        for sig in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(sig, stop.set)
        work = asyncio.create_task(self._work())
        waiter = asyncio.create_task(stop.wait())
        try:
            await asyncio.wait({work, waiter}, return_when=asyncio.FIRST_COMPLETED)
            if work.done():
                work.result()
            return 0
        finally:
            began = time.monotonic()
            work.cancel()
            waiter.cancel()
            # The server process first: what it has in flight ends while the database is there.
            await asyncio.gather(work, waiter, return_exceptions=True)
            if self._postgres is not None:
                left = max(0.5, WHOLE_STOP - 1.0 - (time.monotonic() - began))
                await asyncio.to_thread(self._postgres.stop, left)

    async def _work(self) -> None:
        if self._settings.database_url is not None:
            self._url = self._settings.database_url.get_secret_value()
        else:
            self._postgres = EmbeddedPostgres(self._settings.data_dir, self._settings.pg_bindir)
            # A stop that comes meanwhile does not end the thread: stop() makes it give the start up.
            self._url = await asyncio.to_thread(self._postgres.start)
        found = await schema.facts(self._url)
        self._version = found.version
        if schema.judge(found):
            log.info("Migrating the schema from %s to %s", found.revision or "nothing", schema.KNOWN[-1])
            await schema.upgrade(self._url)
        try:
            async with asyncio.TaskGroup() as group:
                group.create_task(self._keep_server())
                group.create_task(self._announce())
                if self._postgres is not None:
                    group.create_task(self._keep_postgres(self._postgres))
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _keep_server(self) -> None:
        delay, quick = 0.0, 0
        for start in range(sys.maxsize):
            began = time.monotonic()
            code = await self._run_server()
            lived = time.monotonic() - began
            if start == 0 and code == REFUSED:
                raise GaveUp("The server process did not start; the reason stands above.", code=2)
            quick = quick + 1 if lived < QUICK_DEATH else 0
            delay = 0.0 if quick <= 1 else min(LONGEST_DELAY, max(0.1, delay * 2))
            if quick >= STILLBORN and not self._answered:
                raise GaveUp(f"The server process ended {quick} times at its start; the reason stands above.")
            log.error("The server process %s; starting it again%s", _end(code), f" in {delay:.1f} s" if delay else "")
            await asyncio.sleep(delay)

    async def _run_server(self) -> int:
        """Start the server process and wait for its end: its exit code, negative for a signal."""
        lifeline, held = os.pipe()
        environ = dict(self._environ) | {"HOLDFAST_DATABASE_URL": self._url}
        fd = self._bound.fileno()
        try:
            command = [sys.executable, "-m", "app", "_server", str(fd), str(lifeline)]
            child = await asyncio.create_subprocess_exec(
                *command, pass_fds=(fd, lifeline), env=environ, stdin=asyncio.subprocess.DEVNULL, start_new_session=True
            )
        finally:
            os.close(lifeline)
        self._child = child
        try:
            return await child.wait()
        finally:
            if child.returncode is None:
                await self._end_server(child)
            os.close(held)

    async def _end_server(self, child: asyncio.subprocess.Process) -> None:
        with contextlib.suppress(ProcessLookupError):
            child.terminate()
        try:
            await asyncio.wait_for(child.wait(), self._settings.stop_seconds + 1.5)
        except TimeoutError:
            log.warning("The server process did not stop in time and was killed")
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()

    async def _keep_postgres(self, postgres: EmbeddedPostgres) -> None:
        while True:
            await asyncio.sleep(TICK)
            if postgres.alive():
                continue
            log.error("PostgreSQL (process %s) ended; starting it again", postgres.pid)
            try:
                url = await asyncio.to_thread(postgres.restart)
            except (ConfigurationError, OSError) as error:
                log.error("%s", error)
                continue
            log.info("PostgreSQL runs again (process %s)", postgres.pid)
            if url != self._url and self._child is not None:
                # Another owner brought it back on another port: the server process has to be told.
                self._url = url
                with contextlib.suppress(ProcessLookupError):
                    self._child.terminate()

    async def _announce(self) -> None:
        host, port = listener.nearest(self._bound)
        while await listener.status(host, port, "/healthz") != 200:  # noqa: ASYNC110  (another process's state: there is no event)
            await asyncio.sleep(TICK / 2)
        self._answered = True
        guarded = await listener.status(host, port, "/v0/topics?page_size=1") == 401
        print(self._greeting(f"http://{f'[{host}]' if ':' in host else host}:{port}", guarded=guarded), flush=True)

    def _greeting(self, base: str, *, guarded: bool) -> str:
        where = f"data in {self._settings.data_dir}/" if self._postgres else "at HOLDFAST_DATABASE_URL"
        key = " -H 'authorization: Bearer <your key>'" if guarded else ""
        return (
            f"Holdfast {__version__} is running on {base}  (PostgreSQL {self._version}, {where})\n"
            f"Try:  curl -X PUT {base}/v0/topics/hello{key} -H 'content-type: application/json' "
            """-d '{"type": "queue", "durable": true}'"""
        )


def _end(code: int) -> str:
    return f"was killed by {signal.Signals(-code).name}" if code < 0 else f"ended with code {code}"
