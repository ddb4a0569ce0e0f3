"""What a pipeline says of its progress."""

from __future__ import annotations

import io

import pytest

from spark import progress
from spark.progress import CLEAR, Progress


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_has_one_line_that_moves(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(progress, "TERMINAL_SECONDS", 0)
    to = Terminal()
    with Progress("rows", 1_200, to=to) as shown:
        shown.advance(300)
        shown.say("a file is bad")
        shown.advance(900)
    parts = to.getvalue().split(CLEAR)
    assert [part.split(" in ")[0] for part in parts[1:]] == [
        "rows: 0 of 1,200 (0%)",
        "rows: 300 of 1,200 (25%)",
        "a file is bad\n",
        "rows: 1,200 of 1,200 (100%)",
        "rows: 1,200 of 1,200 (100%)",
    ]
    assert to.getvalue().endswith("\n")


def test_a_file_has_a_line_every_few_seconds(monkeypatch: pytest.MonkeyPatch) -> None:
    to = io.StringIO()
    with Progress("rows", to=to) as shown:
        shown.advance(7)
        assert to.getvalue() == "", "not yet"
        monkeypatch.setattr(progress, "LINES_SECONDS", 0)
        shown.advance()
        monkeypatch.setattr(progress, "LINES_SECONDS", 5)
        shown.advance()
    assert [line.split(" in ")[0] for line in to.getvalue().splitlines()] == ["rows: 8", "rows: 9"]


def test_a_failure_says_where_it_stopped() -> None:
    to = io.StringIO()
    shown = Progress("rows", 0, to=to)
    shown.__enter__()
    shown.advance(3)
    error = ValueError("a bad row")
    shown.__exit__(type(error), error, None)
    assert to.getvalue().startswith("rows: 3 of 0 in ")
    assert to.getvalue().endswith(": stopped\n")
