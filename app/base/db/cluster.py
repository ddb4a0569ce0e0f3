"""The embedded server's files: finds or makes the cluster in a data folder, and locks it."""

from __future__ import annotations

import errno
import fcntl
import os
import re
import secrets
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from random import SystemRandom

from app.base.db.programs import HOST, Binaries, Launcher, system_account
from app.errors import ConfigurationError

USER = DATABASE = "holdfast"
INIT_SECONDS = 120.0
LOG_BYTES = 32 * 1024 * 1024
LOG_FILE_BYTES = 16 * 1024 * 1024  # PostgreSQL needs room for one more file of its write-ahead log

# Below the range of ephemeral ports. In that range, a client that reconnects while the server is down may get the
# server's own port, connect to itself, and block the port.
PORTS = range(15432, 25432)


class DatabaseCluster:
    """The files of a cluster in `folder`.

    Raises ConfigurationError if the folder can't be written, or has data of another major version.
    """

    def __init__(self, folder: Path, programs: Binaries) -> None:
        self.folder = folder
        self.programs = programs
        self.data = folder / f"pg{programs.major}"
        self.password = folder / f"pg{programs.major}.password"
        self.port = folder / f"pg{programs.major}.port"
        self.log = folder / "postgres.log"
        self.lock = folder / "owner.lock"
        try:
            folder.mkdir(parents=True, exist_ok=True)
            os.close(os.open(self.lock, os.O_RDWR | os.O_CREAT, 0o644))
        except OSError as error:
            raise ConfigurationError(
                f"Can't write to the data folder {folder} ({error.strerror}). Set HOLDFAST_DATA_DIR to another one"
            ) from None
        self._refuse_other_major()

    def url(self, port: int, database: str = DATABASE) -> str:
        """The URL of a database, including the password. Raises FileNotFoundError before make()."""
        return f"postgresql://{USER}:{self.password.read_text()}@{HOST}:{port}/{database}"

    def make(self, launcher: Launcher, *, sync: bool) -> None:
        """Make the cluster if it does not exist. Call it only with the owner's lock."""
        if self.data.exists():
            return
        fresh = self.data.with_suffix(".init")
        shutil.rmtree(fresh, ignore_errors=True)
        fresh.mkdir(0o700)
        self.password.unlink(missing_ok=True)
        with os.fdopen(os.open(self.password, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as file:
            file.write(secrets.token_urlsafe(24))
            file.flush()
            os.fsync(file.fileno())
        account = system_account()
        if account.uid is not None and account.gid is not None:
            os.chown(self.password, account.uid, account.gid)
            os.chown(fresh, account.uid, account.gid)
        command: list[str | Path] = [self.programs.bindir / "initdb", "-D", fresh, "-U", USER]
        command += ["--auth=scram-sha-256", f"--pwfile={self.password}", "--encoding=UTF8", "--locale=C"]
        made = launcher.program(command if sync else [*command, "--no-sync"], subprocess.PIPE)
        words = made.communicate(timeout=INIT_SECONDS)[0].decode(errors="replace")
        if made.returncode != 0:
            faults = re.findall(r"(?:error|FATAL): +(.+)", words) or words.split("\n")[-2:]
            raise ConfigurationError(f"Can't make a database cluster in {self.folder}: {' '.join(faults).strip()}")
        fresh.rename(self.data)
        folder = os.open(self.folder, os.O_RDONLY)
        os.fsync(folder)
        os.close(folder)

    def ports(self) -> Iterator[int]:
        """Free ports to listen on. The last used one comes first, so that the address stays the same."""
        with suppress(FileNotFoundError, ValueError):
            last = int(self.port.read_text())
            if _is_free(last):
                yield last
        dice = SystemRandom()
        while port := next((port for port in dice.sample(PORTS, 50) if _is_free(port)), None):
            yield port
        raise ConfigurationError(f"There is no free port for PostgreSQL between {PORTS.start} and {PORTS.stop}")

    def remember(self, port: int) -> None:
        self.port.write_text(f"{port}\n")

    def trim_log(self) -> int:
        """Rotate the log if it is long. Returns its size in bytes."""
        if self.log.exists() and self.log.stat().st_size > LOG_BYTES:
            self.log.replace(self.log.with_suffix(".log.1"))
        return self.log.stat().st_size if self.log.exists() else 0

    def last_words(self, start: int) -> str:
        """Why a server did not start: a full disk, the last FATAL line after `start` bytes of the log, or the log's
        path."""
        if full := self.lack_of_room():
            return full
        with suppress(OSError), self.log.open("rb") as file:
            file.seek(start)
            lines = file.read().decode(errors="replace").splitlines()
            faults = [line.partition("FATAL:")[2].strip() for line in lines if "FATAL:" in line] or lines[-1:]
            if faults:
                return f"{faults[-1]} ({self.log})"
        return f"see {self.log}"

    def lack_of_room(self) -> str | None:
        """A message that the disk is full; None if PostgreSQL has room for its next file of write-ahead log."""
        free = shutil.disk_usage(self.folder).free
        if free >= LOG_FILE_BYTES:
            return None
        return f"the disk of {self.folder} is full ({free // 1024:,} KiB free): free some space"

    def _refuse_other_major(self) -> None:
        marker = self.data / "PG_VERSION"
        made_by = {marker.read_text().strip()} if marker.exists() else set()
        if not self.data.exists():
            made_by = {path.parent.name.removeprefix("pg") for path in self.folder.glob("pg*[0-9]/PG_VERSION")}
        if made_by and str(self.programs.major) not in made_by:
            raise ConfigurationError(
                f"The data in {self.folder} belongs to PostgreSQL {', '.join(sorted(made_by))}, but the programs are "
                f"{self.programs.version}. Set HOLDFAST_PG_BINDIR to the old programs, or run pg_upgrade"
            )


class OwnerLock:
    """A flock. The process that holds it stops the embedded server. The kernel releases it when the process ends.

    The file has the process's id, for messages."""

    def __init__(self) -> None:
        self._fd: int | None = None

    @property
    def is_ours(self) -> bool:
        return self._fd is not None

    def take(self, path: Path) -> bool:
        """Try to take the lock, without waiting. Returns whether this process holds it."""
        if self._fd is not None:
            return True
        fd = os.open(path, os.O_RDWR)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            os.close(fd)
            if error.errno in (errno.EAGAIN, errno.EACCES):
                return False
            raise
        os.ftruncate(fd, 0)
        os.pwrite(fd, f"{os.getpid()}\n".encode(), 0)
        self._fd = fd
        return True

    def release(self) -> None:
        if self._fd is not None:
            os.close(self._fd)
            self._fd = None

    @staticmethod
    def holder(path: Path) -> str:
        """The id of the process that holds the lock, or held it last."""
        return path.read_text().strip()


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((HOST, port))
        except OSError:
            return False
        return True
