"""The data source `holdfast`: the queue's tables as frames, and frames as jobs."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame, SparkSession

from spark.source.options import Options
from spark.source.source import Holdfast
from spark.windows import Window

HIDDEN = "spark.sql.redaction.options.regex"


def register(spark: SparkSession) -> None:
    """Makes the format "holdfast" known to a session, and its dsn nothing that plans show."""
    known = spark.conf.get(HIDDEN) or ""
    if "dsn" not in known:
        spark.conf.set(HIDDEN, f"{known}|(?i)dsn".removeprefix("|"))
    spark.dataSource.register(Holdfast)


def frame(
    spark: SparkSession,
    dsn: str,
    table: str,
    topic: str | None = None,
    window: Window | None = None,
    *,
    columns: Sequence[str] = (),
    filters: Sequence[tuple[Any, ...]] = (),
) -> DataFrame:
    """One of `tables.TABLES`; of one topic, or of all; within a window of its time, or all that is there.

    Spark does not tell a source which columns it needs: what is not among `columns`, if any are named, is not read.
    `filters`, (column, operator, value), are asked of PostgreSQL.

    The database is asked when the frame is used. Raises Mistake for what can be seen to be wrong before.
    """
    options = {"dsn": dsn, "table": table}
    if topic is not None:
        options["topic"] = topic
    if window is not None:
        options |= {"from": window.start.isoformat(), "to": window.end.isoformat()}
    if columns:
        options["columns"] = ",".join(columns)
    if filters:
        options["filters"] = json.dumps(filters, default=str)
    Options.read(options)
    register(spark)
    return spark.read.format(Holdfast.name()).options(**options).load()


def enqueue(frame: DataFrame, dsn: str, topic: str | None = None, write_id: str | None = None) -> None:
    """The rows of a frame become jobs, all or none: of `topic`, or of the topics that its column `topic` names.

    What was written under a `write_id` is not written again. Columns and bounds: docs/spark-write.md.
    """
    register(frame.sparkSession)
    options = {"dsn": dsn, "topic": topic, "write_id": write_id}
    given = {name: value for name, value in options.items() if value is not None}
    frame.write.format(Holdfast.name()).mode("append").options(**given).save()
