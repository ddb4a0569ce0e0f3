"""A checksum of rows that ignores their order, computed equally by Spark and PostgreSQL.

A value is its length in bytes, a colon and its text; NULL is `-`. A row is its values, concatenated. Its number is the
first 60 bits of its SHA-256, and a checksum is the sum of these, so the checksums of parts add up. Times are
microseconds since 1970, bytes their SHA-256 in hex, JSON the text as it was submitted.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Final, Self

from psycopg import sql
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as f
from pyspark.sql.types import BinaryType, DataType, StructType, TimestampType

HEX_DIGITS: Final = 15


@dataclass(frozen=True, slots=True)
class Sum:
    """The number of rows and their checksum."""

    rows: int = 0
    checksum: int = 0

    def __add__(self, other: Self) -> Sum:
        return Sum(self.rows + other.rows, self.checksum + other.checksum)


def total(sums: Mapping[str, Sum]) -> Sum:
    """The sum over all parts."""
    return sum(sums.values(), Sum())


def of_frame(frame: DataFrame, schema: StructType, by: str) -> dict[str, Sum]:
    """The sums of a frame's rows over the schema's columns, for each value of column `by`. Runs a Spark job."""
    row = f.concat(*(_as_text(f.col(field.name), field.dataType) for field in schema))
    number = f.conv(f.substring(f.sha2(row, 256), 1, HEX_DIGITS), 16, 10).cast("decimal(20, 0)")
    found = (
        frame.select(f.col(by).alias("part"), number.alias("number"))
        .groupBy("part")
        .agg(f.count("*").alias("rows"), f.sum("number").alias("checksum"))
    )
    return {row["part"]: Sum(row["rows"], int(Decimal(row["checksum"]))) for row in found.collect()}


def in_sql(schema: StructType) -> sql.Composed:
    """The PostgreSQL expression of a row's number, of type bigint."""
    row = sql.SQL(" || ").join(_in_sql(field.name, field.dataType) for field in schema)
    return sql.SQL("('x' || left(encode(sha256(convert_to({}, 'UTF8')), 'hex'), {}))::bit({})::bigint").format(
        row, sql.Literal(HEX_DIGITS), sql.Literal(4 * HEX_DIGITS)
    )


def _as_text(column: Column, kind: DataType) -> Column:
    if isinstance(kind, TimestampType):
        column = f.unix_micros(column)
    elif isinstance(kind, BinaryType):
        column = f.sha2(column, 256)
    text = column.cast("string")
    return f.coalesce(f.concat(f.octet_length(text).cast("string"), f.lit(":"), text), f.lit("-"))


def _in_sql(name: str, kind: DataType) -> sql.Composed:
    column: sql.Composable = sql.Identifier(name)
    if isinstance(kind, TimestampType):
        column = sql.SQL("(extract(epoch FROM {}) * 1000000)::bigint").format(column)
    elif isinstance(kind, BinaryType):
        column = sql.SQL("encode(sha256({}), 'hex')").format(column)
    return sql.SQL("coalesce(octet_length({0}::text) || ':' || {0}::text, '-')").format(column)
