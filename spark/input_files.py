"""Reads the input files of `ingest`, and keeps the records that can't be read."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from pyspark.errors import PySparkException
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import StringType, StructField, StructType

from spark.errors import Mistake, reason
from spark.folders import File

FORMATS: Final = {".parquet": "parquet", ".csv": "csv", ".json": "json", ".ndjson": "ndjson", ".jsonl": "ndjson"}
PACKED: Final = (".gz", ".bz2", ".zst", ".zstd")
FILE: Final = "_file"
LINE: Final = "_line"
CORRUPT: Final = "_corrupt"


def format_of(files: Sequence[File]) -> str:
    """The format from the files' names. Raises Mistake if they have none, or several."""
    found = set()
    for file in files:
        name = file.path.lower()
        for ending in PACKED:
            name = name.removesuffix(ending)
        found.add(next((kind for ending, kind in FORMATS.items() if name.endswith(ending)), None))
    [kind, *others] = found
    if others or kind is None:
        raise Mistake(f"give --format {'|'.join(dict.fromkeys(FORMATS.values()))}: the files' names don't say it")
    return kind


def read(
    spark: SparkSession, files: Sequence[File], kind: str, schema: str | None, options: Mapping[str, str]
) -> DataFrame:
    """The rows of the files, with three more columns:

    _file     the file's address
    _line     for NDJSON the unchanged line, else NULL
    _corrupt  the text of a record that can't be read, else NULL

    `kind` is a value of FORMATS, `options` are Spark's. Without a schema, CSV columns are text. The first line of a CSV
    file has the names, unless `options` say otherwise. Raises Mistake for an invalid schema or options.
    """
    paths = [file.path for file in files]
    try:
        if kind == "parquet":
            frame = spark.read.options(**options).parquet(*paths)
            _with_corrupt(frame.schema)
            frame = frame.withColumn(CORRUPT, f.lit(None).cast("string"))
        elif kind == "csv":
            frame = _csv(spark, paths, schema, options)
        elif kind == "json":
            frame = _json(spark, paths, schema, options)
        else:
            frame = _ndjson(spark, paths, schema, options)
    except PySparkException as error:
        raise Mistake(f"{kind}: {reason(error)}") from None
    if LINE not in frame.columns:
        frame = frame.withColumn(LINE, f.lit(None).cast("string"))
    return frame.withColumn(FILE, f.input_file_name())


def _csv(spark: SparkSession, paths: list[str], schema: str | None, options: Mapping[str, str]) -> DataFrame:
    asked = {"header": "true"} | dict(options)
    # Types are not inferred: 00123 would become a number.
    found = _parse_schema(schema) if schema else spark.read.options(**asked).csv(paths).schema
    return spark.read.schema(_with_corrupt(found)).options(columnNameOfCorruptRecord=CORRUPT, **asked).csv(paths)


def _json(spark: SparkSession, paths: list[str], schema: str | None, options: Mapping[str, str]) -> DataFrame:
    asked = {"multiLine": "true", "columnNameOfCorruptRecord": CORRUPT} | dict(options)
    found = _parse_schema(schema) if schema else spark.read.options(**asked).json(paths).schema
    return spark.read.schema(_with_corrupt(found)).options(**asked).json(paths)


def _ndjson(spark: SparkSession, paths: list[str], schema: str | None, options: Mapping[str, str]) -> DataFrame:
    asked = {"columnNameOfCorruptRecord": CORRUPT} | dict(options)
    found = _with_corrupt(_parse_schema(schema) if schema else spark.read.options(**asked).json(paths).schema)
    lines = spark.read.text(paths).where("trim(value) <> ''").withColumnRenamed("value", LINE)
    # The text is kept beside the parsed columns: it becomes the payload, with every digit unchanged.
    return lines.withColumn("parsed", f.from_json(LINE, found, asked)).select("parsed.*", LINE)


def _parse_schema(schema: str) -> StructType:
    try:
        found = StructType.fromDDL(schema)
        if not isinstance(found, StructType):
            raise Mistake(f"--schema {schema}: must be columns with types, such as 'id BIGINT, at TIMESTAMP'")
        return found
    except PySparkException as error:
        raise Mistake(f"--schema {schema}: {reason(error)}") from None


def _with_corrupt(schema: StructType) -> StructType:
    if taken := {FILE, LINE} & set(schema.names):
        raise Mistake(f"the column name {taken.pop()} is reserved")
    own = [one for one in schema if one.name != CORRUPT]
    return StructType([*own, StructField(CORRUPT, StringType())])
