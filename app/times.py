"""Times and lengths of time as texts: what machines read, and what people read and write."""

from __future__ import annotations

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Final

EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
UNITS_MS: Final[Mapping[str, int]] = {"ms": 1, "s": 1_000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_LENGTH: Final = re.compile(r"(?P<n>[0-9]{1,12})(?P<unit>ms|s|m|h|d)")
_TOLD: Final = ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s"))


def rfc3339(ms: int) -> str:
    """A time in ms since 1970, in UTC, to the millisecond."""
    return (EPOCH + timedelta(milliseconds=ms)).isoformat(timespec="milliseconds").replace("+00:00", "Z")


def duration(ms: float) -> str:
    """A length of time in ms in words: its largest unit and the next smaller one, such as "1 min 30 s"."""
    if ms < 1_000:
        return f"{ms:.0f} ms"
    if ms < 10_000:
        return f"{ms / 1000:.2g} s"
    rest, told = int(ms / 1000), list[str]()
    for size, unit in _TOLD:
        count, rest = divmod(rest, size)
        if told or count:
            told.append(f"{count} {unit}" if count else "")
    return " ".join(filter(None, told[:2]))


def parse_length(text: str) -> int | None:
    """A length of time that somebody wrote as a number and a unit, such as 90d or 300ms, in ms; None if it is none."""
    match = _LENGTH.fullmatch(text)
    return None if match is None else int(match["n"]) * UNITS_MS[match["unit"]]
