"""The ledger's events, from the database or from the archive's files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark.archive.day_files import Files
from spark.archive.kept_days import Kept, days_of, finished, kept, rows
from spark.errors import Mistake
from spark.windows import Window

EVENTS: Final = (
    *("at", "seq", "until", "topic_id", "topic", "tenant", "event"),
    *("deliveries", "lease_id", "node", "detail", "began_at"),
)


@dataclass(frozen=True, slots=True)
class Ledger:
    """The events of a topic, or of all: the days that are in files from there, the others from the database."""

    spark: SparkSession
    dsn: str
    topic: str | None = None
    files: str | None = None

    def days(self, window: Window) -> Kept:
        """Where the days of the events of a window are."""
        return kept(self.dsn, "lease_events", window, self._root())

    def events(self, window: Window, *kinds: str) -> DataFrame:
        """The columns EVENTS of what happened within a window, of these kinds if any are named. Raises Mistake."""
        root = self._root()
        if root is not None and not set(days_of(window)) & set(finished(self.dsn, "lease_events", root)):
            raise Mistake(f"--from-files {self.files}: no day of lease_events that overlaps {window} is whole there")
        return rows(self.spark, self.dsn, "lease_events", window, root, columns=EVENTS, topic=self.topic, kinds=kinds)

    def finished(self, window: Window, columns: tuple[str, ...]) -> DataFrame:
        """Jobs of replayable topics that were completed within a window. Raises Mistake."""
        read = tuple(dict.fromkeys((*columns, "outcome")))
        found = rows(self.spark, self.dsn, "archive", window, self._root(), columns=read, topic=self.topic)
        return found.where(f.col("outcome") == "completed").select(*columns)

    def _root(self) -> Files | None:
        return None if self.files is None else Files(self.spark, self.files)
