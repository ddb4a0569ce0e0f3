"""Kinds of errors, as the service makes them: holdfast.error_title and error_cluster (docs/dead-letters.md)."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import islice
from typing import Final

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as f

from spark.source.connection import connect

BATCH: Final = 1_000
_TITLES: Final = """
    SELECT e.ord - 1, coalesce(holdfast.error_title(e.error), ''), holdfast.error_cluster(e.error)
    FROM unnest(%s::text[]) WITH ORDINALITY AS e(error, ord)"""


def titled(events: DataFrame, dsn: str) -> DataFrame:
    """Events with the title and the cluster of the error in `detail`; the database is asked once for each text.

    One without an error has the cluster of those whose workers said nothing.
    """

    def ask(given: Iterable[Row]) -> Iterable[tuple[str | None, str, str]]:
        rows = iter(given)
        with connect(dsn, read_only=True, purpose="clusters") as connection:
            while errors := [row[0] for row in islice(rows, BATCH)]:
                found = connection.execute(_TITLES, [errors]).fetchall()
                yield from ((errors[place], title, cluster) for place, title, cluster in found)

    spark = events.sparkSession
    texts = events.select(f.col("detail").alias("error")).distinct()
    named = spark.createDataFrame(texts.rdd.mapPartitions(ask), "error string, title string, cluster string")
    return events.join(named, events["detail"].eqNullSafe(named["error"])).drop("error")
