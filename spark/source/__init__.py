"""The data source `holdfast`: the queue's tables as frames, and frames as jobs."""

from __future__ import annotations

from pyspark.sql import DataFrame, SparkSession

from spark.source.source import Holdfast


def register(spark: SparkSession) -> None:
    """Makes the format "holdfast" known to a session."""
    spark.dataSource.register(Holdfast)


def enqueue(frame: DataFrame, dsn: str, topic: str | None = None, write_id: str | None = None) -> None:
    """The rows of a frame become jobs, all or none: of `topic`, or of the topics that its column `topic` names.

    What was written under a `write_id` is not written again. Columns and bounds: docs/spark-write.md.
    """
    register(frame.sparkSession)
    options = {"dsn": dsn, "topic": topic, "write_id": write_id}
    given = {name: value for name, value in options.items() if value is not None}
    frame.write.format(Holdfast.name()).mode("append").options(**given).save()
