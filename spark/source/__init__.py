"""The data source `holdfast`: reads the queue's tables as frames, and writes frames as jobs."""

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
    """Register the format "holdfast" in a session, and hide its option dsn in plans."""
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
    """A frame of one of `tables.TABLES`. The database is read when the frame is used.

    table    a name in TABLES
    topic    one topic; None: all
    window   on the table's time; None: everything
    columns  only these are read; empty: all. Spark does not tell a source which columns it needs
    filters  (column, operator, value), applied by PostgreSQL

    Raises Mistake for invalid arguments.
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
    """Turn the rows of a frame into jobs, all or none, of `topic` or of the topics in its column `topic`.

    Rows that were written under a `write_id` are not written again. Columns and limits: docs/spark.md.
    """
    register(frame.sparkSession)
    options = {"dsn": dsn, "topic": topic, "write_id": write_id}
    given = {name: value for name, value in options.items() if value is not None}
    frame.write.format(Holdfast.name()).mode("append").options(**given).save()
