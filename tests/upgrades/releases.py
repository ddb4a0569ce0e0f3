"""The code as it was before the newest migration, out of the repository's history."""

from __future__ import annotations

import subprocess
from pathlib import Path

from app.db import schema

ROOT = Path(__file__).resolve().parents[2]


class NoHistory(Exception):
    """There is nothing to take it from; says why."""


def previous_release(folder: Path) -> str:
    """Put into this folder what the service was on the main line before the newest migration came to it: the version of
    the schema that it had. Raises NoHistory."""
    [newest] = ROOT.glob(f"migrations/versions/{schema.KNOWN[-1]}_*.py")
    try:
        if Path(_git("rev-parse", "--show-toplevel").decode().strip()) != ROOT:
            raise NoHistory("this copy of the code is no clone of its repository")
        words = ("log", "--first-parent", "-m", "--diff-filter=A", "--max-count=1", "--format=%H", "--", str(newest))
        brought = _git(*words).decode().strip()
        before = f"{brought}^" if brought else "HEAD"  # one that is not committed yet
        packed = _git("archive", before, "app", "migrations", "alembic.ini")
    except FileNotFoundError:
        raise NoHistory("git is not installed") from None
    except subprocess.CalledProcessError as error:
        raise NoHistory(f"the history here does not go back to it: {error.stderr.decode().strip()}") from None
    folder.mkdir()
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed, check=True)
    return max(path.name[:4] for path in folder.glob("migrations/versions/[0-9]*.py"))


def _git(*words: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=True).stdout
