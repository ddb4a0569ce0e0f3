"""Streams without a Spark session: a reader's own methods, called as Spark calls them."""

from __future__ import annotations

import json
from typing import Any

from pyspark.sql.datasource import DataSourceStreamReader
from pyspark.sql.streaming.datasource import SupportsTriggerAvailableNow

from spark.source.source import Holdfast


class Query:
    """A query with its checkpoint, of which only what was committed outlives a restart."""

    def __init__(self, dsn: str, **options: str) -> None:
        self.options = {"dsn": dsn, "table": "lease_events", "starting": "latest", **options}
        self.checkpoint: dict[str, Any] | None = None
        self.rows: list[dict[str, Any]] = []
        self.batches: list[int] = []
        self.restart()

    def restart(self) -> None:
        source = Holdfast(self.options)
        self.reader: DataSourceStreamReader = source.streamReader(source.schema())

    def batch(self, *, commits: bool = True) -> list[dict[str, Any]]:
        """A micro-batch. Offsets go through JSON, as they do in Spark."""
        if self.checkpoint is None:
            self.checkpoint = self.reader.initialOffset()
        start = json.loads(json.dumps(self.checkpoint))
        end = json.loads(json.dumps(self.reader.latestOffset(start, self.reader.getDefaultReadLimit())))
        rows = [
            row
            for part in self.reader.partitions(start, end)
            for batch in self.reader.read(part)
            for row in batch.to_pylist()  # type: ignore[union-attr]
        ]
        if commits:
            self.checkpoint = end
            self.rows += rows
            self.batches.append(len(rows))
        return rows

    def drain(self) -> None:
        """Batches until there is nothing more."""
        before = None
        while before != self.checkpoint or before is None:
            before = self.checkpoint
            self.batch()

    def drain_now(self) -> None:
        """All that is committed by now, as trigger availableNow reads it."""
        assert isinstance(self.reader, SupportsTriggerAvailableNow)
        self.reader.prepareForTriggerAvailableNow()
        self.drain()

    def seqs(self) -> list[int]:
        return sorted(row["seq"] for row in self.rows)
