"""Streams: what all of them have in common."""

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
class Asked:
    """What a stream was asked for beside a read's options.

    `starting`: earliest, latest, or a place that the table's stream understands. `may_lack`: go on where retention took
    what was not read yet. `epoch`: go on with a checkpoint of another one.
    """

    NAMES: ClassVar = ("starting", "rows_per_batch", "lost", "epoch")

    read: Options
    starting: str = "latest"
    rows_per_batch: int = ROWS_PER_BATCH
    may_lack: bool = False
    epoch: str | None = None

    @classmethod
    def of(cls, given: Mapping[str, str]) -> Asked:
        """Raises Mistake."""
        asked = {name.lower(): value for name, value in given.items()}
        for name in "from", "to":
            if name in asked:
                raise Mistake(f"option {name}: a stream has no end; option starting says where it begins")
        lost = asked.get("lost", "fail")
        if lost not in ("fail", "skip"):
            raise Mistake(f"option lost={lost}: fail, or skip what retention took before it was read")
        most = options.number(asked, "rows_per_batch", 1, MOST_PER_BATCH)
        return cls(
            Options.read(given, cls.NAMES),
            asked.get("starting", "latest"),
            most or ROWS_PER_BATCH,
            lost == "skip",
            asked.get("epoch"),
        )


class Stream(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """A stream's offsets, of which a table's own class knows the meaning. Each has the epoch that it is of."""

    def __init__(self, asked: Asked, schema: StructType) -> None:
        self.asked = asked
        self.schema = schema
        self.target: Any = None
        self._connection: Connection | None = None

    @abstractmethod
    def first(self, connection: Connection) -> Offset:
        """Where the stream starts."""

    @abstractmethod
    def newest(self, connection: Connection) -> Any:
        """How far it could be read now."""

    @abstractmethod
    def next(self, connection: Connection, start: Offset, most: int | None) -> Offset:
        """The end of a batch of `most` rows, about (None: all there are); `start` itself if there is none."""

    @abstractmethod
    def parts(self, connection: Connection, start: Offset, end: Offset) -> list[Part]:
        """The partitions of a batch: the same rows whenever it is asked."""

    def initialOffset(self) -> Offset:
        connection = self._connected()
        return {"epoch": epochs.current(connection), **self.first(connection)}

    def prepareForTriggerAvailableNow(self) -> None:
        self.target = self.newest(self._connected())

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self.asked.rows_per_batch)

    def latestOffset(self, start: Offset | None = None, limit: ReadLimit | None = None) -> Offset:
        if start is None:  # as Spark 4.1 asks
            raise Mistake("a stream needs Spark 4.2 or newer")
        connection = self._same(start)
        end = self.next(connection, start, limit.max_rows if isinstance(limit, ReadMaxRows) else None)
        return start if end is start else {"epoch": epochs.current(connection), **end}

    def partitions(self, start: Offset, end: Offset) -> Sequence[InputPartition]:
        return [] if start == end else self.parts(self._same(start), start, end)

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        return batches(self.asked.read, self.schema, partition)

    def stop(self) -> None:
        if self._connection is not None:
            self._connection.close()

    def _same(self, offset: Offset) -> Connection:
        """A connection to the database that an offset is of. Raises Mistake."""
        connection = self._connected()
        epochs.must_be_of(offset, epochs.current(connection), self.asked.epoch)
        return connection

    def _connected(self) -> Connection:
        """The driver's connection: kept between batches, and made anew after an error."""
        if self._connection is None or self._connection.closed:
            self._connection = connect(self.asked.read.dsn, read_only=True, purpose="stream")
        return self._connection

    def __getstate__(self) -> dict[str, Any]:
        return self.__dict__ | {"_connection": None}  # workers have their own
