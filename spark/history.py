"""The ledger's events, from the database or from the archive's files."""

from __future__ import annotations

from argparse import ArgumentParser
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark.errors import Mistake
from spark.source import frame
from spark.windows import Window

EVENTS = (
    "at",
    "seq",
    "until",
    "topic_id",
    "topic",
    "tenant",
    "event",
    "deliveries",
    "lease_id",
    "node",
    "detail",
    "began_at",
)


def arguments(parser: ArgumentParser) -> None:
    """Adds --topic and --from-files."""
    parser.add_argument("--topic", help="of this topic alone")
    parser.add_argument(
        "--from-files", metavar="DIR", help="read the events that pipeline archive wrote there, and not the database's"
    )


def events(spark: SparkSession, dsn: str, window: Window, topic: str | None, files: str | None) -> DataFrame:
    """The columns EVENTS of what happened within a window; of a topic, or of all. Raises Mistake."""
    found = frame(spark, dsn, "lease_events", topic, window) if files is None else _of_files(spark, files)
    # Files from before these columns were there say what NULL says: the default tenant, and nobody knows since when.
    for name, kind in (("tenant", "string"), ("began_at", "timestamp")):
        if name not in found.columns:
            found = found.withColumn(name, f.lit(None).cast(kind))
    found = found.select(*EVENTS).where((f.col("at") >= window.start) & (f.col("at") < window.end))
    return found if topic is None else found.where(f.col("topic") == topic)


def _of_files(spark: SparkSession, folder: str) -> DataFrame:
    path = Path(folder)
    if path.joinpath("lease_events").is_dir():
        path = path / "lease_events"
    if not path.is_dir():
        raise Mistake(f"--from-files {folder}: there is no such folder")
    return spark.read.option("mergeSchema", "true").parquet(str(path))
