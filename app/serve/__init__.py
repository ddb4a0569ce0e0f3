"""`serve`: owns the listening socket, keeps PostgreSQL and the workers running, and stops them in order.

A worker is a server process. A single worker inherits the listening socket; several workers get their connections from
the dispatcher. The socket stays open while a worker restarts: connections wait in its backlog, and none is refused.
"""

from __future__ import annotations

import asyncio
import logging
import signal
import socket
import sys
import tempfile
import time
from collections.abc import Mapping
from contextlib import nullcontext

from app import __version__
from app.base.db import schema
from app.base.db.embedded import CONNECTIONS, EmbeddedPostgres
from app.base.log import as_line
from app.base.loops import Loop
from app.errors import ConfigurationError
from app.serve import listener
from app.serve.dispatch import Dispatcher
from app.serve.worker import NUMBERS, GaveUp, Worker
from app.settings import CLIENTS_KEY, PREFIX, Settings

log = logging.getLogger(__name__)

TICK = 0.1
WHOLE_STOP = 10.0
SPARE_CONNECTIONS = 60  # of the embedded server: reserved ones, migrations, psql, another service on the same data
SPARE_FILES = 512  # of a server process, in addition to callers' connections: to the database, and refused callers


async def serve(settings: Settings, environ: Mapping[str, str]) -> int:
    """Run until SIGTERM or SIGINT. Returns the exit code. Raises ConfigurationError if the service can't start."""
    if environ.get(CLIENTS_KEY) and not settings.api_keys:
        log.info(
            "%s is a setting of the client. The service ignores it; set its keys with %sAPI_KEYS", CLIENTS_KEY, PREFIX
        )
    try:
        with listener.bind(settings.host, settings.port) as bound:
            return await Supervisor(settings, environ, bound).run()
    except listener.AddressTaken as error:
        print(f"holdfast: {error}", file=sys.stderr)
        return 1
    except GaveUp as error:
        print(f"holdfast: {error}", file=sys.stderr)
        return error.code


