"""The server as a process: starting programs under the right account, and what postmaster.pid says."""

from __future__ import annotations

import os
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from app.base.db import binaries
from app.errors import ConfigurationError

HOST = "127.0.0.1"

SETTINGS = {
    "listen_addresses": HOST,
    "unix_socket_directories": "",
    "timezone": "UTC",
    "log_timezone": "UTC",
    "cluster_name": "holdfast",
    "shared_buffers": "128MB",
    "max_wal_size": "2GB",
    "checkpoint_timeout": "15min",
    "autovacuum_naptime": "15s",  # a queue's tables turn over in minutes
    "jit": "off",  # every statement here is short
}
# For tests, which also prepare transactions as some users of SQL do.
UNSAFE = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_prepared_transactions": "20",
    "holdfast.may_lose_data": "on",
}


@dataclass(frozen=True, slots=True)
class Postmaster:
    """What a live server says of itself."""

    pid: int
    port: int
    ready: bool


def read(data: Path) -> Postmaster | None:
    """The server that runs on this folder; None when there is none, or only the file of a dead one."""
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
        pid, port = int(lines[0]), int(lines[3])
    except (FileNotFoundError, ValueError, IndexError):
        return None
    ready = len(lines) >= 8 and lines[7].strip() == "ready"
    return Postmaster(pid, port, ready) if is_alive(pid, data) else None


def is_alive(pid: int, data: Path) -> bool:
    """Whether that process is a server on that folder: numbers of processes are used again."""
    if Path("/proc/self/cwd").is_symlink():
        # A server changes into its folder before it writes postmaster.pid. A zombie has no cwd.
        with suppress(OSError):
            return Path(f"/proc/{pid}/cwd").readlink() == data.resolve()
        return False
    command = ["/bin/ps", "-o", "args=", "-p", str(pid)]
    return str(data) in subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603


def disown_stale_file(data: Path) -> None:
    """Let a server start although the dead one's number is another process's now.

    PostgreSQL takes the file of its own parent as stale, and still looks whether the shared memory that the file
    names is in use: removing the file would lose that check. Call it only while holding the owner's lock.
    """
    path = data / "postmaster.pid"
    with suppress(FileNotFoundError):
        lines = path.read_text().splitlines(keepends=True)
        if lines and read(data) is None:
            with path.open("r+") as file:  # keeps the owner and the mode
                file.writelines([f"{os.getpid()}\n", *lines[1:]])
                file.truncate()


class Launcher:
    """Starts PostgreSQL's programs from a thread that lives as long as this object.

    The kernel sends the signal of --pdeathsig when the thread that started a program ends, not the process.
    """

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(1, "embedded-postgres")

    def close(self) -> None:
        self.thread.shutdown(wait=False)

    def program(self, command: list[str | Path], output: IO[bytes] | int) -> subprocess.Popen[bytes]:
        """Run one to its end, apart from this process's signals. Raises ConfigurationError when it can't be run."""
        return self.thread.submit(self._popen, list(command), output).result()

    def server(
        self, bindir: Path, data: Path, port: int, output: IO[bytes], *, connections: int, unsafe_fast: bool
    ) -> subprocess.Popen[bytes]:
        """Start a server that ends with this process, where the system can do that."""
        settings = SETTINGS | {"port": str(port), "max_connections": str(connections)}
        settings |= UNSAFE if unsafe_fast else {}
        command: list[str | Path] = [*binaries.dies_with_parent(), bindir / "postgres", "-D", data]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        return self.program(command, output)

    def _popen(self, command: list[str | Path], output: IO[bytes] | int) -> subprocess.Popen[bytes]:
        account = binaries.account()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        try:
            return subprocess.Popen(  # noqa: S603
                [*account.prefix, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl+C is for the supervisor, which stops the server in its turn
                env=environment | {"LC_ALL": "C"},
                user=account.uid,
                group=account.gid,
                extra_groups=None if account.uid is None else [],
            )
        except OSError as error:
            raise ConfigurationError(
                f"{error.filename or command[0]} can't be run ({error.strerror}): root has to hand PostgreSQL to the "
                "account 'nobody' here, which can't reach that file; run as another user, or set HOLDFAST_DATABASE_URL"
                if account.uid is not None
                else f"{error.filename or command[0]} can't be run: {error.strerror}"
            ) from None
