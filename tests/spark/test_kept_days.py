"""Which days of a window can be read, and who refuses when one can't."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from datetime import UTC, date, datetime, timedelta

import pytest

from spark.archive.kept_days import Kept, days_of, locate_days
from spark.errors import Mistake
from spark.windows import Window, midnight
from tests.spark.past import connected

DAYS = [date(2026, 1, day) for day in range(1, 7)]


def test_the_end_of_a_window_is_no_day_of_it() -> None:
    assert days_of(Window(midnight(DAYS[0]), midnight(DAYS[2]))) == DAYS[:2]
    assert days_of(Window(midnight(DAYS[0]), midnight(DAYS[2]) + timedelta(microseconds=1))) == DAYS[:3]


def of(database: list[date], nowhere: list[date], oldest: date | None) -> Kept:
    return Kept("lease_events", {}, database, nowhere, {DAYS[3]: "s3a://b/x"}, oldest)


def test_a_day_that_is_nowhere_is_refused() -> None:
    of(DAYS, [], DAYS[0]).check("x")
    with pytest.raises(Mistake, match=r"x needs every day of lease_events, but 2026-01-01 can't be read"):
        of(DAYS[1:], DAYS[:1], DAYS[1]).check("x")
    of(DAYS[1:], DAYS[:1], DAYS[1]).check("x", since_oldest=True)
    with pytest.raises(Mistake, match=r"2026-01-04 can't be read: archived at s3a://b/x: --from-files"):
        of([DAYS[2], DAYS[4]], [*DAYS[:2], DAYS[3]], DAYS[2]).check("x", since_oldest=True)
    with pytest.raises(Mistake, match=r"2026-01-01, 2026-01-02, 2026-01-03 and 3 more"):
        of([], DAYS, date(2026, 2, 1)).check("x", since_oldest=True)


async def test_what_the_database_has(new_database: Callable[[], Awaitable[str]]) -> None:
    dsn = await new_database()
    today = datetime.now(UTC).date()
    there, gone = today + timedelta(days=1), today + timedelta(days=2)
    with connected(dsn) as db:
        db.execute(f"DROP TABLE holdfast.lease_events_{gone:%Y%m%d}")
        db.execute("INSERT INTO holdfast.archived_days VALUES ('lease_events', %s, 0, 0, '/a')", [gone])
    found = locate_days(dsn, "lease_events", Window(midnight(there), midnight(gone) + timedelta(days=1)))
    assert (found.database, found.nowhere, found.marks) == ([there], [gone], {gone: "/a"})
    assert found.oldest is not None
    assert found.oldest <= today
