"""The base class of streams, and their options."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow
from pyspark.sql.types import StructType

from spark.errors import Mistake
from spark.source import epochs, options
from spark.source.connection import Connection, connect
from spark.source.options import Options
from spark.source.plans import Part
from spark.source.reader import batches

ROWS_PER_BATCH: Final = 20_000
MOST_PER_BATCH: Final = 10_000_000

Offset = dict[str, Any]


@dataclass(frozen=True, slots=True)
class StreamOptions:
    """The options of a stream.

    read            the options that reads have, too
    starting        earliest, latest, or a place that the table's stream understands
    rows_per_batch  most rows of a micro-batch
    may_lack        continue if retention removed unread rows
    epoch           the epoch that is accepted instead of the checkpoint's
    """

    NAMES: ClassVar = ("starting", "rows_per_batch", "lost", "epoch")

    read: Options
    starting: str = "latest"
    rows_per_batch: int = ROWS_PER_BATCH
    may_lack: bool = False
    epoch: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> StreamOptions:
        """From Spark's options. Raises Mistake."""
        values = {name.lower(): value for name, value in given.items()}
        for name in "from", "to":
            if name in values:
                raise Mistake(f"option {name} does not apply to streams: option starting says where to begin")
        lost = values.get("lost", "fail")
        if lost not in ("fail", "skip"):
            raise Mistake(f"option lost={lost}: must be fail or skip")
        most = options.number(values, "rows_per_batch", 1, MOST_PER_BATCH)
        return cls(
            Options.read(given, cls.NAMES),
            values.get("starting", "latest"),
            most or ROWS_PER_BATCH,
            lost == "skip",
            values.get("epoch"),
        )


class Stream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream of a table. A subclass defines the offsets; each offset also has its epoch."""

    def __init__(self, options: StreamOptions, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self.target: Any = None
        self._connection: Connection | None = None

    @abstractmethod
    def first(self, connection: Connection) -> Offset:
        """The first offset."""

    @abstractmethod
    def newest(self, connection: Connection) -> Any:
        """The current end of the stream, for availableNow."""

    @abstractmethod
    def next(self, connection: Connection, start: Offset, most: int | None) -> Offset:
        """The end of a batch of about `most` rows (None: all); `start` itself if there are no rows."""

    @abstractmethod
    def parts(self, connection: Connection, start: Offset, end: Offset) -> list[Part]:
        """The partitions of a batch: the same rows each time."""

    def initialOffset(self) -> Offset:
        connection = self._connected()
        return {"epoch": epochs.current(connection), **self.first(connection)}

    def prepareForTriggerAvailableNow(self) -> None:
        self.target = self.newest(self._connected())

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.options.rows_per_batch)

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:
        if start is None:  # Spark 4.1 calls it like this
            raise Mistake("a stream needs Spark 4.2 or newer")
        connection = self._same(start)
        end = self.next(connection, start, limit.max_rows if isinstance(limit, ReadMaxRows) else None)
        return start if end is start else {"epoch": epochs.current(connection), **end}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return [] if start == end else self.parts(self._same(start), start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        return batches(self.options.read, self.schema, partition)

    def stop(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _same(self, offset: Offset) -> Connection:
        """A connection to the database. Raises Mistake if the offset belongs to another one."""
        connection = self._connected()
        epochs.check_epoch(offset, epochs.current(connection), self.options.epoch)
        return connection

    def _connected(self) -> Connection:
        """The driver's connection, kept between batches and reopened after an error."""
        if self._connection is None or self._connection.closed:
            self._connection = connect(self.options.read.dsn, read_only=True, purpose="stream")
        return self._connection

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_connection": None}  # workers open their own