class Supervisor:
    """One run of the service on a listening socket, which the caller closes."""

    def __init__(self, settings: Settings, environ: Mapping[str, str], bound: socket.socket) -> None:
        self._settings = settings
        self._bound = bound
        self._postgres: EmbeddedPostgres | None = None
        self._keeper: Loop | None = None
        self._version = ""
        self._files = listener.allow_files(settings.max_connections + SPARE_FILES)
        one = settings.workers == 1
        self._dispatcher = None if one else Dispatcher(bound, settings.workers)
        # Several workers share their metrics, so that each can answer for all.
        self._numbers = None if one else tempfile.TemporaryDirectory(prefix="holdfast-")
        shared = {} if self._numbers is None else {NUMBERS: self._numbers.name}
        self._workers = [
            Worker(
                slot,
                dict(environ) | shared,
                (lambda: nullcontext(bound)) if self._dispatcher is None else self._dispatcher.door,
                name="The server process" if one else f"Worker {slot}",
                stop_seconds=settings.stop_seconds,
            )
            for slot in range(settings.workers)
        ]

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
            # New connections are refused from now on, so clients can go elsewhere. Existing ones are answered.
            if self._dispatcher is not None:
                self._dispatcher.last_turn()
            self._bound.close()
            work.cancel()
            waiter.cancel()
            # Stop the workers first, so that their calls end while the database still runs.
            await asyncio.gather(work, waiter, return_exceptions=True)
            if self._keeper is not None:
                await self._keeper.stop()
            if self._postgres is not None:
                left = max(0.5, WHOLE_STOP - 1.0 - (time.monotonic() - began))
                await asyncio.to_thread(self._postgres.stop, left)
            if self._numbers is not None:
                self._numbers.cleanup()

    async def _work(self) -> None:
        try:
            async with asyncio.TaskGroup() as group:
                # The workers load their code while the database starts.
                for worker in self._workers:
                    group.create_task(worker.keep())
                if self._dispatcher is not None:
                    group.create_task(self._dispatcher.run())
                group.create_task(self._announce())
                await self._prepare_database()
                if self._postgres is not None:
                    self._keeper = self._keep(self._postgres)
                    self._keeper.start()
        except BaseExceptionGroup as failures:
            raise failures.exceptions[0] from None

    async def _prepare_database(self) -> None:
        settings = self._settings
        if settings.database_url is not None:
            url = settings.database_url.get_secret_value()
        else:
            connections = max(CONNECTIONS, settings.connections + SPARE_CONNECTIONS)
            self._postgres = EmbeddedPostgres(settings.data_dir, settings.pg_bindir, connections=connections)
            # A cancellation does not end the thread. stop() aborts the start.
            url = await asyncio.to_thread(self._postgres.start)
        found = await self._wait_for_database(url)
        self._version = found.version
        if schema.judge(found):
            log.info("Migrating the schema from %s to %s", found.revision or "nothing", schema.KNOWN[-1])
            await schema.upgrade(url)
            schema.judge(await schema.facts(url))
        if found.connections < settings.connections and settings.prepared_statements:
            log.warning(
                "PostgreSQL allows %d connections (max_connections %d without those reserved for superusers), but "
                "HOLDFAST_WORKERS=%d may open %d. Raise max_connections, or lower HOLDFAST_WORKERS, "
                "HOLDFAST_HOT_CONNECTIONS or HOLDFAST_REST_CONNECTIONS",
                found.connections, found.most, settings.workers, settings.connections,
            )  # fmt: skip
        if self._files < settings.max_connections + SPARE_FILES:
            log.warning(
                "A process can open %d files, but HOLDFAST_MAX_CONNECTIONS=%d needs %d. Raise the limit "
                "(LimitNOFILE= of systemd, ulimits of a container, ulimit -Hn), or lower HOLDFAST_MAX_CONNECTIONS",
                self._files, settings.max_connections, settings.max_connections + SPARE_FILES,
            )  # fmt: skip
        for worker in self._workers:
            worker.use(url)

    async def _wait_for_database(self, url: str) -> schema.DatabaseFacts:
        """Wait for the database. Returns its facts. Meanwhile callers get a 503."""
        room = listener.WaitingRoom(self._bound)
        try:
            return await schema.wait_for_facts(url, self._settings.start_wait_seconds, room.open)
        finally:
            room.close()

    def _keep(self, postgres: EmbeddedPostgres) -> Loop:
        async def once() -> None:
            if postgres.alive():
                return
            why = postgres.cluster.lack_of_room() or "see postgres.log in the data folder"
            log.error("PostgreSQL (process %s) ended: %s. Restarting it", postgres.pid, why)
            try:
                url = await asyncio.to_thread(postgres.restart)
            except (ConfigurationError, OSError) as error:
                log.error("%s", error)
                return
            log.info("PostgreSQL runs again (process %s)", postgres.pid)
            # Another owner may have restarted it on another port.
            for worker in self._workers:
                worker.use(url)

        return Loop("keep PostgreSQL running", once, TICK, first=TICK)

    async def _announce(self) -> None:
        if self._dispatcher is not None:
            await self._dispatcher.complete.wait()
        host, port = listener.nearest(self._bound)
        while await listener.status(host, port, "/healthz") != 200:  # noqa: ASYNC110  (another process: there is no event)
            await asyncio.sleep(TICK / 2)
        for worker in self._workers:
            worker.answered = True
        guarded = await listener.status(host, port, "/v0/topics?page_size=1") == 401
        greeting = self._greeting(f"http://{f'[{host}]' if ':' in host else host}:{port}", guarded=guarded)
        if self._settings.log_format == "json":
            greeting = as_line(log, greeting.partition("\n")[0])
        print(greeting, flush=True)

    def _greeting(self, base: str, *, guarded: bool) -> str:
        where = f"data in {self._settings.data_dir}/" if self._postgres else "at HOLDFAST_DATABASE_URL"
        key = " -H 'authorization: Bearer <your key>'" if guarded else ""
        return (
            f"Holdfast {__version__} is running on {base}  (PostgreSQL {self._version}, {where})\n"
            f"Try:  curl -X PUT {base}/v0/topics/hello{key} -H 'content-type: application/json' "
            """-d '{"type": "queue", "durable": true}'\n"""
            f"See:  {base}/admin"
        )
