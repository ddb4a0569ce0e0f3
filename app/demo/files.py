"""The files that the demo works on, what its workers say of them, and whether that is as it must be."""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from holdfast.models import TopicState

# What tools put into a project's folder, and what is none of its own files.
SKIPPED: Final = frozenset({".git", ".venv", ".tools", "__pycache__"})
CHUNK: Final = 1024 * 1024
MOST_LINES: Final = 10  # of a list; the others are counted


@dataclass(frozen=True, slots=True)
class File:
    """A file as it was when the demo started. `path` is relative to the folder, with '/' between its parts."""

    path: str
    size: int
    changed_ns: int


def find_files(folder: Path, but_not: Collection[Path] = ()) -> tuple[list[File], list[str]]:
    """The regular files below a folder, by path; and what can't be read, with the reason. Links are not followed.
    `but_not` are resolved folders to skip."""
    files: list[File] = []
    left_out: list[str] = []

    def leave_out(error: OSError) -> None:
        left_out.append(f"{error.filename}: {error.strerror}")

    for place, folders, names in os.walk(folder, onerror=leave_out):
        here = Path(place)
        folders[:] = sorted(name for name in folders if not _skips(name) and (here / name).resolve() not in but_not)
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
    return files, left_out


def _skips(name: str) -> bool:
    return name in SKIPPED or (name.startswith(".") and name.endswith("_cache"))


def digest_of(path: Path) -> str:
    """SHA-256 of a file in hex. Raises OSError."""
    sha = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            sha.update(chunk)
    return sha.hexdigest()


@dataclass(frozen=True, slots=True)
class Task:
    """What a worker is told. `batch`: how many jobs it works on at once. `hangs`: it is stuck in the first ones, until
    the demo kills it."""

    url: str
    key: str
    topic: str
    folder: str
    journal: str
    lease_seconds: float
    batch: int
    hangs: bool


@dataclass(frozen=True, slots=True)
class DemoResult:
    """What a worker reported for a file: a digest, or why there is none."""

    worker: str
    deliveries: int
    digest: str | None = None
    error: str | None = None


@dataclass(slots=True)
class Tally:
    """Results by path, of `total` files. Times are of time.monotonic()."""

    total: int
    results: dict[str, list[DemoResult]] = field(default_factory=dict)
    redeliveries: int = 0
    began: float = 0.0
    last_first: float = 0.0  # when the last job was worked that nobody had had before
    ended: float = 0.0

    def add(self, worker: str, line: Mapping[str, Any]) -> None:
        """Count a result, as it stands in a worker's journal."""
        result = DemoResult(worker, line["deliveries"], line.get("digest"), line.get("error"))
        of_file = self.results.setdefault(line["path"], [])
        most = max((one.deliveries for one in of_file), default=1)
        self.redeliveries += max(0, result.deliveries - most)
        of_file.append(result)
        if result.deliveries == 1:
            self.last_first = time.monotonic()

    @property
    def duplicates(self) -> int:
        """Results beyond the first of a file."""
        return sum(map(len, self.results.values())) - len(self.results)

    @property
    def rate(self) -> float:
        """Jobs a second until the backlog was worked off; what was redelivered afterwards waited for its lease."""
        fresh = sum(1 for results in self.results.values() if any(result.deliveries == 1 for result in results))
        return fresh / max(self.last_first - self.began, 0.001) if fresh else 0.0

    def table(self, size: int, losses: Mapping[str, int]) -> str:
        """The summary. `size` is of all files, in bytes; `losses`: how many jobs killed workers held."""
        lost = "".join(f"{held:,} of them were in {name}'s hands when it was killed" for name, held in losses.items())
        seconds = f"{self.ended - self.began:.2f} s"
        rows = [
            ("files", f"{self.total:,}", _bytes(size)),
            ("time", seconds, "with the wait for the lease that was lost" if losses else ""),
            ("jobs/s", f"{self.rate:,.0f}", "until every file had been done or was in somebody's hands"),
            ("deliveries", f"{len(self.results) + self.redeliveries:,}", ""),
            ("redeliveries", f"{self.redeliveries:,}", lost),
            ("duplicates", f"{self.duplicates:,}", "files computed twice" if self.duplicates else ""),
        ]
        return "\n".join(f"  {name:<13} {value:>10}  {note}".rstrip() for name, value, note in rows)


def _bytes(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"


def faults(folder: Path, asked: Sequence[File], results: Mapping[str, Sequence[DemoResult]]) -> list[str]:
    """Files that were not done at least once with the digest that a direct computation has; one line each."""
    return [fault for file in asked if (fault := _fault(folder, file, results.get(file.path, ())))]


def _fault(folder: Path, file: File, results: Sequence[DemoResult]) -> str | None:
    if not results:
        return f"{file.path}: never done"
    place = folder / file.path
    try:
        wanted = digest_of(place)
        status = place.stat()
    except OSError as error:
        return f"{file.path}: can't be read any more ({error.strerror}); nothing to compare its digest with"
    if any(result.digest == wanted for result in results):
        return None
    last = results[-1]
    if last.digest is None:
        return f"{file.path}: {last.worker} could not read it: {last.error}"
    changed = (status.st_size, status.st_mtime_ns) != (file.size, file.changed_ns)
    why = "the file changed while the demo ran" if changed else "the file has not changed since the start"
    return f"{file.path}: {last.worker} reported {last.digest[:12]}…, and it is {wanted[:12]}… now: {why}"


def left_over(state: TopicState) -> list[str]:
    """What a topic that must be empty still holds."""
    assert state.queue is not None
    held = {"ready": state.queue.ready, "in_flight": state.queue.in_flight, "count": state.count}
    rest = ", ".join(f"{name} {number}" for name, number in held.items() if number)
    return [f"the queue is not empty: {rest}"] if rest else []


def first_of(lines: Sequence[str], prefix: str) -> str:
    """The first lines of many, each after a prefix, and how many more there are."""
    more = [f"… and {len(lines) - MOST_LINES:,} more"] if len(lines) > MOST_LINES else []
    return "\n".join(f"{prefix}{line}" for line in [*lines[:MOST_LINES], *more])
