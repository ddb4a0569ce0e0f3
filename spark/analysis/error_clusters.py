"""The service's kinds of errors: holdfast.error_title and error_cluster (docs/dead-letters.md)."""

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


def add_titles(events: DataFrame, dsn: str) -> DataFrame:
    """Add the title and the cluster of the error in `detail`. The database computes them once for each distinct text.

    Events without an error have the cluster of leases that expired.
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
