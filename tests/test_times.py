"""How times and lengths of time are told, and read."""

from __future__ import annotations

import pytest

from app.base import times


@pytest.mark.parametrize(
    ("ms", "text"),
    [(44.9, "45 ms"), (3_200, "3.2 s"), (59_900, "59 s"), (60_000, "1 min"), (90_000, "1 min 30 s"),
     (3_599_000, "59 min 59 s"), (3_600_000, "1 h"), (3_630_000, "1 h"), (11_100_000, "3 h 5 min"),
     (86_400_000, "1 d"), (183_600_000, "2 d 3 h")],
)  # fmt: skip
def test_a_duration_has_two_units_at_most(ms: float, text: str) -> None:
    assert times.duration(ms) == text


@pytest.mark.parametrize(("text", "ms"), [("300ms", 300), ("90d", 7_776_000_000), ("2h", 7_200_000), ("5m", 300_000)])
def test_lengths_are_read_as_they_are_written(text: str, ms: int) -> None:
    assert times.parse_length(text) == ms


@pytest.mark.parametrize("text", ["", "5", "m", "-5m", "1.5h", "5 m", "5min", "5m\n", "٣h", "1" * 13 + "s"])
def test_what_is_no_length_is_none(text: str) -> None:
    assert times.parse_length(text) is None


def test_a_time_is_told_to_the_millisecond() -> None:
    assert times.rfc3339(1_767_225_600_005) == "2026-01-01T00:00:00.005Z"


@pytest.mark.parametrize(
    ("text", "ms", "exact"),
    [
        ("0", 0, "0"),
        ("0 s", 0, "0"),
        ("1500", 1_500, "1500 ms"),
        ("30s", 30_000, "30 s"),
        ("90 s", 90_000, "90 s"),
        ("1 min 30 s", 90_000, "90 s"),
        ("5 m", 300_000, "5 min"),
        ("24 h", 86_400_000, "1 d"),
        ("1 d 1 ms", 86_400_001, "86400001 ms"),
    ],
)
def test_a_length_that_was_typed_is_shown_as_it_can_be_typed_again(text: str, ms: int, exact: str) -> None:
    assert times.typed_length(text) == ms
    assert times.exact_length(ms) == exact
    assert times.typed_length(exact) == ms


@pytest.mark.parametrize("text", ["", "s", "1 2", "1 week", "-1 s", "1.5 s", "1 min 30", "1 s x", " 1 s"])
def test_what_is_no_length_that_was_typed(text: str) -> None:
    assert times.typed_length(text) is None
