"""A data source that does all that `holdfast` does but ask a database: rows come from files, through the same hands."""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark.source.options import PAGE
from spark.source.reader import batch
from spark.source.tables import TABLES

ROWS_A_SECOND = 500


class Nothing(DataSource):
    """Options: `folder`, with files of rows of the table `table`. As a stream, rows of the first file over and over."""

    @classmethod
    def name(cls) -> str:
        return "nothing"

    def schema(self) -> StructType:
        return TABLES[self.options["table"]].schema()

    def reader(self, schema: StructType) -> Files:
        return Files(Path(self.options["folder"]), schema)

    def streamReader(self, schema: StructType) -> Again:  # noqa: N802
        return Again(Path(self.options["folder"]), schema)


class Files(DataSourceReader):
    def __init__(self, folder: Path, schema: StructType) -> None:
        self.folder, self.schema = folder, schema

    def partitions(self) -> Sequence[InputPartition]:
        return [InputPartition(str(path)) for path in sorted(self.folder.iterdir())]

    def read(self, partition: InputPartition, most: int = PAGE) -> Iterator[pa.RecordBatch]:
        shape = to_arrow_schema(self.schema, timezone="UTC")
        for one in pq.ParquetFile(partition.value).iter_batches(PAGE):
            rows = list(zip(*(column.to_pylist() for column in one.columns), strict=True))
            yield batch(rows[:most], shape)


class Again(DataSourceStreamReader):
    def __init__(self, folder: Path, schema: StructType) -> None:
        self.files = Files(folder, schema)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return {"n": int(time.time() * ROWS_A_SECOND)}

    def latestOffset(self, start: Any = None, limit: Any = None) -> dict[str, Any]:  # noqa: N802
        return self.initialOffset()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return [InputPartition(end["n"] - start["n"])]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        yield next(self.files.read(self.files.partitions()[0], partition.value))
