"""Minutes into holdfast.topic_stats: staged over JDBC, then merged in one transaction; once more changes nothing."""

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
from spark.archive.ledger_events import Ledger
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
    """A window of whole minutes, a topic, and where events come from."""
    windows.arguments(parser, "the minutes to put right")
    parser.add_argument("--topic", help="of this topic alone; of all, if left out")
    kept_days.arguments(parser)


def run(
    spark: SparkSession, dsn: str, args: Namespace, part: str, transform: Callable[[DataFrame], DataFrame]
) -> tuple[int, int]:
    """Extract, transform, load: how many rows a window has, and how many of those were missing or others before.

    Raises Mistake; so it does where a day of the window can't be read: the merge would erase what is told of it.
    """
    window = told(dsn, windows.window(args))
    with Progress(f"{part} of {window}") as progress:
        ledger = Ledger(spark, dsn, args.topic, args.from_files)
        ledger.days(window).check(part)
        rows = transform(ledger.events(window, *minute_stats.KINDS))
        rows = rows.persist(StorageLevel.DISK_ONLY)
        try:
            progress.advance(rows.count())
            if not progress.done and (note := topics.note(dsn, args.topic)):
                progress.say(note)
            ledger.days(window).check(part)  # a day may have been dropped while it was read
            return progress.done, load(rows, dsn, part, window, args.topic)
        finally:
            rows.unpersist()


def told(dsn: str, window: Window) -> Window:
    """The whole minutes of a window, as far as they are told: later ones may still get events. Raises Mistake if there
    are none."""
    with connect(dsn, read_only=True, purpose="stats") as connection:
        row = connection.execute(_TOLD).fetchone()
    assert row is not None, "it is made with the table"
    start, end = (instant.replace(second=0, microsecond=0) for instant in (window.start, min(window.end, row[0])))
    if start >= end:
        raise Mistake(
            f"{window} has no whole minute that is told; the service tells minutes up to {row[0].isoformat()}"
        )
    return Window(start, end)


def load(rows: DataFrame, dsn: str, part: str, window: Window, topic: str | None) -> int:
    """Put a window's rows in the place of what there was: how many that changed. Raises Mistake."""
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
