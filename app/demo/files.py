"""The files that the demo works on: finding them, and their digests."""

from __future__ import annotations

import hashlib
import os
import stat
from collections.abc import Callable, Collection
from dataclasses import dataclass
from pathlib import Path
from typing import Final

CHUNK: Final = 1024 * 1024
# What tools put into a project's folder, and what is none of its own files.
SKIPPED: Final = frozenset({".git", ".venv", ".tools", "__pycache__"})


@dataclass(frozen=True, slots=True)
class File:
    """A file as it was when the demo started. `path` is relative to the folder, with '/' between its parts."""

    path: str
    size: int
    changed_ns: int


@dataclass(frozen=True, slots=True)
class FoundFiles:
    """`left_out`: what can't be read, and why."""

    files: list[File]
    left_out: list[str]


def find(folder: Path, but_not: Collection[Path] = ()) -> FoundFiles:
    """The regular files below a folder, by path; links are not followed. `but_not` are resolved folders to skip."""
    files: list[File] = []
    left_out: list[str] = []

    def refused(error: OSError) -> None:
        left_out.append(f"{error.filename}: {error.strerror}")

    for place, folders, names in os.walk(folder, onerror=refused):
        here = Path(place)
        folders[:] = sorted(
            name for name in folders if not _is_skipped(name) and (here / name).resolve() not in but_not
        )
        for name in sorted(names):
            path = (here / name).relative_to(folder).as_posix()
            try:
                path.encode()
                status = (here / name).lstat()
                if stat.S_ISREG(status.st_mode):
                    (here / name).open("rb").close()
                    files.append(File(path, status.st_size, status.st_mtime_ns))
            except UnicodeEncodeError:
                left_out.append(f"{path!r}: its name is not UTF-8")
            except OSError as error:
                left_out.append(f"{path}: {error.strerror}")
    return FoundFiles(files, left_out)


def digest(path: Path, beat: Callable[[], None] = lambda: None) -> str:
    """SHA-256 of a file in hex; `beat` is called after each chunk. Raises OSError."""
    sha = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            sha.update(chunk)
            beat()
    return sha.hexdigest()


def _is_skipped(name: str) -> bool:
    return name in SKIPPED or (name.startswith(".") and name.endswith("_cache"))
