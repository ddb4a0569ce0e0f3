"""The embedded PostgreSQL: a server in the data folder, started and stopped with the service.

    <data_dir>/pg<major>/          the cluster; made as pg<major>.init, then renamed, so it is never half-made
    <data_dir>/pg<major>.password  password of the user holdfast, mode 0600
    <data_dir>/pg<major>.port      the last port, reused if it is free
    <data_dir>/owner.lock          flock of the process that stops the server, with its id for messages
    <data_dir>/postgres.log

It listens on 127.0.0.1 only. The process with the lock starts, adopts and stops the server; others only use it.
All methods block: call them through asyncio.to_thread.
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

READY_SECONDS = 300.0  # recovery after a crash replays up to max_wal_size of log
JOIN_SECONDS = 20.0
RETRY_SECONDS = 5.0
RESTART_SECONDS = 30.0
TICK = 0.01
CONNECTIONS = 200
STOPPED = "Stopped while PostgreSQL was starting"


class EmbeddedPostgres:
    """One cluster. `connections` is its max_connections, unless the server was already running.

    `unsafe_fast` gives up durability for speed, for tests.
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
        """The cluster's files; available after start()."""
        assert self._cluster is not None, "start() comes first"
        return self._cluster

    @property
    def url(self) -> str:
        """The database's URL, including the password; available after start()."""
        return self.cluster.url(self._port)

    @property
    def pid(self) -> int | None:
        """The server's process id from start() to stop(), even if it has just died."""
        return self._pid

    @property
    def is_owner(self) -> bool:
        """Whether stop() will stop the server."""
        return self._lock.is_ours

    def start(self) -> str:
        """Start, adopt or join the server, and create the database if necessary. Returns the database's URL.

        Raises ConfigurationError with a message for the operator.
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
        """Restart a dead server on its old port, so that the URL stays valid. Returns the URL.

        A server that lives, or that another owner has restarted, is left alone. A process that had only joined becomes
        the owner if there is no other one.
        """
        with self._guard:
            if not self.alive():
                self._bring_up(itertools.repeat(self._port), RESTART_SECONDS)
            return self.url

    def alive(self) -> bool:
        """Whether the server's process runs. Cheap enough for ten calls a second."""
        if self._child is not None:
            return self._child.poll() is None
        return self._pid is not None and is_alive(self._pid, self.cluster.data)

    def stop(self, seconds: float = 20.0) -> None:
        """Stop the server if this process owns it. Open transactions are rolled back, and a checkpoint is written.

        After `seconds` it is stopped without the checkpoint. Nothing is lost: the next start replays the log.
        Aborts a start() that is running in another thread.
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
                    f"Process {self._lock.holder(self.cluster.lock)} owns {self._folder}, but its PostgreSQL is not "
                    "ready. Try again in a moment, or set HOLDFAST_DATA_DIR to another folder"
                )
            self._pause()
        end = time.monotonic() + READY_SECONDS
        while (left_behind := read_postmaster(self.cluster.data)) is not None:
            if self._use_running():
                log.info("Adopted the running PostgreSQL (process %d)", left_behind.pid)
                return
            if time.monotonic() > end:
                raise ConfigurationError(f"Process {left_behind.pid} uses {self.cluster.data} and doesn't answer")
            self._pause()
        assert self._launcher is not None
        self.cluster.make(self._launcher, sync=not self._unsafe_fast)
        self._launch(ports, patience)

    def _use_running(self) -> bool:
        """Try to use a server that already runs on these files. Returns whether that worked."""
        found = read_postmaster(self.cluster.data)
        if found is None or not found.ready or not self.cluster.password.exists():
            return False
        try:
            self._enter(found.port)
        except (OSError, asyncpg.PostgresConnectionError, asyncpg.CannotConnectNowError):
            return False  # it is stopping or not ready yet
        except asyncpg.InvalidAuthorizationSpecificationError:
            raise ConfigurationError(
                f"The PostgreSQL that runs in {self.cluster.data} (process {found.pid}) rejects the password in "
                f"{self.cluster.password}. Stop it, or restore the password"
            ) from None
        self._child, self._pid, self._port = None, found.pid, found.port
        return True

    def _launch(self, ports: Iterator[int], patience: float) -> None:
        # Retry a failed start for a while: the children of a killed postmaster hold its shared memory for a moment, and
        # the port can be taken between the check and the bind.
        end = time.monotonic() + patience
        for port in ports:
            start_of_log = self._spawn(port)
            if self._is_ready():
                self._port = port
                self.cluster.remember(port)
                self._enter(port)
                return
            if time.monotonic() > end:
                raise ConfigurationError(f"PostgreSQL did not start: {self.cluster.last_words(start_of_log)}")
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
        """Wait until the new server accepts connections. Returns False if it ended instead."""
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
        # In the launcher's thread: the caller's thread may run an event loop.
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
