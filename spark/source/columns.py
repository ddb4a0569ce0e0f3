"""The columns of a frame whose rows become jobs, and their CSV for a COPY.

pyarrow writes CSV in C++, a batch at a time, and distinguishes NULL from an empty text as COPY does.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Final

import pyarrow as pa
from pyarrow import csv
from pyspark.sql.types import StructType

from spark.errors import Mistake

TEXT: Final = ("string",)
INT: Final = ("int", "tinyint", "smallint", "bigint")
LONG: Final = ("bigint", "tinyint", "smallint", "int")
# The fields of a record, and their Spark types. The first type has exactly the field's values.
TYPES: Final[dict[str, tuple[str, ...]]] = {
    "payload": ("string", "binary"),
    "topic": TEXT,
    "content_type": TEXT,
    "metadata": ("string", "map<string,string>"),
    "tag": TEXT,
    "node": TEXT,
    "priority": INT,
    "delay_ms": LONG,
    "run_at": ("timestamp",),
    "ttl_ms": LONG,
    "max_deliveries": INT,
    "key": TEXT,
    "tenant": TEXT,
    "group": TEXT,
    "dedupe_id": TEXT,
    "user_id": TEXT,
    "webhook": TEXT,
}
OPTIONS: Final = csv.WriteOptions(include_header=False, quoting_style="needed")


@dataclass(frozen=True, slots=True)
class Columns:
    """A frame's columns in order, and the topic of all rows, if there is no column `topic`."""

    names: tuple[str, ...]
    is_text: bool  # whether the payload is text, not bytes
    topic: str | None

    @classmethod
    def of(cls, schema: StructType, topic: str | None) -> Columns:
        """Check a frame's schema. Raises Mistake, which names the invalid column."""
        for field in schema.fields:
            kinds = TYPES.get(field.name)
            if kinds is None:
                raise Mistake(f"column {field.name} is not known; the columns are {', '.join(TYPES)}")
            if field.dataType.simpleString() not in kinds:
                raise Mistake(
                    f"column {field.name} is {field.dataType.simpleString()}; it must be {' or '.join(kinds)}"
                )
        names = tuple(schema.names)
        if "payload" not in names:
            raise Mistake("the column payload is required")
        if ("topic" in names) == (topic is not None):
            raise Mistake("give the option topic for all rows, or a column topic, but not both")
        return cls(names, schema["payload"].dataType.simpleString() == "string", topic)

    @property
    def copy_columns(self) -> str:
        """The table's columns in the order of a line; those with one value for all lines come first."""
        own = ["attempt", "place", *([] if self.topic is None else ["topic"])]
        given = ["payload_text" if name == "payload" and self.is_text else name for name in self.names]
        return ", ".join(f'"{name}"' for name in (*own, *given))

    def to_csv(self, batch: pa.RecordBatch, attempt: int, place: int) -> pa.Buffer:
        """A batch as CSV lines of an attempt; their places begin at `place`."""
        rows = batch.num_rows
        arrays: list[pa.Array] = [pa.repeat(attempt, rows), pa.array(range(place, place + rows), pa.int64())]
        if self.topic is not None:
            arrays.append(pa.repeat(self.topic, rows))
        arrays += [_as_csv(column) for column in batch.columns]
        sink = pa.BufferOutputStream()
        table = pa.RecordBatch.from_arrays(arrays, [str(n) for n in range(len(arrays))])
        csv.write_csv(table, sink, OPTIONS)
        return sink.getvalue()


def _as_csv(column: pa.Array) -> pa.Array:
    if pa.types.is_timestamp(column.type):
        return column.cast(pa.string())
    if pa.types.is_binary(column.type) or pa.types.is_large_binary(column.type):
        return pa.array([None if value is None else "\\x" + value.hex() for value in column.to_pylist()], pa.string())
    if pa.types.is_map(column.type):
        return pa.array([None if v is None else json.dumps(dict(v)) for v in column.to_pylist()], pa.string())
    return column
