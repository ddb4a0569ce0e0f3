"""Whether a cron expression of five fields makes sense, and a time zone's name. When it is due the service says:
docs/schedules.md."""

from __future__ import annotations

import zoneinfo
from collections.abc import Mapping, Sequence
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
_SHORT: Final = {"2": 29, "FEB": 29} | dict.fromkeys(("4", "APR", "6", "JUN", "9", "SEP", "11", "NOV"), 30)
_BEYOND: Final = 100  # more than any value


def check(cron: str) -> None:
    """Raises ValueError, which names the part that is wrong."""
    fields = cron.upper().split()
    if len(fields) != len(_FIELDS):
        raise ValueError(
            f"a cron expression has five fields (minute hour day month weekday), and {cron!r} has {len(fields)}"
        )
    for field, (name, least, most, names) in zip(fields, _FIELDS, strict=True):
        values = {str(value): value for value in range(least, most + 1)}
        values |= {word: value for value, word in enumerate(names, least)}
        for item in field.split(","):
            if not _fits(item, name, values):
                raise ValueError(f"{item!r} is no {name} in the cron expression {cron!r}")
    if _has_no_day(*fields[2:]):
        raise ValueError(f"the cron expression {cron!r} is never due: no month that it names has such a day")


def check_zone(name: str) -> None:
    """Raises ValueError for what is no IANA time zone. Where this machine has no list of them, the service checks."""
    zones = zoneinfo.available_timezones() - {"localtime"}
    if zones and name not in zones | {"UTC"}:
        raise ValueError(f"time_zone is an IANA time zone, such as Europe/Berlin, and not {name!r:.100}")


def _has_no_day(days: str, months: str, weekdays: str) -> bool:
    """Whether it is never due, as on February 30. Only lists of months are checked; the service checks the others."""
    if not weekdays.startswith("*"):
        return False  # due on either
    firsts = [day.partition("/")[0].partition("-")[0] for day in days.split(",")]
    first = min(int(day) if day.isdecimal() else 1 for day in firsts)
    return first > max(_SHORT.get(_value(month), 31) for month in months.split(","))


def _fits(item: str, name: str, values: Mapping[str, int]) -> bool:
    term, slash, step = item.partition("/")
    if slash and not (step.isascii() and step.isdecimal() and int(step) > 0):
        return False
    if term == "*" or (name == "day of month" and term in ("L", "LW")):
        return True
    if name == "day of week" and (term.endswith("L") or term[-2:-1] == "#"):  # the last, or the nth of the month
        day = term.removesuffix("L").partition("#")[0]
        return not slash and _value(day) in values and (term[-1] in "12345" or (term[-1] == "L" and day.isdecimal()))
    first, dash, last = term.partition("-")
    if not dash:
        return _value(first) in values
    return values.get(_value(first), _BEYOND) <= values.get(_value(last), -1)


def _value(text: str) -> str:
    """A number without leading zeros."""
    return text.lstrip("0") or "0" if text.isdecimal() else text
