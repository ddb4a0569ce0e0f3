"""Whether the demo came out as it must, and the table at its end. Pure, but for reading the files once more."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final

from app.demo import files
from app.demo.files import File
from app.demo.tally import Tally, TallyResult

SHOWN: Final = 10  # faults that are named; the others are counted


def faults(folder: Path, asked: Sequence[File], results: Mapping[str, Sequence[TallyResult]]) -> list[str]:
    """Files that were not done at least once with the digest that a direct computation has; one line each."""
    return [fault for file in asked if (fault := _fault(folder, file, results.get(file.path, ())))]


def _fault(folder: Path, file: File, results: Sequence[TallyResult]) -> str | None:
    if not results:
        return f"{file.path}: never done"
    place = folder / file.path
    try:
        wanted = files.digest(place)
        status = place.stat()
        changed = (status.st_size, status.st_mtime_ns) != (file.size, file.changed_ns)
    except OSError as error:
        return f"{file.path}: can't be read any more ({error.strerror}); nothing to compare its digest with"
    if any(result.digest == wanted for result in results):
        return None
    last = results[-1]
    if last.digest is None:
        return f"{file.path}: {last.node} could not read it: {last.error}"
    why = "the file changed while the demo ran" if changed else "the file has not changed since the start"
    return f"{file.path}: {last.node} reported {last.digest[:12]}…, and it is {wanted[:12]}… now: {why}"


def left_over(state: Mapping[str, Any]) -> list[str]:
    """What a topic that must be empty still holds."""
    queue = state["queue"]
    held = {"ready": queue["ready"], "in_flight": queue["in_flight"], "count": state["count"]}
    rest = ", ".join(f"{name} {number}" for name, number in held.items() if number)
    return [f"the queue is not empty: {rest}"] if rest else []


def table(tally: Tally, size: int) -> str:
    """The summary. `size` is of all files, in bytes."""
    killed = [(node, hand.batch) for node, hand in tally.hands.items() if hand.killed]
    lost = "".join(f"{held:,} of them were in {node}'s hands when it was killed" for node, held in killed)
    rows = [
        ("files", f"{tally.total:,}", _bytes(size)),
        (
            "time",
            f"{tally.ended - tally.began:.2f} s",
            "with the wait for the lease that was lost" if killed else "",
        ),
        ("jobs/s", f"{tally.rate:,.0f}", "until every file had been done or was in somebody's hands"),
        ("deliveries", f"{tally.deliveries:,}", ""),
        ("redeliveries", f"{tally.redeliveries:,}", lost),
        ("duplicates", f"{tally.duplicates:,}", "files computed twice" if tally.duplicates else ""),
    ]
    return "\n".join(f"  {name:<13} {value:>10}  {note}".rstrip() for name, value, note in rows)


def shown(problems: Sequence[str]) -> str:
    """Faults as lines, the first SHOWN of them."""
    more = [f"… and {len(problems) - SHOWN:,} more"] if len(problems) > SHOWN else []
    return "\n".join(f"  {line}" for line in [*problems[:SHOWN], *more])


def _bytes(size: float) -> str:
    for unit in ("bytes", "KiB", "MiB", "GiB"):
        if size < 1024 or unit == "GiB":
            break
        size /= 1024
    return f"{size:,.0f} {unit}" if unit == "bytes" else f"{size:,.1f} {unit}"
