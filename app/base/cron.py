"""Cron expressions of five fields: whether one makes sense, and when it is due, in UTC or in another time zone.

minute hour day-of-month month day-of-week, as Debian's cron has them, and `L`, `LW`, `1L` and `1#2` for last days and
weekdays of a month. No `@daily`, no seconds. Where clocks change, as Debian's cron does: docs/schedules.md.
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
    """The expression with single spaces; "" stays "", and is never due. Raises ValueError, which says what is wrong."""
    fields = text.split()
    if not fields:
        return ""
    if len(text) > MOST_LENGTH:
        raise ValueError(f"a schedule is longer than {MOST_LENGTH} characters")
    if len(fields) != 5:
        raise ValueError(f"a schedule has five fields (minute hour day month weekday), and this has {len(fields)}")
    expression = " ".join(fields)
    if "L/" in (days := fields[2].upper()) or "W/" in days:
        raise ValueError("no schedule: the last day of a month has no step")  # which cronsim ignores
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


def next_due(expression: str, after: datetime, zone: tzinfo = UTC) -> datetime | None:
    """When a parsed expression is due next by the clocks of a zone, after `after`: in UTC. None if never, within fifty
    years."""
    return next(_due(expression, after, zone), None) if expression else None


def next_times(expression: str, after: datetime, most: int, zone: tzinfo = UTC) -> list[datetime]:
    """The next `most` such times, in order."""
    return list(islice(_due(expression, after, zone), most))


def last_times(expression: str, first: datetime, upto: datetime, most: int, zone: tzinfo = UTC) -> list[datetime]:
    """The last `most` times at which a parsed expression is due, from `first`, which is one of them, up to `upto`: in
    order, in UTC. Takes no longer where many more went by."""
    reach = timedelta(minutes=most)
    while (since := upto - reach) > first:
        found = _until(upto, _due(expression, since, zone))
        if len(found) >= most:
            return found[-most:]
        reach *= 4
    return [first, *_until(upto, _due(expression, first, zone))][-most:]


def time_zone(name: str) -> tzinfo:
    """An IANA time zone, such as Europe/Berlin. Raises ValueError for what is none."""
    if name == "UTC":
        return UTC
    if name not in _zones():
        raise ValueError("it is no time zone of IANA's")
    return zoneinfo.ZoneInfo(name)


@cache
def _zones() -> set[str]:
    """Their names: without what is one on this machine only."""
    return zoneinfo.available_timezones() - {"localtime"}


def _due(expression: str, after: datetime, zone: tzinfo) -> Iterator[datetime]:
    """When it is due after `after`, each time later than the one before: where a clock is set back, cronsim may go back
    with it."""
    for local in CronSim(expression, after.astimezone(zone)):
        due = local.astimezone(UTC)
        if due > after:
            yield due
            after = due


def _until(upto: datetime, times: Iterator[datetime]) -> list[datetime]:
    return list(takewhile(lambda time: time <= upto, times))
