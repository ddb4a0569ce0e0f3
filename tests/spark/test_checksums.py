"""PostgreSQL and Spark come to the same checksum of the same rows, and to another one of others."""

from __future__ import annotations

from datetime import UTC, datetime

from psycopg import sql
from pyspark.sql import SparkSession

from spark.archive.checksums import Sum, in_sql, of_frame
from tests.spark.past import connected

AT = datetime(2026, 11, 21, 23, 59, 59, 999_999, tzinfo=UTC)
ROWS = [
    ("a", 1, AT, b"\x00\xff", None),
    ("a", -1, datetime(1969, 12, 31, 23, 59, 59, 1, tzinfo=UTC), b"", ""),
    ("ü😀", 2**62, datetime(1970, 1, 1, tzinfo=UTC), None, "-"),
    ("b", None, None, b"1:1", '{"é": "\\u00e9"}'),
    ("b", None, None, b"1:1", '{"é": "\\u00e9"}'),
]
SCHEMA = "topic string, n bigint, at timestamp, payload binary, detail string"


async def test_both_come_to_the_same(spark: SparkSession, database_url: str) -> None:
    frame = spark.createDataFrame(ROWS, SCHEMA)
    number = in_sql(frame.schema)
    with connected(database_url) as db:
        db.execute("CREATE TEMP TABLE t (topic text, n bigint, at timestamptz, payload bytea, detail text)")
        db.cursor().executemany("INSERT INTO t VALUES (%s, %s, %s, %s, %s)", ROWS)
        asked = sql.SQL("SELECT topic, count(*), sum({}) FROM t GROUP BY 1").format(number)
        theirs = {topic: Sum(rows, int(checksum)) for topic, rows, checksum in db.execute(asked)}
        numbers = [row[0] for row in db.execute(sql.SQL("SELECT {} FROM t").format(number))]
    ours = of_frame(frame, frame.schema, "topic")
    assert ours == theirs
    assert {topic: held.rows for topic, held in ours.items()} == {"a": 2, "ü😀": 1, "b": 2}
    assert len(set(numbers)) == 4, "two rows are alike"
    assert all(0 <= number < 2**60 for number in numbers)


def test_neither_null_nor_the_place_of_a_value_goes_unseen(spark: SparkSession) -> None:
    alike = [("", None), (None, ""), ("-", ""), ("1:", ""), ("", "1:")]
    rows = [(str(n), *row) for n, row in enumerate(alike)]
    frame = spark.createDataFrame(rows, "part string, a string, b string")
    sums = of_frame(frame, frame.select("a", "b").schema, "part")
    assert len({held.checksum for held in sums.values()}) == len(alike)
