"""The data source `holdfast`, as Spark asks for its parts."""

from __future__ import annotations

from pyspark.sql.datasource import DataSource, DataSourceStreamArrowWriter, DataSourceWriter
from pyspark.sql.types import StructType

from spark.source import writing


class Holdfast(DataSource):
    """spark.read.format("holdfast"): options in `Options`, tables in `tables`."""

    @classmethod
    def name(cls) -> str:
        return "holdfast"

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return writing.batch(self.options, schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamArrowWriter:
        return writing.stream(self.options, schema, overwrite=overwrite)
