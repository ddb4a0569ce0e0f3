"""How far a pipeline is, on stderr: one line that moves on a terminal, a line every few seconds elsewhere."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Final, Self, TextIO

TERMINAL_SECONDS: Final = 0.1  # between two drawings of the line
LINES_SECONDS: Final = 5.0  # between two lines of a file or a pipe
CLEAR: Final = "\r\x1b[K"


class Progress:
    """A context manager: `advance` counts, `say` writes a line that stays. `total` is None where nobody knows it.

    At the end it says how many there were and how long that took, or where it was when it failed.
    """

    def __init__(self, what: str, total: int | None = None, *, to: TextIO | None = None) -> None:
        self.done = 0
        self._what = what
        self._total = total
        self._to = sys.stderr if to is None else to
        self._moves = self._to.isatty()
        self._began = time.monotonic()
        self._shown = self._began
        self._drawn: int | None = None  # how many the last line told of

    def __enter__(self) -> Self:
        if self._moves:
            self._draw()
        return self

    def __exit__(self, kind: type[BaseException] | None, _error: object, _trace: TracebackType | None) -> None:
        if kind is not None:
            self.say(f"{self._line()}: stopped")
        elif self._moves or self._drawn != self.done:
            self.say(self._line())

    def advance(self, n: int = 1) -> None:
        """So many more are done."""
        self.done += n
        now = time.monotonic()
        if now - self._shown >= (TERMINAL_SECONDS if self._moves else LINES_SECONDS):
            self._shown = now
            self._draw()

    def say(self, text: str) -> None:
        """A line of its own, above the one that moves."""
        print(f"{CLEAR}{text}" if self._moves else text, file=self._to, flush=True)

    def _draw(self) -> None:
        self._drawn = self.done
        if self._moves:
            self._to.write(f"{CLEAR}{self._line()}")
            self._to.flush()
        else:
            self.say(self._line())

    def _line(self) -> str:
        seconds = time.monotonic() - self._began
        if self._total is None:
            return f"{self._what}: {self.done:,} in {seconds:.1f} s"
        share = f" ({self.done / self._total:.0%})" if self._total else ""
        return f"{self._what}: {self.done:,} of {self._total:,}{share} in {seconds:.1f} s"
