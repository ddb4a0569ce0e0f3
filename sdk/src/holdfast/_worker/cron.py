"""Validates cron expressions of five fields and names of time zones. The service computes when they are due:
docs/schedules.md."""

from __future__ import annotations

import calendar
import zoneinfo
from collections.abc import Mapping, Sequence, Set
from typing import Final

_MONTHS: Final = ("JAN", "FEB", "MAR", "APR", "MAY", "JUN", "JUL", "AUG", "SEP", "OCT", "NOV", "DEC")
_DAYS: Final = ("SUN", "MON", "TUE", "WED", "THU", "FRI", "SAT")
_FIELDS: Final[Sequence[tuple[str, int, int, Sequence[str]]]] = (
    ("minute", 0, 59, ()),
    ("hour", 0, 23, ()),
    ("day of month", 1, 31, ()),
    ("month", 1, 12, _MONTHS),
    ("day of week", 0, 7, _DAYS),
)
_BEYOND: Final = 100  # more than any value
_YEARS: Final = range(2000, 2028)  # in these, each date falls on each day of the week
_MOST_LENGTH: Final = 256


def check(cron: str) -> None:
    """Raises ValueError, which names the invalid part."""
    if len(cron) > _MOST_LENGTH:
        raise ValueError(f"a cron expression has at most {_MOST_LENGTH} characters, and {cron[:40]!r}… has {len(cron)}")
    fields = cron.upper().split()
    if len(fields) != len(_FIELDS):
        raise ValueError(
            f"a cron expression has five fields (minute hour day month weekday), and {cron!r} has {len(fields)}"
        )
    due: list[set[str]] = []
    for field, (name, least, most, names) in zip(fields, _FIELDS, strict=True):
        values = {str(value): value for value in range(least, most + 1)}
        values |= {word: value for value, word in enumerate(names, least)}
        due.append(set())
        for item in field.split(","):
            found = _values(item, name, values, most)
            if not found:
                raise ValueError(f"{item!r} is not a valid {name} in the cron expression {cron!r}")
            due[-1] |= found
    _, _, days, months, weekdays = due
    is_both = fields[2].startswith("*") or fields[4].startswith("*")  # otherwise it is due on either
    if is_both and not any(_has_day(year, int(month), days, weekdays) for month in months for year in _YEARS):
        raise ValueError(f"the cron expression {cron!r} is never due: none of its months has such a day")


def check_zone(name: str) -> None:
    """Raises ValueError for an unknown IANA time zone. If this machine has no list of them, only the service checks."""
    zones = zoneinfo.available_timezones() - {"localtime"}
    if zones and name not in zones | {"UTC"}:
        raise ValueError(f"time_zone must be an IANA time zone, such as Europe/Berlin, not {name!r:.100}")


def _has_day(year: int, month: int, days: Set[str], weekdays: Set[str]) -> bool:
    """Whether a day of the month matches both fields."""
    first, length = calendar.monthrange(year, month)
    workday = length - max((first + length - 1) % 7 - 4, 0)  # the last
    return any(
        days & {str(day), "L" if day == length else "", "LW" if day == workday else ""}
        and weekdays & {weekday, f"{weekday}#{(day + 6) // 7}", f"{weekday}L" if day + 7 > length else ""}
        for day, weekday in ((day, str((first + day) % 7)) for day in range(1, length + 1))
    )


def _values(item: str, name: str, values: Mapping[str, int], most: int) -> set[str]:
    """The values of an item: numbers, `L`, `LW`, `5L`, `1#2`. Sunday is 0. Empty for an invalid item."""
    if name == "day of month" and item in ("L", "LW"):
        return {item}
    if name == "day of week" and (item.endswith("L") or "#" in item):  # the last, or the nth of the month
        day, _, nth = item.partition("#")
        day, last = (day, f"#{_value(nth)}") if nth else (item[:-1], "L" if item[:-1].isdecimal() else "")
        is_one = _value(day) in values and last in ("L", "#1", "#2", "#3", "#4", "#5")
        return {f"{values[_value(day)] % 7}{last}"} if is_one else set()
    term, slash, step = item.partition("/")
    if slash and not (step.isascii() and step.isdecimal() and int(step) > 0):
        return set()
    first, dash, last = term.partition("-")
    low, high = (min(values.values()), most) if term == "*" else (values.get(_value(first), _BEYOND),) * 2
    if dash:
        high = values.get(_value(last), -1)
    if slash and low == high:
        high = most
    found = range(low, min(high, most) + 1, int(step) if slash else 1)
    return {str(value % 7 if name == "day of week" else value) for value in found}


def _value(text: str) -> str:
    """Strip leading zeros from a number."""
    return text.lstrip("0") or "0" if text.isdecimal() else text
