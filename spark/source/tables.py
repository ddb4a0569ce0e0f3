"""The tables that can be read, with their columns, keys and times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Final

from pyspark.sql.types import (
    BinaryType,
    DataType,
    IntegerType,
    LongType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampType,
)

from spark.errors import Mistake


@dataclass(frozen=True, slots=True)
class Kind:
    """A column's type.

    spark          its type in Spark
    pg             the PostgreSQL type of values that it is compared with
    select_sql     the SQL that selects it; {} is the column
    compare_sql    the SQL that compares it: byte by byte like Spark, not by a language's rules
    can_be_pushed  whether filters on it can run in PostgreSQL
    """

    spark: DataType
    pg: str
    select_sql: str = "{}"
    compare_sql: str = "{}"
    can_be_pushed: bool = True


TEXT: Final = Kind(StringType(), "text", compare_sql='{} COLLATE "C"')
WORD: Final = Kind(StringType(), "text", select_sql="{}::text", compare_sql='{}::text COLLATE "C"')  # enum, uuid
JSON: Final = Kind(StringType(), "text", select_sql="{}::text", can_be_pushed=False)
BYTES: Final = Kind(BinaryType(), "bytea", can_be_pushed=False)
TIME: Final = Kind(TimestampType(), "timestamptz")
LONG: Final = Kind(LongType(), "bigint")
INT: Final = Kind(IntegerType(), "bigint")
SHORT: Final = Kind(ShortType(), "bigint")
XID: Final = Kind(LongType(), "bigint", select_sql="{}::text::bigint", compare_sql="{}::text::bigint")


class Layout(Enum):
    """How a table's rows are stored, and so how it is read piece by piece."""

    KEYED = "keyed"  # read along an index that begins with the topic
    DAYS = "days"  # a partition for each day; a row stays where it was written, so its place is its key


@dataclass(frozen=True, slots=True)
class Table:
    """A table that can be read.

    source  the table's name in the database
    time    the column that windows apply to
    key     unique and ordered: columns of an index, or the place in a day's partition
    big     columns whose bytes are limited in a page
    only    the table's own condition
    """

    name: str
    source: str
    columns: Mapping[str, Kind]
    time: str
    layout: Layout
    key: tuple[str, ...]
    big: tuple[str, ...] = ()
    only: str | None = None

    def schema(self, columns: Sequence[str] | None = None) -> StructType:
        """The frame's schema, of all columns or of the named ones. Raises Mistake for an unknown column."""
        for name in columns or ():
            if name not in self.columns:
                raise Mistake(f"table {self.name} has no column {name}; it has {', '.join(self.columns)}")
        return StructType([StructField(name, self.columns[name].spark) for name in columns or self.columns])


_JOBS: Final = {
    "seq": LONG,
    "position": LONG,
    "visible_at": TIME,
    "created_at": TIME,
    "updated_at": TIME,
    "expires_at": TIME,
    "original_seq": LONG,
    "dlq_moved_at": TIME,
    "topic_id": INT,
    "deliveries": INT,
    "max_deliveries": INT,
    "original_deliveries": INT,
    "state": WORD,
    "priority": SHORT,
    "lease_id": WORD,
    "topic": TEXT,
    "tenant": TEXT,
    "node": TEXT,
    "tag": TEXT,
    "producer": TEXT,
    "last_error": TEXT,
    "original_topic": TEXT,
    "metadata": JSON,
    "payload": BYTES,
    "leased_at": TIME,
    "content_type": TEXT,
    "first_topic_id": INT,
    "first_seq": LONG,
    "key": TEXT,
    "original_tenant": TEXT,
    "original_max_deliveries": INT,
    "ttl_ms": LONG,
    "cluster": TEXT,
    "failed_in": TEXT,
    "failed_at": TIME,
    "grp": TEXT,
    "crashes": INT,
    "refunds": SHORT,
    "original_crashes": INT,
    "cancelled_at": TIME,
    "progress": SHORT,
    "progress_note": TEXT,
    "progress_at": TIME,
    "progress_lease": WORD,
    "webhook": TEXT,
    "left_grp": TEXT,
}

TABLES: Final[Mapping[str, Table]] = {
    table.name: table
    for table in (
        Table("jobs", "jobs", _JOBS, "created_at", Layout.KEYED, ("topic", "seq"), ("payload", "metadata")),
        Table(
            "dead_letters",
            "jobs",
            _JOBS,
            "dlq_moved_at",
            Layout.KEYED,
            ("topic", "dlq_moved_at", "seq"),
            ("payload", "metadata"),
            only="dlq_moved_at IS NOT NULL",
        ),
        Table(
            "records",
            "records",
            {
                "seq": LONG,
                "created_at": TIME,
                "topic_id": INT,
                "topic": TEXT,
                "tag": TEXT,
                "node": TEXT,
                "metadata": JSON,
                "payload": BYTES,
            },
            "created_at",
            Layout.KEYED,
            ("topic", "seq"),
            ("payload", "metadata"),
        ),
        Table(
            "lease_events",
            "lease_events",
            {
                "at": TIME,
                "tx": XID,
                "seq": LONG,
                "until": TIME,
                "topic_id": INT,
                "deliveries": INT,
                "event": WORD,
                "lease_id": WORD,
                "topic": TEXT,
                "node": TEXT,
                "detail": TEXT,
                "began_at": TIME,
                "tenant": TEXT,
                "grp": TEXT,
                "max_deliveries": INT,
            },
            "at",
            Layout.DAYS,
            ("ctid",),
        ),
        Table(
            "results",
            "results",
            {
                "completed_at": TIME,
                "expires_at": TIME,
                "seq": LONG,
                "first_seq": LONG,
                "topic_id": INT,
                "first_topic_id": INT,
                "deliveries": INT,
                "lease_id": WORD,
                "topic": TEXT,
                "node": TEXT,
                "result": JSON,
            },
            "completed_at",
            Layout.DAYS,
            ("ctid",),
            ("result",),
        ),
        Table(
            "archive",
            "archive",
            {
                "finished_at": TIME,
                "seq": LONG,
                "created_at": TIME,
                "original_seq": LONG,
                "first_seq": LONG,
                "topic_id": INT,
                "first_topic_id": INT,
                "deliveries": INT,
                "max_deliveries": INT,
                "outcome": WORD,
                "priority": SHORT,
                "topic": TEXT,
                "tenant": TEXT,
                "key": TEXT,
                "node": TEXT,
                "tag": TEXT,
                "producer": TEXT,
                "content_type": TEXT,
                "last_error": TEXT,
                "original_topic": TEXT,
                "metadata": JSON,
                "payload": BYTES,
                "grp": TEXT,
            },
            "finished_at",
            Layout.DAYS,
            ("ctid",),
            ("payload", "metadata"),
        ),
    )
}


def find(name: str) -> Table:
    """The table of a name. Raises Mistake."""
    try:
        return TABLES[name]
    except KeyError:
        raise Mistake(f"option table={name}: must be one of {', '.join(TABLES)}") from None
