"""Versions of the code besides this one: those of the repository's history, and one to come with a migration more."""

from __future__ import annotations

import shutil
import subprocess
from dataclasses import dataclass
from pathlib import Path

from app.base.db import schema

ROOT = Path(__file__).resolve().parents[2]
# All that a migration may do to what is there: change a table and make an index, which lock, and replace a function.
MIGRATION = '''\
"""A column, an index and a function, as the next migration may bring them.

Locks: jobs ACCESS EXCLUSIVE, topics SHARE.

Revision ID: {version}
"""

from alembic import op

from migrations.scripts import run

revision = "{version}"
down_revision = "{before}"
branch_labels = None
depends_on = None


def upgrade() -> None:
    op.execute("CREATE INDEX topics_made_up ON holdfast.topics (type)")
    op.execute("ALTER TABLE holdfast.jobs ADD COLUMN made_up text")
    run("app/features/jobs/functions/requeue.sql")


def downgrade() -> None:
    op.execute("ALTER TABLE holdfast.jobs DROP COLUMN made_up")
    op.execute("DROP INDEX holdfast.topics_made_up")
'''


class NoHistory(Exception):
    """There is nothing to take it from; says why."""


@dataclass(frozen=True, slots=True)
class Release:
    """A folder with the code of a service."""

    folder: Path

    @property
    def versions(self) -> list[str]:
        """Of its schema, the first first."""
        return sorted(path.name[:4] for path in self.folder.glob("migrations/versions/[0-9]*.py"))

    def migration(self, version: str) -> Path:
        [path] = self.folder.glob(f"migrations/versions/{version}_*.py")
        return path


def next_release(folder: Path) -> Release:
    """Put today's code into this folder, with one migration more."""
    folder.mkdir()
    shutil.copy(ROOT / "alembic.ini", folder)
    for part in ("app", "migrations"):
        shutil.copytree(ROOT / part, folder / part, ignore=shutil.ignore_patterns("__pycache__"))
    before = schema.KNOWN[-1]
    version = f"{int(before) + 1:04}"
    path = folder / f"migrations/versions/{version}_made_up.py"
    path.write_text(MIGRATION.format(version=version, before=before))
    return Release(folder)


def release_of_the_newest_migration(folder: Path) -> Release:
    """Put into this folder the code of the commit that brought the newest migration. Raises NoHistory."""
    commit = _brought()
    if len(schema.KNOWN) == 1:  # until a release, a change of a script is one of the baseline itself
        scripts = ("migrations/schema", ":(glob)app/**/functions/*.sql")
        commit = _git("log", "--max-count=1", "--format=%H", "--", *scripts).decode().strip()
    return _taken_out(folder, commit)


def previous_release(folder: Path) -> Release:
    """Put into this folder what the service was on the main line before the newest migration came to it. Raises
    NoHistory."""
    if len(schema.KNOWN) == 1:
        raise NoHistory("there is one migration")
    return _taken_out(folder, f"{_brought()}^")


def _brought() -> str:
    """The commit of the main line by which the newest migration came."""
    newest = str(Release(ROOT).migration(schema.KNOWN[-1]))
    try:
        if Path(_git("rev-parse", "--show-toplevel").decode().strip()) != ROOT:
            raise NoHistory("this copy of the code is no clone of its repository")
        words = ("log", "--first-parent", "-m", "--diff-filter=A", "--max-count=1", "--format=%H", "--", newest)
        commit = _git(*words).decode().strip()
    except FileNotFoundError:
        raise NoHistory("git is not installed") from None
    except subprocess.CalledProcessError as error:
        raise NoHistory(error.stderr.decode().strip()) from None
    if not commit:
        raise NoHistory(
            f"migration {schema.KNOWN[-1]} is not committed yet, or the history here does not go back to it"
        )
    return commit


def _taken_out(folder: Path, commit: str) -> Release:
    try:
        packed = _git("archive", commit, "app", "migrations", "alembic.ini")
    except subprocess.CalledProcessError as error:
        raise NoHistory(f"the history here does not go back to it: {error.stderr.decode().strip()}") from None
    folder.mkdir()
    subprocess.run(["tar", "-x", "-C", str(folder)], input=packed, check=True)
    return Release(folder)


def _git(*words: str) -> bytes:
    return subprocess.run(["git", "-C", str(ROOT), *words], capture_output=True, check=True).stdout
