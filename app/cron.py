"""Cron expressions of five fields, in UTC: whether one makes sense, and when it is due.

minute hour day-of-month month day-of-week, as Debian's cron has them, and `L`, `LW`, `1L` and `1#2` for last days and
weekdays of a month. No `@daily`, no seconds.
"""

from __future__ import annotations

from datetime import datetime
from typing import Final

from cronsim import CronSim, CronSimError

MOST_LENGTH: Final = 256
_SOME_TIME: Final = datetime(2024, 1, 1)


def parse(text: str) -> str:
    """The expression with single spaces; "" stays "", and is never due. Raises ValueError, which says what is wrong."""
    fields = text.split()
    if not fields:
        return ""
    if len(text) > MOST_LENGTH:
        raise ValueError(f"a schedule is longer than {MOST_LENGTH} characters")
    if len(fields) != 5:
        raise ValueError(f"a schedule has five fields (minute hour day month weekday), and this has {len(fields)}")
    expression = " ".join(fields)
    try:
        next(CronSim(expression, _SOME_TIME))
    except CronSimError as error:
        raise ValueError(f"no schedule: {str(error).lower()}") from None
    except (StopIteration, AssertionError):
        raise ValueError("no schedule: it is never due") from None
    return expression


def last_due(expression: str, upto: datetime) -> datetime | None:
    """When a parsed expression was due last, before `upto`; None if never, within fifty years. Of an aware time the
    zone counts: give UTC."""
    return next(CronSim(expression, upto, reverse=True), None) if expression else None


def next_due(expression: str, after: datetime) -> datetime | None:
    """When a parsed expression is due next, after `after`; None if never, within fifty years."""
    return next(CronSim(expression, after), None) if expression else None
