"""The folder of an empty database: made once for each version of the service, and copied for each test run."""

from __future__ import annotations

import fcntl
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from holdfast.testing._home import Home, cache

MAKE_SECONDS: Final = 300.0
# Data may be lost in a crash of the machine.
FAST: Final = "fsync = off\nsynchronous_commit = off\nfull_page_writes = off\nholdfast.may_lose_data = on\n"
CLONE: Final = {"linux": ("--reflink=auto",), "darwin": ("-c",)}


def copy(home: Home) -> Path:
    """Copy the template to a new folder, which the caller must delete. The first call makes the template, which takes
    some seconds; concurrent callers wait for it."""
    template = cache() / home.version()
    target = Path(tempfile.mkdtemp(prefix="holdfast-testing-")) / "data"
    try:
        target.parent.chmod(0o711)  # PostgreSQL may run as the user nobody
        # Shared lock, so that the template is not deleted meanwhile.
        with _locked(template, fcntl.LOCK_SH):
            if template.is_dir():
                _copy(template, target)
                return target
        with _locked(template, fcntl.LOCK_EX):
            if not template.is_dir():
                _make(home, template)
            _copy(template, target)
            return target
    except BaseException:
        shutil.rmtree(target.parent, ignore_errors=True)
        raise


def discard(home: Home) -> None:
    """Delete a template whose copy did not start."""
    template = cache() / home.version()
    with _locked(template, fcntl.LOCK_EX):
        shutil.rmtree(template, ignore_errors=True)


def _make(home: Home, template: Path) -> None:
    """Make the template atomically and with fsync, since it must survive crashes."""
    fresh = template.with_suffix(".new")
    shutil.rmtree(fresh, ignore_errors=True)
    made = subprocess.run(  # noqa: S603
        [*home.command, "migrate"],
        cwd=home.folder,
        env=home.environment(fresh),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=MAKE_SECONDS,
        check=False,
    )
    if made.returncode != 0:
        raise RuntimeError(f"The service could not make a database: {made.stderr.strip() or made.stdout.strip()}")
    for path in (*fresh.glob("pg*.port"), *fresh.glob("postgres.log*")):
        path.unlink()
    for path in fresh.glob("pg*/postgresql.auto.conf"):
        with path.open("a") as file:
            file.write(FAST)
    fresh.rename(template)


def _copy(template: Path, target: Path) -> None:
    """Copy with reflinks if the file system supports them. Keeps owners, which PostgreSQL requires."""
    command = ["cp", "-a", *CLONE.get(sys.platform, ()), str(template), str(target)]
    subprocess.run(command, check=True, stdin=subprocess.DEVNULL)  # noqa: S603


@contextmanager
def _locked(template: Path, how: int) -> Iterator[None]:
    template.parent.mkdir(parents=True, exist_ok=True)
    with template.with_suffix(".lock").open("a") as file:
        fcntl.flock(file, how)
        yield
