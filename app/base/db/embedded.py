"""The default PostgreSQL: a server of our own in the data folder, started and stopped with the service.

    <data_dir>/pg<major>/          the cluster; made as pg<major>.init, then renamed: a half-made one is never used
    <data_dir>/pg<major>.password  of the user holdfast, mode 0600
    <data_dir>/pg<major>.port      the port it last listened on, taken again when it is free
    <data_dir>/owner.lock          flock of the process that stops the server; its number, for messages
    <data_dir>/postgres.log

It listens on 127.0.0.1 only. Whoever holds the lock starts, adopts and stops the server; others only use it.
Everything here blocks: call it through asyncio.to_thread.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path

import asyncpg

from app.base.db.cluster import DATABASE, DatabaseCluster, OwnerLock
from app.base.db.programs import Launcher, disown_stale_file, find_programs, is_alive, read_postmaster
from app.errors import ConfigurationError

log = logging.getLogger(__name__)

READY_SECONDS = 300.0  # recovery after a crash reads up to max_wal_size of log
JOIN_SECONDS = 20.0
RETRY_SECONDS = 5.0
RESTART_SECONDS = 30.0
TICK = 0.01
CONNECTIONS = 200
STOPPED = "Stopped while PostgreSQL was starting"


class EmbeddedPostgres:
    """One cluster. `connections` is its max_connections, if it is started here and not found running.

    `unsafe_fast` gives up durability for speed: for tests, whose data nobody misses.
    """

    def __init__(
        self,
        data_dir: Path,
        bindir: Path | None = None,
        *,
        connections: int = CONNECTIONS,
        unsafe_fast: bool = False,
    ) -> None:
        self._folder = data_dir.absolute()
        self._bindir = bindir
        self._connections = connections
        self._unsafe_fast = unsafe_fast
        self._guard = threading.Lock()
        self._halt = threading.Event()
        self._lock = OwnerLock()
        self._launcher: Launcher | None = None
        self._child: subprocess.Popen[bytes] | None = None
        self._pid: int | None = None
        self._port = 0
        self._cluster: DatabaseCluster | None = None

    @property
    def cluster(self) -> DatabaseCluster:
        """The files; known after start()."""
        assert self._cluster is not None, "start() comes first"
        return self._cluster

    @property
    def url(self) -> str:
        """Of the database, with the password in it; known after start()."""
        return self.cluster.url(self._port)

    @property
    def pid(self) -> int | None:
        """The server's process, from start() to stop(), also when it has just died."""
        return self._pid

    @property
    def is_owner(self) -> bool:
        """Whether stop() will stop the server."""
        return self._lock.is_ours

    def start(self) -> str:
        """Start, adopt or join the server; the URL of its database, which is created when absent.

        Raises ConfigurationError with the one line that the operator needs.
        """
        with self._guard:
            self._cluster = DatabaseCluster(self._folder, find_programs(self._bindir))
            self._launcher = self._launcher or Launcher()
            try:
                self._bring_up(self._cluster.ports(), RETRY_SECONDS)
            except BaseException:
                self._end(3.0)
                raise
            return self.url

    def restart(self) -> str:
        """Bring back a server that died, on its port, so that the URL handed out stays true.

        One that lives, or that another owner has brought back, is left as it is. A process that had only joined
        becomes the owner when there is no other any more.
        """
        with self._guard:
            if not self.alive():
                self._bring_up(itertools.repeat(self._port), RESTART_SECONDS)
            return self.url

    def alive(self) -> bool:
        """Whether the server's process runs. Cheap enough for a loop of ten a second."""
        if self._child is not None:
            return self._child.poll() is None
        return self._pid is not None and is_alive(self._pid, self.cluster.data)

    def stop(self, seconds: float = 20.0) -> None:
        """Stop the server if it is ours: open transactions are rolled back, and a checkpoint is written.

        After `seconds` it is stopped without the checkpoint: nothing is lost, and the next start replays the log.
        A start() under way in another thread is given up.
        """
        self._halt.set()
        with self._guard:
            try:
                self._end(seconds)
            finally:
                self._halt.clear()

    def _end(self, seconds: float) -> None:
        try:
            if self.is_owner and self._pid is not None:
                for sig, patience in ((signal.SIGINT, seconds), (signal.SIGQUIT, 3.0), (signal.SIGKILL, 3.0)):
                    if not self.alive():
                        break
                    with suppress(ProcessLookupError):
                        os.kill(self._pid, sig)
                    _until(lambda: not self.alive(), patience)
        finally:
            self._lock.release()
            if self._launcher is not None:
                self._launcher.close()
            self._child = self._pid = self._launcher = None

    def _bring_up(self, ports: Iterator[int], patience: float) -> None:
        end = time.monotonic() + JOIN_SECONDS
        while not self._lock.take(self.cluster.lock):
            if self._use_running():
                return
            if time.monotonic() > end:
                raise ConfigurationError(
                    f"Process {self._lock.holder(self.cluster.lock)} owns {self._folder}, and its PostgreSQL is not "
                    "ready: try again in a moment, or set HOLDFAST_DATA_DIR to another folder"
                )
            self._pause()
        end = time.monotonic() + READY_SECONDS
        while (left_behind := read_postmaster(self.cluster.data)) is not None:
            if self._use_running():
                log.info("Adopted the PostgreSQL that was running (process %d)", left_behind.pid)
                return
            if time.monotonic() > end:
                raise ConfigurationError(f"Process {left_behind.pid} holds {self.cluster.data} and doesn't answer")
            self._pause()
        assert self._launcher is not None
        self.cluster.make(self._launcher, sync=not self._unsafe_fast)
        self._launch(ports, patience)

    def _use_running(self) -> bool:
        """Whether a server that runs on these files lets us in; it is the one we use then."""
        found = read_postmaster(self.cluster.data)
        if found is None or not found.ready or not self.cluster.password.exists():
            return False
        try:
            self._enter(found.port)
        except (OSError, asyncpg.PostgresConnectionError, asyncpg.CannotConnectNowError):
            return False  # it is stopping, or not quite there
        except asyncpg.InvalidAuthorizationSpecificationError:
            raise ConfigurationError(
                f"The PostgreSQL that runs in {self.cluster.data} (process {found.pid}) does not take the password in "
                f"{self.cluster.password}: stop it, or put the password back"
            ) from None
        self._child, self._pid, self._port = None, found.pid, found.port
        return True

    def _launch(self, ports: Iterator[int], patience: float) -> None:
        # A start that fails is tried again for a while, whatever it says: the children of a postmaster that was
        # killed hold its shared memory for a moment, and a port can be taken between the look and the bind.
        end = time.monotonic() + patience
        for port in ports:
            start_of_log = self._spawn(port)
            if self._is_ready():
                self._port = port
                self.cluster.remember(port)
                self._enter(port)
                return
            if time.monotonic() > end:
                raise ConfigurationError(f"PostgreSQL does not start: {self.cluster.last_words(start_of_log)}")
            self._pause(0.05)

    def _spawn(self, port: int) -> int:
        assert self._launcher is not None
        disown_stale_file(self.cluster.data)
        start_of_log = self.cluster.trim_log()
        with self.cluster.log.open("ab") as file:
            self._child = self._launcher.server(
                self.cluster.programs.bindir,
                self.cluster.data,
                port,
                file,
                connections=self._connections,
                unsafe_fast=self._unsafe_fast,
            )
        self._pid = self._child.pid
        return start_of_log

    def _is_ready(self) -> bool:
        """Wait until the server that we have just started takes connections. False: it ended instead."""
        end = time.monotonic() + READY_SECONDS
        while self.alive():
            found = read_postmaster(self.cluster.data)
            if found is not None and found.ready and found.pid == self._pid:
                return True
            if time.monotonic() > end:
                raise ConfigurationError(f"PostgreSQL is not ready after {READY_SECONDS:.0f} s: see {self.cluster.log}")
            self._pause()
        return False

    def _enter(self, port: int) -> None:
        # In the launcher's thread, so that a caller whose own thread runs an event loop can call start() as well.
        assert self._launcher is not None
        self._launcher.thread.submit(lambda: asyncio.run(self._connect_or_create(port))).result()

    async def _connect_or_create(self, port: int) -> None:
        try:
            connection = await asyncpg.connect(self.cluster.url(port), timeout=10)
        except asyncpg.InvalidCatalogNameError:
            connection = await asyncpg.connect(self.cluster.url(port, "postgres"), timeout=10)
            with suppress(asyncpg.DuplicateDatabaseError, asyncpg.UniqueViolationError):
                await connection.execute(f"CREATE DATABASE {DATABASE}")
        try:
            await connection.close(timeout=5)
        finally:
            connection.terminate()

    def _pause(self, seconds: float = TICK) -> None:
        if self._halt.wait(seconds):
            raise ConfigurationError(STOPPED)


def _until(fact: Callable[[], bool], seconds: float) -> None:
    end = time.monotonic() + seconds
    while not fact() and time.monotonic() < end:
        time.sleep(TICK)
