"""Cron expressions of five fields: validates them and computes when they are due, in any time zone.

The syntax is Debian cron's (minute hour day-of-month month day-of-week), plus `L`, `LW`, `1L` and `1#2` for last days
and weekdays of a month. No `@daily`, no seconds. Clock changes are handled as in Debian's cron: docs/schedules.md.
"""

from __future__ import annotations

import zoneinfo
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta, tzinfo
from functools import cache
from itertools import islice, takewhile
from typing import Final

from cronsim import CronSim, CronSimError

MOST_LENGTH: Final = 256
_SOME_TIME: Final = datetime(2024, 1, 1)


def parse(text: str) -> str:
    """Validate an expression. Returns it with single spaces; "" is valid and never due. Raises ValueError."""
    fields = text.split()
    if not fields:
        return ""
    if len(text) > MOST_LENGTH:
        raise ValueError(f"a schedule can have at most {MOST_LENGTH} characters")
    if len(fields) != 5:
        raise ValueError(f"a schedule must have five fields (minute hour day month weekday), not {len(fields)}")
    expression = " ".join(fields)
    if "L/" in (days := fields[2].upper()) or "W/" in days:
        raise ValueError("not a valid schedule: the last day of a month has no step")  # cronsim ignores it
    try:
        next(CronSim(expression, _SOME_TIME))
    except CronSimError as error:
        raise ValueError(f"not a valid schedule: {str(error).lower()}") from None
    except (StopIteration, AssertionError):
        raise ValueError("not a valid schedule: it is never due") from None
    return expression


def last_due(expression: str, upto: datetime) -> datetime | None:
    """The last time before `upto` when a parsed expression was due; None if not within 50 years. `upto` must be in
    UTC."""
    return next(CronSim(expression, upto, reverse=True), None) if expression else None


def next_due(expression: str, after: datetime, zone: tzinfo = UTC) -> datetime | None:
    """The next time after `after`, in UTC, when a parsed expression is due by the clocks of a zone; None if not within
    50 years."""
    return next(_due(expression, after, zone), None) if expression else None


def next_times(expression: str, after: datetime, most: int, zone: tzinfo = UTC) -> list[datetime]:
    """The next `most` times of `next_due`, in order."""
    return list(islice(_due(expression, after, zone), most))


def last_times(expression: str, first: datetime, upto: datetime, most: int, zone: tzinfo = UTC) -> list[datetime]:
    """The last `most` times from `first` to `upto` when a parsed expression is due, in order, in UTC. It must be due at
    `first`. The cost does not depend on the length of the range."""
    reach = timedelta(minutes=most)
    while (since := upto - reach) > first:
        found = _until(upto, _due(expression, since, zone))
        if len(found) >= most:
            return found[-most:]
        reach *= 4
    return [first, *_until(upto, _due(expression, first, zone))][-most:]


def time_zone(name: str) -> tzinfo:
    """An IANA time zone, such as Europe/Berlin. Raises ValueError."""
    if name == "UTC":
        return UTC
    if name not in _zones():
        raise ValueError(f"{name[:80]!r} is not an IANA time zone")
    return zoneinfo.ZoneInfo(name)


@cache
def _zones() -> set[str]:
    """Names of all time zones, without the machine's own."""
    return zoneinfo.available_timezones() - {"localtime"}


def _due(expression: str, after: datetime, zone: tzinfo) -> Iterator[datetime]:
    """Times when an expression is due after `after`, strictly increasing. cronsim may go backwards when clocks are set
    back."""
    for local in CronSim(expression, after.astimezone(zone)):
        due = local.astimezone(UTC)
        if due > after:
            yield due
            after = due


def _until(upto: datetime, times: Iterator[datetime]) -> list[datetime]:
    return list(takewhile(lambda time: time <= upto, times))
