"""Finds the days of a table, in files or in the database, and reads the rows of a window."""

from __future__ import annotations

from argparse import ArgumentParser
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, timedelta
from functools import partial, reduce
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark.archive import day_partitions
from spark.archive.day_files import Day, Files
from spark.errors import Mistake
from spark.source import days, frame
from spark.source.connection import connect
from spark.source.tables import find
from spark.windows import Window, midnight

TIMES: Final = {"lease_events": "at", "archive": "finished_at"}
EVENTS: Final = (
    *("at", "seq", "until", "topic_id", "topic", "tenant", "event"),
    *("deliveries", "lease_id", "node", "detail", "began_at"),
)


def arguments(parser: ArgumentParser) -> None:
    """Add --from-files."""
    parser.add_argument(
        "--from-files",
        metavar="DIR",
        help="the folder of `archive --to`; days that are not there are read from the database",
    )


@dataclass(frozen=True, slots=True)
class Kept:
    """Where the days of a window are, in order. Files come first, because the database may lack rows of such a day."""

    table: str
    files: Mapping[date, Day]
    database: Sequence[date]
    nowhere: Sequence[date]
    marks: Mapping[date, str]  # where these days were archived
    oldest: date | None  # of all kept days, also outside of the window

    def check(self, doing: str, *, since_oldest: bool = False) -> None:
        """Raises Mistake if a day can't be read; `doing` names the pipeline.

        With `since_oldest`, days before the oldest kept day are ignored, if any day is kept.
        """
        some = since_oldest and (self.files or self.database)
        lost = [day for day in self.nowhere if not (some and self.oldest is not None and day < self.oldest)]
        if not lost:
            return
        more = f" and {len(lost) - 3} more" if len(lost) > 3 else ""
        where = sorted({self.marks[day] for day in lost if day in self.marks})
        hint = f"archived at {', '.join(where)}: --from-files, or " if where else ""
        raise Mistake(
            f"{doing} needs every day of {self.table}, but {', '.join(map(str, lost[:3]))}{more} can't be read: "
            f"{hint}choose a window without them; the oldest day that is kept is {self.oldest}"
        )


def archived_days(dsn: str, table: str, files: Files | None) -> dict[date, Day]:
    """The marked days of a table in these files, the oldest first."""
    return {} if files is None else files.days(table, day_partitions.marks(dsn))


def locate_days(dsn: str, table: str, window: Window, files: Files | None = None) -> Kept:
    """Where each day of a window is now."""
    marked = day_partitions.marks(dsn)
    archived = {} if files is None else files.days(table, marked)
    marks = {part.day: mark.location for part, mark in marked.items() if part.table == table}
    with connect(dsn, read_only=True, purpose="days") as db:
        there = set(days.list_days(db, table))
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
    """The UTC days that a window overlaps; its end is exclusive."""
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
    """The rows of a window: archived days from files, the others from the database.

    columns  empty: all; NULL where an older day lacks the column
    topic    None: all
    kinds    kinds of events; empty: all

    Raises Mistake.
    """
    filters = [("event", "in", list(kinds))] if kinds else []
    read = partial(frame, spark, dsn, table, topic, columns=columns, filters=filters)
    there = archived_days(dsn, table, files)
    wanted = {day: there[day] for day in days_of(window) if day in there}
    if files is None or not wanted:
        return read(window)
    archived = files.frame(table, wanted.values())
    time = archived[TIMES[table]]
    archived = archived.where((time >= window.start) & (time < window.end))
    archived = archived if topic is None else archived.where(archived["topic"] == topic)
    archived = archived.where(archived["event"].isin(*kinds)) if kinds else archived
    archived = archived.select(*(name for name in columns or archived.columns if name in archived.columns))
    every = spark.createDataFrame([], find(table).schema(columns or None))  # all columns, in order
    parts = [every, archived, *(read(one) for one in _between(window, wanted))]
    return reduce(partial(DataFrame.unionByName, allowMissingColumns=True), parts)


def _between(window: Window, days: Iterable[date]) -> Iterator[Window]:
    """The parts of a window outside of these days, which are in order."""
    start = window.start
    for day in days:
        if start < midnight(day):
            yield Window(start, midnight(day))
        start = midnight(day) + timedelta(days=1)
    if start < window.end:
        yield Window(start, window.end)


@dataclass(frozen=True, slots=True)
class Ledger:
    """The ledger of a topic, or of all: archived days from files, the others from the database."""

    spark: SparkSession
    dsn: str
    topic: str | None = None
    files: str | None = None

    def days(self, window: Window) -> Kept:
        """Where the days of a window are."""
        return locate_days(self.dsn, "lease_events", window, self._root())

    def events(self, window: Window, *kinds: str) -> DataFrame:
        """The events of a window with the columns EVENTS, of these kinds or of all. Raises Mistake."""
        root = self._root()
        if root is not None and not set(days_of(window)) & set(archived_days(self.dsn, "lease_events", root)):
            raise Mistake(f"--from-files {self.files}: there is no complete day of lease_events in {window}")
        return rows(self.spark, self.dsn, "lease_events", window, root, columns=EVENTS, topic=self.topic, kinds=kinds)

    def finished(self, window: Window, columns: tuple[str, ...]) -> DataFrame:
        """The archived jobs that were completed in a window. Raises Mistake."""
        read = tuple(dict.fromkeys((*columns, "outcome")))
        found = rows(self.spark, self.dsn, "archive", window, self._root(), columns=read, topic=self.topic)
        return found.where(f.col("outcome") == "completed").select(*columns)

    def _root(self) -> Files | None:
        return None if self.files is None else Files(self.spark, self.files)
