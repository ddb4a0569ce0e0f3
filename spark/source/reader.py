"""Batch reads: partitions fixed by the driver, read in pages by the workers."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark.errors import Mistake
from spark.source import plans
from spark.source.connection import connect
from spark.source.filters import Condition
from spark.source.options import Options
from spark.source.pages import Row, Walk
from spark.source.plans import Part, Scope


class Reader(DataSourceReader):
    """Reads a table as the options ask.

    It has no pushFilters: Spark 4.3 keeps a reader and what was pushed to it with the frame, for all queries of that
    frame, so that a second one would be answered by the first one's filters.
    """

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self.schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        options = self.options
        topics = None if options.topic is None else [options.topic]
        with connect(options.dsn, read_only=True, purpose="plan") as connection:
            if options.topic is not None and options.table.name in ("jobs", "records"):
                plans.must_have(connection, options.table, options.topic)
            return plans.plan(connection, options.table, Scope(topics, options.start, options.end, options.partitions))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        topic = self.options.topic
        conditions = () if topic is None else (Condition("topic = %s", (topic,)),)
        walk = Walk(
            self.options.table,
            tuple(self.schema.fieldNames()),
            (*partition.conditions, *conditions),
            self.options.page,
        )
        yield from batches(self.options.dsn, walk, partition, self.schema)


def batches(dsn: str, walk: Walk, part: Part, schema: StructType) -> Iterator[pa.RecordBatch]:
    """A partition's rows, a batch for each page. Nothing is open in the database while the caller has one."""
    shape = to_arrow_schema(schema, timezone="UTC")
    with connect(dsn, read_only=True, purpose="read") as connection:
        for stretch in part.stretches:
            for page in stretch.pages(connection, walk):
                yield batch(page, shape)


def batch(rows: Sequence[Row], shape: pa.Schema) -> pa.RecordBatch:
    """Rows, whose first values are those of `shape`, as one batch of Arrow."""
    columns = list(zip(*rows, strict=True))
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[i], type=field.type) for i, field in enumerate(shape)], schema=shape
    )


def checked(options: Options, schema: StructType) -> StructType:
    """A frame's schema: the table's, or one that was asked for. Raises Mistake if that has what the table has not."""
    own = options.table.schema()
    for field in schema.fields:
        if field.name not in own.fieldNames() or own[field.name].dataType != field.dataType:
            raise Mistake(
                f"a schema for table {options.table.name} names its columns with their types, and "
                f"{field.name} {field.dataType.simpleString()} is none; leave it out, or use option columns"
            )
    return schema
