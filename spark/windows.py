"""Time windows: explicit, half-open, in UTC unless they name another zone."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta

from spark.errors import Mistake


@dataclass(frozen=True, slots=True)
class Window:
    """From `start`, inclusive, to `end`, exclusive; both have a time zone. Raises Mistake if it is empty."""

    start: datetime
    end: datetime

    def __post_init__(self) -> None:
        if self.start >= self.end:
            raise Mistake(f"the window {self} must end after it starts")

    def __str__(self) -> str:
        return f"{self.start.isoformat()} to {self.end.isoformat()}"


def arguments(parser: ArgumentParser, which: str) -> None:
    """Add --day, --from and --to. `which` is the help: what the window is, and its default."""
    group = parser.add_argument_group("window", f"{which}. --day, or --from (inclusive) and --to (exclusive)")
    group.add_argument("--day", metavar="DATE", help="a day in UTC, such as 2026-11-21")
    group.add_argument("--from", dest="start", metavar="TIME", help="RFC 3339; UTC without an offset")
    group.add_argument("--to", dest="end", metavar="TIME", help="RFC 3339; UTC without an offset; default: now")


def window(args: Namespace) -> Window:
    """The window of the arguments. Raises Mistake."""
    if args.day is not None:
        if args.start is not None or args.end is not None:
            raise Mistake("--day can't be combined with --from and --to")
        start = midnight(day(args.day, "--day"))
        return Window(start, start + timedelta(days=1))
    if args.start is None:
        raise Mistake("a window is required: --day 2026-11-21, or --from and --to")
    end = datetime.now(UTC) if args.end is None else instant(args.end, "--to")
    return Window(instant(args.start, "--from"), end)


def day(text: str, source: str) -> date:
    """Parse a date. Raises Mistake, which names `source`."""
    try:
        return date.fromisoformat(text)
    except ValueError:
        raise Mistake(f"{source} {text}: must be a date such as 2026-11-21") from None


def midnight(of: date) -> datetime:
    """The start of a day, in UTC."""
    return datetime(of.year, of.month, of.day, tzinfo=UTC)


def instant(text: str, source: str) -> datetime:
    """Parse an RFC 3339 time, in UTC if it has no offset. Raises Mistake, which names `source`."""
    try:
        read = datetime.fromisoformat(text)
    except ValueError:
        raise Mistake(f"{source} {text}: must be a time such as 2026-11-21 or 2026-11-21T09:30:00+01:00") from None
    return read.replace(tzinfo=UTC) if read.tzinfo is None else read.astimezone(UTC)
