"""Signals: who hears of what."""

from __future__ import annotations

import pytest

from app.base.signals import Signal


def test_each_subscriber_hears_of_it_in_turn_until_it_leaves() -> None:
    heard: list[tuple[str, str, int]] = []
    signal: Signal[str, int] = Signal()
    leave = signal.subscribe(lambda name, count: heard.append(("first", name, count)))
    signal.subscribe(lambda name, count: heard.append(("second", name, count)))
    signal.emit("a", 1)
    leave()
    leave()
    signal.emit("b", 2)
    assert heard == [("first", "a", 1), ("second", "a", 1), ("second", "b", 2)]


def test_one_that_raises_is_logged_and_keeps_nothing_from_the_others(caplog: pytest.LogCaptureFixture) -> None:
    heard: list[int] = []
    signal: Signal[int] = Signal()
    signal.subscribe(lambda value: 1 // value)
    signal.subscribe(heard.append)
    signal.emit(0)
    assert heard == [0]
    [record] = caplog.records
    assert record.exc_info is not None
    assert record.exc_info[0] is ZeroDivisionError


def test_one_that_leaves_while_it_is_called_is_heard_out() -> None:
    heard: list[str] = []
    signal: Signal[()] = Signal()

    def once() -> None:
        heard.append("once")
        leave()

    leave = signal.subscribe(once)
    signal.subscribe(lambda: heard.append("always"))
    signal.emit()
    signal.emit()
    assert heard == ["once", "always", "always"]
