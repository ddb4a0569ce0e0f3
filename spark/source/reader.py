"""Batch reads: the driver fixes partitions, the workers read them in pages."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark.errors import Mistake
from spark.source import filters, plans
from spark.source.connection import connect
from spark.source.filters import Condition, condition
from spark.source.options import Options
from spark.source.pages import Row, Walk
from spark.source.plans import Part, Scope


class Reader(DataSourceReader):
    """Reads a table as the options ask."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self.schema = schema

    def partitions(self) -> Sequence[InputPartition]:
        options = self.options
        start = options.start
        since, _ = filters.bounds(options.table, options.filters)
        if since is not None:
            start = max(start or since, since)
        topics = filters.topics(options.filters)
        with connect(options.dsn, read_only=True, purpose="plan") as connection:
            if options.topic is not None:
                topics = [options.topic]
                if options.table.name in ("jobs", "records"):
                    plans.check_topic(connection, options.table, options.topic)
            return plans.plan(connection, options.table, Scope(topics, start, options.end, options.partitions))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        return batches(self.options, self.schema, partition)


def batches(options: Options, schema: StructType, part: Part) -> Iterator[pa.RecordBatch]:
    """A partition's rows, a batch for each page. Nothing is open in the database while the caller uses one."""
    walk = Walk(
        options.table,
        tuple(schema.fieldNames()),
        (*part.conditions, *conditions(options)),
        options.page,
    )
    shape = to_arrow_schema(schema, timezone="UTC")
    with connect(options.dsn, read_only=True, purpose="read") as connection:
        for stretch in part.stretches:
            for page in stretch.pages(connection, walk):
                yield batch(page, shape)


def conditions(options: Options) -> list[Condition]:
    """The conditions on each row: the topic and the filters."""
    topic = [] if options.topic is None else [Condition("topic = %s", (options.topic,))]
    return topic + [one for one in (condition(options.table, each) for each in options.filters) if one is not None]


def batch(rows: Sequence[Row], shape: pa.Schema) -> pa.RecordBatch:
    """Rows as one Arrow batch; each row starts with the values of `shape`."""
    columns = list(zip(*rows, strict=True))
    return pa.RecordBatch.from_arrays(
        [pa.array(columns[i], type=field.type) for i, field in enumerate(shape)], schema=shape
    )


def check_schema(options: Options, schema: StructType) -> StructType:
    """Check that a requested schema has only columns of the table, with their types. Raises Mistake."""
    own = options.table.schema()
    for field in schema.fields:
        if field.name not in own.fieldNames() or own[field.name].dataType != field.dataType:
            raise Mistake(
                f"the schema has {field.name} {field.dataType.simpleString()}, which is not a column of table "
                f"{options.table.name}: leave the schema out, or use option columns"
            )
    return schema
