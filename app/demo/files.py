"""The demo's files, the workers' results, and the check of the results."""

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

# Folders of tools, which are not part of a project.
SKIPPED: Final = frozenset({".git", ".venv", ".tools", "__pycache__"})
CHUNK: Final = 1024 * 1024
MOST_LINES: Final = 10  # of a printed list; further ones are counted


@dataclass(frozen=True, slots=True)
class File:
    """A file at the start of the demo. `path` is relative to the folder, with '/' as the separator."""

    path: str
    size: int
    changed_ns: int


def find_files(folder: Path, but_not: Collection[Path] = ()) -> tuple[list[File], list[str]]:
    """The regular files in a folder, by path, and a line for each unreadable one with the reason. Does not follow
    links. `but_not`: resolved folders to skip."""
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
    """The SHA-256 of a file in hex. Raises OSError."""
    sha = hashlib.sha256()
    with path.open("rb") as file:
        while chunk := file.read(CHUNK):
            sha.update(chunk)
    return sha.hexdigest()


@dataclass(frozen=True, slots=True)
class Task:
    """A worker's task. `batch`: how many jobs it runs at once. `hangs`: it hangs in its first jobs until the demo kills
    it."""

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
    """A worker's result for a file: a digest or an error."""

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
    last_first: float = 0.0  # when the last job with a first delivery was done
    ended: float = 0.0

    def add(self, worker: str, line: Mapping[str, Any]) -> None:
        """Count a result from a worker's journal."""
        result = DemoResult(worker, line["deliveries"], line.get("digest"), line.get("error"))
        of_file = self.results.setdefault(line["path"], [])
        most = max((one.deliveries for one in of_file), default=1)
        self.redeliveries += max(0, result.deliveries - most)
        of_file.append(result)
        if result.deliveries == 1:
            self.last_first = time.monotonic()

    @property
    def duplicates(self) -> int:
        """Results beyond each file's first one."""
        return sum(map(len, self.results.values())) - len(self.results)

    @property
    def rate(self) -> float:
        """Jobs per second until every job was delivered once. Redeliveries had to wait for the end of a lease."""
        fresh = sum(1 for results in self.results.values() if any(result.deliveries == 1 for result in results))
        return fresh / max(self.last_first - self.began, 0.001) if fresh else 0.0

    def table(self, size: int, losses: Mapping[str, int]) -> str:
        """The summary. `size`: of all files, in bytes. `losses`: how many jobs each killed worker held."""
        lost = "".join(f"{name} held {held:,} of them when it was killed" for name, held in losses.items())
        seconds = f"{self.ended - self.began:.2f} s"
        rows = [
            ("files", f"{self.total:,}", _bytes(size)),
            ("time", seconds, "including the wait for the lost leases to end" if losses else ""),
            ("jobs/s", f"{self.rate:,.0f}", "until every job was delivered once"),
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
    """Files without a correct digest, one line each."""
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
    return f"{file.path}: {last.worker} reported {last.digest[:12]}…, but it is {wanted[:12]}… now: {why}"


def left_over(state: TopicState) -> list[str]:
    """A fault if the topic is not empty."""
    assert state.queue is not None
    held = {"ready": state.queue.ready, "in_flight": state.queue.in_flight, "count": state.count}
    rest = ", ".join(f"{name} {number}" for name, number in held.items() if number)
    return [f"the queue is not empty: {rest}"] if rest else []


def first_of(lines: Sequence[str], prefix: str) -> str:
    """The first MOST_LINES lines with a prefix, and how many more there are."""
    more = [f"… and {len(lines) - MOST_LINES:,} more"] if len(lines) > MOST_LINES else []
    return "\n".join(f"{prefix}{line}" for line in [*lines[:MOST_LINES], *more])
