"""Batch reads: partitions fixed by the driver, read in pages by the workers."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, Filter, InputPartition
from pyspark.sql.pandas.types import to_arrow_schema
from pyspark.sql.types import StructType

from spark.errors import Mistake
from spark.source import filters, plans
from spark.source.connection import connect
from spark.source.filters import Condition
from spark.source.options import Options
from spark.source.pages import Row, Walk
from spark.source.plans import Part, Scope


class Reader(DataSourceReader):
    """Reads a table as the options ask, with those filters that mean the same in SQL."""

    def __init__(self, options: Options, schema: StructType) -> None:
        self.options = options
        self.schema = schema
        self.pushed: list[Filter] = []

    def pushFilters(self, filters: list[Filter]) -> Iterable[Filter]:
        """All are given back, for Spark to apply again. To it, two scans of a frame that differ only in what was pushed are
        one scan: it would read once, with either's filters, what a union or a join asks for twice."""
        self.pushed = [one for one in filters if self._condition(one) is not None]
        return filters

    def partitions(self) -> Sequence[InputPartition]:
        options = self.options
        start = options.start
        since, _ = filters.bounds(options.table, self.pushed)
        if since is not None:
            start = max(start or since, since)
        topics = filters.topics(self.pushed)
        with connect(options.dsn, read_only=True, purpose="plan") as connection:
            if options.topic is not None:
                topics = [options.topic]
                if options.table.name in ("jobs", "records"):
                    plans.must_have(connection, options.table, options.topic)
            return plans.plan(connection, options.table, Scope(topics, start, options.end, options.partitions))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Part)
        conditions = [one for one in map(self._condition, self.pushed) if one is not None]
        if self.options.topic is not None:
            conditions.append(Condition("topic = %s", (self.options.topic,)))
        walk = Walk(
            self.options.table,
            tuple(self.schema.fieldNames()),
            (*partition.conditions, *conditions),
            self.options.page,
        )
        yield from batches(self.options.dsn, walk, partition, self.schema)

    def _condition(self, one: Filter) -> Condition | None:
        return filters.condition(self.options.table, one)


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
