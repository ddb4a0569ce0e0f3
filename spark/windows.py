"""Windows of time: explicit, half-open, in UTC unless they say otherwise."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from spark.errors import Mistake


@dataclass(frozen=True, slots=True)
class Window:
    """From `start`, inclusive, to `end`, exclusive; both know their zone."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.start >= self.end:
            raise Mistake(f"a window ends after it begins, and {self} does not")

    def __str__(self) -> str:
        return f"{self.start.isoformat()} to {self.end.isoformat()}"


def arguments(parser: ArgumentParser, which: str) -> None:
    """Adds --day, or --from and --to; `which` says what the window is, and what it is if it is left out."""
    group = parser.add_argument_group("window", f"{which}. --day, or --from (within) and --to (not within)")
    group.add_argument("--day", metavar="DATE", help="a day in UTC, as 2026-11-21")
    group.add_argument("--from", dest="start", metavar="TIME", help="RFC 3339; UTC without an offset")
    group.add_argument("--to", dest="end", metavar="TIME", help="RFC 3339; UTC without an offset; now, if left out")


def window(args: Namespace) -> Window:
    """What `arguments` took. Raises Mistake."""
    if args.day is not None:
        if args.start is not None or args.end is not None:
            raise Mistake("--day is a window by itself: leave out --from and --to")
        start = midnight(day(args.day, "--day"))
        return Window(start, start + timedelta(days=1))
    if args.start is None:
        raise Mistake("which window? --day 2026-11-21, or --from and --to")
    end = datetime.now(UTC) if args.end is None else instant(args.end, "--to")
    return Window(instant(args.start, "--from"), end)


def day(text: str, source: str) -> date:
    """A date. Raises Mistake, which names `source`."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise Mistake(f"{source} {text}: a date, as 2026-11-21") from None


def midnight(of: date) -> datetime:
    """The beginning of a day, in UTC."""
    return datetime(of.year, of.month, of.day, tzinfo=UTC)


def instant(text: str, source: str) -> datetime:
    """A time of RFC 3339, in UTC where it names no zone. Raises Mistake, which names `source`."""
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        raise Mistake(f"{source} {text}: a time as 2026-11-21 or 2026-11-21T09:30:00+01:00") from None
    return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
