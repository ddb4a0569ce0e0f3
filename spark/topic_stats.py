"""Writes minutes to holdfast.topic_stats: staged over JDBC, then merged in one transaction."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from uuid import uuid4

import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.storagelevel import StorageLevel

from spark import jdbc, topics, windows
from spark.analysis import minute_stats
from spark.archive import kept_days
from spark.archive.kept_days import Ledger
from spark.errors import Mistake, reason
from spark.progress import Progress
from spark.source.connection import connect
from spark.windows import Window

STAGED = "holdfast.topic_stats_staged"
_TOLD = "SELECT filled_to FROM holdfast.topic_stats_progress"
_MERGE = {
    "throughput": "SELECT holdfast.merge_throughput(%s, %s, %s, %s, %s)",
    "latency": "SELECT holdfast.merge_latency(%s, %s, %s, %s, %s)",
}


def arguments(parser: ArgumentParser) -> None:
    """Add the window, the topic, and the source of events."""
    windows.arguments(parser, "the minutes to correct")
    parser.add_argument("--topic", help="only this topic; default: all")
    kept_days.arguments(parser)


def run(
    spark: SparkSession, dsn: str, args: Namespace, part: str, transform: Callable[[DataFrame], DataFrame]
) -> tuple[int, int]:
    """Count a window and merge the rows. Returns how many rows it has, and how many of them changed the table.

    `part` is a key of _MERGE. Raises Mistake, also if a day can't be read: the merge would erase its rows.
    """
    window = counted_window(dsn, windows.window(args))
    with Progress(f"{part} of {window}") as progress:
        ledger = Ledger(spark, dsn, args.topic, args.from_files)
        ledger.days(window).check(part)
        rows = transform(ledger.events(window, *minute_stats.KINDS))
        rows = rows.persist(StorageLevel.DISK_ONLY)
        try:
            progress.advance(rows.count())
            if not progress.done and (note := topics.note(dsn, args.topic)):
                progress.say(note)
            ledger.days(window).check(part)  # a day may have been dropped during the read
            return progress.done, load(rows, dsn, part, window, args.topic)
        finally:
            rows.unpersist()


def counted_window(dsn: str, window: Window) -> Window:
    """The whole minutes of a window that the service has counted: later ones may still get events.

    Raises Mistake if there are none.
    """
    with connect(dsn, read_only=True, purpose="stats") as connection:
        row = connection.execute(_TOLD).fetchone()
    assert row is not None, "the migration inserts it"
    start, end = (instant.replace(second=0, microsecond=0) for instant in (window.start, min(window.end, row[0])))
    if start >= end:
        raise Mistake(
            f"{window} has no whole minute that is counted; the service has counted up to {row[0].isoformat()}"
        )
    return Window(start, end)


def load(rows: DataFrame, dsn: str, part: str, window: Window, topic: str | None) -> int:
    """Replace a window's rows. Returns how many changed. Raises Mistake."""
    run, total = str(uuid4()), rows.count()
    jdbc.append(rows.withColumn("run", f.lit(run)), dsn, STAGED)
    with connect(dsn, read_only=False, purpose="stats") as connection:
        connection.execute("SET statement_timeout = '10min'")
        try:
            row = connection.execute(_MERGE[part], (run, window.start, window.end, topic, total)).fetchone()
        except psycopg.Error as error:
            raise Mistake(f"the rows could not be merged: {reason(error)}") from error
    assert row is not None
    changed: int = row[0]
    return changed
