"""Minutes into holdfast.topic_stats: staged over JDBC, then merged in one transaction; run again, they change nothing."""

from __future__ import annotations

from argparse import ArgumentParser, Namespace
from collections.abc import Callable
from datetime import datetime
from uuid import uuid4

import psycopg
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.storagelevel import StorageLevel

from spark import history, jdbc, windows
from spark.errors import Mistake
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
    windows.arguments(parser)
    history.arguments(parser)


def run(
    spark: SparkSession, dsn: str, args: Namespace, part: str, transform: Callable[[DataFrame], DataFrame]
) -> tuple[int, int]:
    """Extract, transform, load: how many rows a window has, and how many of those were missing or others before.

    Raises Mistake.
    """
    window = told(dsn, windows.window(args))
    with Progress(f"{part} of {window}") as progress:
        rows = transform(history.events(spark, dsn, window, args.topic, args.from_files))
        rows = rows.persist(StorageLevel.DISK_ONLY)
        try:
            total = rows.count()
            progress.advance(total)
            return total, load(rows, dsn, part, window, args.topic, total)
        finally:
            rows.unpersist()


def told(dsn: str, window: Window) -> Window:
    """The window, as far as its minutes are told: later ones may still get events. Raises Mistake if there are none."""
    for instant in (window.start, window.end):
        if instant.second or instant.microsecond:
            if instant is window.end and (datetime.now(instant.tzinfo) - instant).total_seconds() < 60:
                continue  # it was left out, or is now
            raise Mistake(f"{instant.isoformat()}: the window has whole minutes")
    with connect(dsn, read_only=True, purpose="stats") as connection:
        row = connection.execute(_TOLD).fetchone()
    assert row is not None, "it is made with the table"
    if window.start >= row[0]:
        raise Mistake(
            f"the service tells minutes up to {row[0].isoformat()} by now, and the window begins there or later"
        )
    return Window(window.start, min(window.end, row[0]))


def load(rows: DataFrame, dsn: str, part: str, window: Window, topic: str | None, total: int) -> int:
    """Put a window's rows in the place of what there was: how many that changed. Raises Mistake."""
    run = str(uuid4())
    jdbc.append(rows.withColumn("run", f.lit(run)), dsn, STAGED)
    with connect(dsn, read_only=False, purpose="stats") as connection:
        connection.execute("SET statement_timeout = '10min'")
        try:
            row = connection.execute(_MERGE[part], (run, window.start, window.end, topic, total)).fetchone()
        except psycopg.Error as error:
            raise Mistake(f"the rows could not be merged: {str(error).strip().splitlines()[0]}") from error
    assert row is not None
    changed: int = row[0]
    return changed
