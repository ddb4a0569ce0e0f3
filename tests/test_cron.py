"""When a cron expression is due where clocks change, and which times went by."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, tzinfo
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from app.base import cron

BERLIN = cron.time_zone("Europe/Berlin")
GAP, OVERLAP = datetime(2026, 3, 28, 12, tzinfo=UTC), datetime(2026, 10, 24, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)


def berlin(after: datetime, expression: str, most: int) -> list[str]:
    """As clocks there show it, with their offset."""
    return [f"{at.astimezone(BERLIN):%d %H:%M %z}" for at in cron.next_times(expression, after, most, BERLIN)]


@pytest.mark.parametrize(
    ("after", "expression", "times"),
    [
        (GAP, "30 2 * * *", ["29 03:00 +0200", "30 02:30 +0200"]),
        (GAP, "15,45 2 * * *", ["29 03:00 +0200", "30 02:15 +0200"]),
        (GAP, "30 1-3 * * *", ["29 01:30 +0100", "29 03:00 +0200", "29 03:30 +0200"]),
        (GAP + timedelta(hours=12), "30 * * * *", ["29 01:30 +0100", "29 03:30 +0200"]),
        (OVERLAP, "30 2 * * *", ["25 02:30 +0200", "26 02:30 +0100"]),
        (OVERLAP + timedelta(hours=12), "30 2 * * *", ["25 02:30 +0200", "26 02:30 +0100"]),
        # Between the two: the first has been, and the second is none.
        (OVERLAP + timedelta(hours=12, minutes=40), "30 2 * * *", ["26 02:30 +0100", "27 02:30 +0100"]),
        (OVERLAP + timedelta(hours=13), "45 2 * * *", ["26 02:45 +0100"]),
        (OVERLAP + timedelta(hours=12), "30 * * * *", ["25 02:30 +0200", "25 02:30 +0100", "25 03:30 +0100"]),
    ],
)
def test_where_clocks_change(after: datetime, expression: str, times: list[str]) -> None:
    assert berlin(after, expression, len(times)) == times


def test_another_zone_has_other_times() -> None:
    at = datetime(2026, 7, 1, tzinfo=UTC)
    assert cron.next_due("0 9 * * *", at) == datetime(2026, 7, 1, 9, tzinfo=UTC)
    assert cron.next_due("0 9 * * *", at, BERLIN) == datetime(2026, 7, 1, 7, tzinfo=UTC)


@pytest.mark.parametrize(
    "name", ["", "Mars/Olympus", "localtime", "../UTC", "europe/berlin", "a\0b", "posix/UTC", "x" * 300]
)
def test_what_is_no_zone(name: str) -> None:
    with pytest.raises(ValueError, match="is not an IANA time zone"):
        cron.time_zone(name)


@pytest.mark.parametrize("days", ["L/2", "LW/2", "lw/31", "1,l/2"])
def test_the_last_day_of_a_month_has_no_step(days: str) -> None:
    with pytest.raises(ValueError, match="not a valid schedule: the last day of a month has no step"):
        cron.parse(f"0 0 {days} * *")


@settings(deadline=None, max_examples=60)
@given(
    expression=st.sampled_from(
        [
            "* * * * *",
            "*/7 * * * *",
            "30 * * * *",
            "15,45 2 * * *",
            "0 0 * * *",
            "5 0-3 * * *",
            "0 */2 * * sun",
            "0 3 1 * *",
        ]
    ),
    zone=st.sampled_from(["Europe/Berlin", "UTC", "Australia/Lord_Howe", "Africa/Cairo", "America/New_York"]).map(
        cron.time_zone
    ),
    begin=st.datetimes(datetime(2026, 1, 1), datetime(2026, 12, 31), timezones=st.just(UTC)),
    minutes=st.integers(0, 2_900),
    most=st.integers(1, 50),
)
def test_the_last_times_are_the_end_of_all_of_them(
    expression: str, zone: tzinfo, begin: datetime, minutes: int, most: int
) -> None:
    first = cron.next_due(expression, begin, zone)
    assert first is not None
    every, upto = [first], first + minutes * MINUTE
    while (following := cron.next_due(expression, every[-1], zone)) is not None and following <= upto:
        every.append(following)
    assert all(one < other for one, other in pairwise(every))
    assert cron.last_times(expression, first, upto, most, zone) == every[-most:]


def test_it_takes_no_longer_where_years_went_by(monkeypatch: pytest.MonkeyPatch) -> None:
    counted = 0
    due = cron._due

    def counting(*args: object) -> object:
        nonlocal counted
        for time in due(*args):  # type: ignore[arg-type]
            counted += 1
            yield time

    monkeypatch.setattr(cron, "_due", counting)
    first = datetime(2016, 1, 1, tzinfo=UTC)
    assert len(cron.last_times("* * * * *", first, first + timedelta(days=3_650), 1_000, BERLIN)) == 1_000
    assert counted < 5_000
