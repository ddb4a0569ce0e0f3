"""The data source class that Spark calls."""

from __future__ import annotations

from typing import Final

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamArrowWriter,
    DataSourceStreamReader,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from spark.errors import Mistake
from spark.source import reader, writing
from spark.source.event_stream import EventStream
from spark.source.log_stream import LogStream
from spark.source.options import Options
from spark.source.streams import Stream, StreamOptions

STREAMS: Final[dict[str, type[Stream]]] = {"lease_events": EventStream, "records": LogStream}


class Holdfast(DataSource):
    """spark.read.format("holdfast"): its options are in `Options`, its tables in `tables`."""

    @classmethod
    def name(cls) -> str:
        return "holdfast"

    def schema(self) -> StructType:
        options = Options.read(self.options, StreamOptions.NAMES)
        return options.table.schema(options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = Options.read(self.options)
        return reader.Reader(options, reader.check_schema(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return writing.batch(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return writing.stream(self.options, schema, overwrite=overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = StreamOptions.of(self.options)
        kind = STREAMS.get(options.read.table.name)
        if kind is None:
            raise Mistake(
                f"option table={options.read.table.name}: only {' and '.join(STREAMS)} can be read as streams"
            )
        return kind(options, reader.check_schema(options.read, schema))
