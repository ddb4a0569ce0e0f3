"""The data source `holdfast`, as Spark asks for its parts."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceReader, DataSourceStreamArrowWriter, DataSourceWriter
from pyspark.sql.types import StructType

from spark.source import reader, writing
from spark.source.options import Options


class Holdfast(DataSource):
    """spark.read.format("holdfast"): options in `Options`, tables in `tables`."""

    @classmethod
    def name(cls) -> str:
        return "holdfast"

    def schema(self) -> StructType:
        options = Options.read(self.options)
        return options.table.schema(options.columns)

    def reader(self, schema: StructType) -> DataSourceReader:
        options = Options.read(self.options)
        return reader.Reader(options, reader.checked(options, schema))

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:  # noqa: FBT001
        return writing.batch(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:  # noqa: FBT001, N802
        return writing.stream(self.options, schema, overwrite=overwrite)
