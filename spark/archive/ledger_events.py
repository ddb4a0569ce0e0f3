"""The ledger's events, from the database or from files."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f

from spark.archive.day_files import Files
from spark.archive.kept_days import Kept, archived_days, days_of, locate_days, rows
from spark.errors import Mistake
from spark.windows import Window

EVENTS: Final = (
    *("at", "seq", "until", "topic_id", "topic", "tenant", "event"),
    *("deliveries", "lease_id", "node", "detail", "began_at"),
)


@dataclass(frozen=True, slots=True)
class Ledger:
    """The ledger of a topic, or of all: archived days from files, the others from the database."""

    spark: SparkSession
    dsn: str
    topic: str | None = None
    files: str | None = None

    def days(self, window: Window) -> Kept:
        """Where the days of a window are."""
        return locate_days(self.dsn, "lease_events", window, self._root())

    def events(self, window: Window, *kinds: str) -> DataFrame:
        """The events of a window with the columns EVENTS, of these kinds or of all. Raises Mistake."""
        root = self._root()
        if root is not None and not set(days_of(window)) & set(archived_days(self.dsn, "lease_events", root)):
            raise Mistake(f"--from-files {self.files}: there is no complete day of lease_events in {window}")
        return rows(self.spark, self.dsn, "lease_events", window, root, columns=EVENTS, topic=self.topic, kinds=kinds)

    def finished(self, window: Window, columns: tuple[str, ...]) -> DataFrame:
        """The archived jobs that were completed in a window. Raises Mistake."""
        read = tuple(dict.fromkeys((*columns, "outcome")))
        found = rows(self.spark, self.dsn, "archive", window, self._root(), columns=read, topic=self.topic)
        return found.where(f.col("outcome") == "completed").select(*columns)

    def _root(self) -> Files | None:
        return None if self.files is None else Files(self.spark, self.files)
