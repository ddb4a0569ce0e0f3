"""What the workers have done so far, counted from their journals, and how it is shown while it goes on."""

from __future__ import annotations

import shutil
import sys
import time
from dataclasses import dataclass, field
from typing import Any, Final, TextIO

REDRAW_SECONDS: Final = 0.1
LINE_SECONDS: Final = 1.0


@dataclass(frozen=True, slots=True)
class TallyResult:
    """What a worker reported for a file: a digest, or why there is none."""

    node: str
    deliveries: int
    digest: str | None
    error: str | None


@dataclass(slots=True)
class Hand:
    """One worker's part."""

    results: int = 0
    batch: int = 0  # jobs of the batch in its hands
    in_batch: int = 0  # of them, results written
    ready: bool = False
    hangs: bool = False
    killed: bool = False


@dataclass(slots=True)
class Tally:
    """Sums over all workers. Times are of time.monotonic()."""

    total: int
    hands: dict[str, Hand]
    results: dict[str, list[TallyResult]] = field(default_factory=dict)
    deliveries: int = 0
    redeliveries: int = 0
    late_acks: int = 0
    began: float = 0.0
    last_first: float = 0.0  # when the last job was worked that nobody had had before
    ended: float = 0.0

    def add(self, node: str, line: dict[str, Any]) -> None:
        """Count a line of a worker's journal."""
        hand = self.hands[node]
        match line:
            case {"path": path}:
                hand.results += 1
                hand.in_batch += 1
                result = TallyResult(node, line["deliveries"], line.get("digest"), line.get("error"))
                self.results.setdefault(path, []).append(result)
                if result.deliveries == 1:
                    self.last_first = time.monotonic()
            case {"claimed": deliveries}:
                hand.batch, hand.in_batch = len(deliveries), 0
                self.deliveries += len(deliveries)
                self.redeliveries += sum(1 for n in deliveries if n > 1)
            case {"skipped": skipped}:
                hand.batch = 0
                self.late_acks += skipped
            case {"hangs": _}:
                hand.hangs = True
            case {"ready": _}:
                hand.ready = True

    @property
    def done(self) -> int:
        return len(self.results)

    @property
    def duplicates(self) -> int:
        """Results beyond the first of a file."""
        return sum(map(len, self.results.values())) - self.done

    @property
    def rate(self) -> float:
        """Jobs a second until the backlog was worked off; what was redelivered afterwards waited for its lease."""
        fresh = sum(1 for results in self.results.values() if any(result.deliveries == 1 for result in results))
        return fresh / max(self.last_first - self.began, 0.001) if fresh else 0.0

    def line(self, *, bar: int = 0) -> str:
        """Where it stands, with a bar so many characters wide."""
        filled = bar * self.done // max(self.total, 1)
        shown = [f"[{'#' * filled}{'.' * (bar - filled)}]"] if bar else []
        shown.append(f"{self.done:>{len(str(self.total))}}/{self.total}")
        shown += [f"{self.rate:,.0f} jobs/s", f"{self.redeliveries} redelivered"]
        hands = " ".join(f"{hand.results}{' (killed)' if hand.killed else ''}" for hand in self.hands.values())
        shown.append(f"by worker: {hands}")
        return "  ".join(shown)


class Display:
    """Shows a tally: one line that changes on a terminal, else a line a second."""

    def __init__(self, tally: Tally, stream: TextIO | None = None) -> None:
        self._tally = tally
        self._stream = stream or sys.stdout
        self._live = self._stream.isatty()
        self._next = 0.0

    def show(self, *, now: bool = False) -> None:
        """Show it if it is time to, or `now`."""
        if not now and time.monotonic() < self._next:
            return
        self._next = time.monotonic() + (REDRAW_SECONDS if self._live else LINE_SECONDS)
        if self._live:
            width = shutil.get_terminal_size().columns - 1
            self._stream.write(f"\r{self._tally.line(bar=min(24, width // 4))[:width]}\033[K")
        else:
            self._stream.write(f"{self._tally.line()}\n")
        self._stream.flush()

    def say(self, text: str) -> None:
        """A line that stays."""
        self._stream.write(f"\r\033[K{text}\n" if self._live else f"{text}\n")
        self._stream.flush()

    def end(self) -> None:
        """Leave the last line as it is."""
        self.show(now=True)
        if self._live:
            self._stream.write("\n")
