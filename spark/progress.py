"""A pipeline's progress on stderr: one updated line on a terminal, elsewhere a line every few seconds."""

from __future__ import annotations

import sys
import time
from types import TracebackType
from typing import Final, Self, TextIO

TERMINAL_SECONDS: Final = 0.1  # between two updates of the line
LINES_SECONDS: Final = 5.0  # between two lines in a file or a pipe
CLEAR: Final = "\r\x1b[K"


class Progress:
    """A context manager that counts with `advance`. `total` is None if it is not known.

    At the end it prints the count and the time, or where it stopped.
    """

    def __init__(self, what: str, total: int | None = None, *, to: TextIO | None = None) -> None:
        self.done = 0
        self._what = what
        self._total = total
        self._to = sys.stderr if to is None else to
        self._moves = self._to.isatty()
        self._began = time.monotonic()
        self._shown = self._began
        self._drawn: int | None = None  # the count in the last line

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

        self.done += n
        now = time.monotonic()
        if now - self._shown >= (TERMINAL_SECONDS if self._moves else LINES_SECONDS):
            self._shown = now
            self._draw()

    def say(self, text: str) -> None:
        """Print a permanent line, above the updated one."""
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
