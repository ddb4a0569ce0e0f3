"""Formats and parses times and durations."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
UNITS_MS: Final[Mapping[str, int]] = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LENGTH: Final = re.compile(r"(?P<n>[0-9]{1,12})(?P<unit>ms|s|m|h|d)")
_TYPED: Final = re.compile(r"[0-9]{1,30}|[0-9]{1,30} ?(?:ms|s|min|m|h|d)(?: [0-9]{1,30} ?(?:ms|s|min|m|h|d))*")
_ONE: Final = re.compile(r"([0-9]+) ?([a-z]*)")
_EXACT: Final = (("d", 86_400_000), ("h", 3_600_000), ("min", 60_000), ("s", 1_000))
_ROUGH: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def ms_of(time: datetime) -> int:
    """A time in ms since 1970."""
    return int(time.timestamp() * 1000)


def ms_or_none(time: datetime | None) -> int | None:
    """A time in ms since 1970; None for None."""
    return None if time is None else ms_of(time)


def rfc3339(ms: int) -> str:
    """Format a time in ms since 1970 as RFC 3339, in UTC, to the millisecond."""
    return (EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def duration(ms: float) -> str:
    """Format a duration in ms with its two largest units, such as "1 min 30 s"."""
    if ms < 1_000:
        return f"{ms:.0f} ms"
    if ms < 10_000:
        return f"{ms / 1000:.2g} s"
    rest, parts = int(ms / 1000), list[str]()
    for size, unit in _ROUGH:
        count, rest = divmod(rest, size)
        if parts or count:
            parts.append(f"{count} {unit}" if count else "")
    return " ".join(filter(None, parts[:2]))


def parse_length(text: str) -> int | None:
    """Parse a number and a unit, such as 90d or 300ms. Returns ms, or None if malformed."""
    match = _LENGTH.fullmatch(text)
    return None if match is None else int(match["n"]) * UNITS_MS[match["unit"]]


def exact_length(ms: int) -> str:
    """Format a duration in ms for an input field: in the largest unit with a whole number, such as "90 s"."""
    return next((f"{ms // size} {unit}" for unit, size in _EXACT if ms and ms % size == 0), f"{ms} ms" if ms else "0")


def typed_length(text: str) -> int | None:
    """Parse a duration that a user typed, such as "30 s", "1 min 30 s" or "1500 ms"; without a unit it is in ms.
    Returns ms, or None if malformed."""
    if _TYPED.fullmatch(text) is None:
        return None
    return sum(int(n) * UNITS_MS[{"": "ms", "min": "m"}.get(unit, unit)] for n, unit in _ONE.findall(text))
