"""Where the days of a table are, in files or in the database, and the rows of a window from there."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, timedelta
from functools import partial, reduce
from typing import Final

from pyspark.sql import DataFrame, SparkSession

from spark.archive import day_partitions
from spark.archive.day_files import Day, Files
from spark.errors import Mistake
from spark.source import days, frame
from spark.source.connection import connect
from spark.source.tables import find
from spark.windows import Window, midnight

TIMES: Final = {"lease_events": "at", "archive": "finished_at"}


def arguments(parser: ArgumentParser) -> None:
    """Adds --from-files."""
    parser.add_argument(
        "--from-files",
        metavar="DIR",
        help="where `archive --to` put days; those that are not there are read from the database",
    )


@dataclass(frozen=True, slots=True)
class Kept:
    """The days of a window, in order. Files come first: of a day that has them the database may have rows no more."""

    table: str
    files: Mapping[date, Day]
    database: Sequence[date]
    nowhere: Sequence[date]
    marks: Mapping[date, str]  # where the archive put which of these days
    oldest: date | None  # of all days that are kept, within the window or not

    def check(self, doing: str, *, since_oldest: bool = False) -> None:
        """Raises Mistake if a day is nowhere. With `since_oldest`, days before the oldest kept don't matter, as long
        as any is kept."""
        some = since_oldest and (self.files or self.database)
        lost = [day for day in self.nowhere if not (some and self.oldest is not None and day < self.oldest)]
        if not lost:
            return
        more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
        where = sorted({self.marks[day] for day in lost if day in self.marks})
        hint = f"archived at {', '.join(where)}: --from-files, or " if where else ""
        raise Mistake(
            f"{doing} needs every day of {self.table}, and of {', '.join(map(str, lost[:3]))}{more} there is nothing "
            f"to read: {hint}choose a window that has none of them; the oldest day that is kept is {self.oldest}"
        )


def finished(dsn: str, table: str, files: Files | None) -> dict[date, Day]:
    """The marked days of a table that these files have, the oldest first."""
    return {} if files is None else files.days(table, day_partitions.marks(dsn))


def kept(dsn: str, table: str, window: Window, files: Files | None = None) -> Kept:
    """Where each day of a window is, by now."""
    marked = day_partitions.marks(dsn)
    archived = {} if files is None else files.days(table, marked)
    marks = {part.day: mark.location for part, mark in marked.items() if part.table == table}
    with connect(dsn, read_only=True, purpose="days") as db:
        there = set(days.listed(db, table))
    wanted = days_of(window)
    return Kept(
        table,
        {day: archived[day] for day in wanted if day in archived},
        [day for day in wanted if day in there and day not in archived],
        [day for day in wanted if day not in there and day not in archived],
        {day: marks[day] for day in wanted if day in marks},
        min((*archived, *there), default=None),
    )


def days_of(window: Window) -> list[date]:
    """The days, in UTC, that a window overlaps: its end is not within."""
    first, last = (at.astimezone(UTC).date() for at in (window.start, window.end - timedelta(microseconds=1)))
    return [first + timedelta(days=n) for n in range((last - first).days + 1)]


def rows(
    spark: SparkSession,
    dsn: str,
    table: str,
    window: Window,
    files: Files | None,
    *,
    columns: Sequence[str] = (),
    topic: str | None = None,
    kinds: Sequence[str] = (),
) -> DataFrame:
    """The rows of a window: of the days that are in files from there, of the others from the database.

    With these columns, or all; of this topic, or of all; events of these kinds, or of all. NULL where an older day has
    no such column. Raises Mistake.
    """
    filters = [("event", "in", list(kinds))] if kinds else []
    read = partial(frame, spark, dsn, table, topic, columns=columns, filters=filters)
    there = finished(dsn, table, files)
    wanted = {day: there[day] for day in days_of(window) if day in there}
    if files is None or not wanted:
        return read(window)
    archived = files.frame(table, wanted.values())
    time = archived[TIMES[table]]
    archived = archived.where((time >= window.start) & (time < window.end))
    archived = archived if topic is None else archived.where(archived["topic"] == topic)
    archived = archived.where(archived["event"].isin(*kinds)) if kinds else archived
    archived = archived.select(*(name for name in columns or archived.columns if name in archived.columns))
    every = spark.createDataFrame([], find(table).schema(columns or None))  # each column, in its place
    parts = [every, archived, *(read(one) for one in _between(window, wanted))]
    return reduce(partial(DataFrame.unionByName, allowMissingColumns=True), parts)


def _between(window: Window, days: Iterable[date]) -> Iterator[Window]:
    """What of a window is in none of these days, which are in order."""
    start = window.start
    for day in days:
        if start < midnight(day):
            yield Window(start, midnight(day))
        start = midnight(day) + timedelta(days=1)
    if start < window.end:
        yield Window(start, window.end)
