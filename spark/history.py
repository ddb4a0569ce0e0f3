"""The ledger's events, from the database or from the archive's files."""

from __future__ import annotations

from argparse import ArgumentParser
from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark.errors import Mistake
from spark.files import Files
from spark.source import frame
from spark.windows import Window

EVENTS: Final = (
    *("at", "seq", "until", "topic_id", "topic", "tenant", "event"),
    *("deliveries", "lease_id", "node", "detail", "began_at"),
)


def arguments(parser: ArgumentParser) -> None:
    """Adds --topic and --from-files."""
    parser.add_argument("--topic", help="of this topic alone")
    parser.add_argument(
        "--from-files", metavar="DIR", help="read what pipeline archive wrote there, and not the database's events"
    )


@dataclass(frozen=True, slots=True)
class Ledger:
    """The events of a topic, or of all; the database's, or those of an archive's root."""

    spark: SparkSession
    dsn: str
    topic: str | None = None
    files: str | None = None

    def events(self, window: Window, *kinds: str) -> DataFrame:
        """The columns EVENTS of what happened within a window, of these kinds if any are named. Raises Mistake."""
        if self.files is None:
            filters = [("event", "in", list(kinds))] if kinds else []
            found = frame(self.spark, self.dsn, "lease_events", self.topic, window, columns=EVENTS, filters=filters)
        else:
            found = self._archived("lease_events", window)
            # Files from before these columns were there say what NULL says: the default tenant, and nobody knows when.
            for name, kind in (("tenant", "string"), ("began_at", "timestamp")):
                if name not in found.columns:
                    found = found.withColumn(name, f.lit(None).cast(kind))
        found = found.select(*EVENTS).where((f.col("at") >= window.start) & (f.col("at") < window.end))
        if kinds:
            found = found.where(f.col("event").isin(*kinds))
        return found if self.topic is None else found.where(f.col("topic") == self.topic)

    def finished(self, window: Window, columns: tuple[str, ...]) -> DataFrame:
        """Jobs of replayable topics that were completed within a window. Raises Mistake."""
        read = (*columns, "topic", "outcome", "finished_at")
        if self.files is None:
            found = frame(self.spark, self.dsn, "archive", self.topic, window, columns=tuple(dict.fromkeys(read)))
        else:
            found = self._archived("archive", window)
        within = (f.col("finished_at") >= window.start) & (f.col("finished_at") < window.end)
        found = found.where(within & (f.col("outcome") == "completed"))
        return (found if self.topic is None else found.where(f.col("topic") == self.topic)).select(*columns)

    def _archived(self, table: str, window: Window) -> DataFrame:
        root = Files(self.spark, str(self.files))
        days = root.days(table)
        wanted = {day: days[day] for day in days if window.start.date() <= day <= window.end.date()}
        if not wanted:
            raise Mistake(f"--from-files {self.files}: no day of {table} that overlaps {window} is whole there")
        return root.frame(table, wanted)
