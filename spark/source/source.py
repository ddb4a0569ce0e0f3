"""The data source `holdfast`, as Spark asks for its parts."""

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
from spark.source.streams import Asked, Stream

STREAMS: Final[dict[str, type[Stream]]] = {"lease_events": EventStream, "records": LogStream}


class Holdfast(DataSource):
    """spark.read.format("holdfast"): options in `Options`, tables in `tables`."""

    @classmethod
    def name(cls) -> str:
        return "holdfast"

    def schema(self) -> StructType:
        options = Options.read(self.options, Asked.NAMES)
        return options.table.schema(options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = Options.read(self.options)
        return reader.Reader(options, reader.checked(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return writing.batch(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return writing.stream(self.options, schema, overwrite=overwrite)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        asked = Asked.of(self.options)
        kind = STREAMS.get(asked.read.table.name)
        if kind is None:
            raise Mistake(f"option table={asked.read.table.name}: {' and '.join(STREAMS)} can be read as streams")
        return kind(asked, reader.checked(asked.read, schema))
