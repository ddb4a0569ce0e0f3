"""The options of the data source, checked before the database is used."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Final

from pyspark.sql.datasource import Filter

from spark.errors import Mistake
from spark.source import filters, tables
from spark.source.tables import Table
from spark.windows import instant

PAGE: Final = 5000
MOST_PAGE: Final = 100_000
MOST_PARTITIONS: Final = 1000
# The options of reads.
NAMES: Final = ("dsn", "table", "topic", "from", "to", "columns", "filters", "page", "partitions")


@dataclass(frozen=True, slots=True)
class Options:
    """The options of a read.

    start, end  half-open bounds of the table's time; None: no bound
    columns     None: all
    page        most rows of a statement
    partitions  Spark's tasks; None: by the number of rows
    """

    dsn: str
    table: Table
    topic: str | None = None
    start: datetime | None = None
    end: datetime | None = None
    columns: tuple[str, ...] | None = None
    filters: tuple[Filter, ...] = ()
    page: int = PAGE
    partitions: int | None = None

    @classmethod
    def read(cls, given: Mapping[str, str], more: tuple[str, ...] = ()) -> Options:
        """From Spark's options, whose names ignore case. `more` names are allowed, too. Raises Mistake."""
        values = {name.lower(): value for name, value in given.items()}
        for name in values:
            if name not in NAMES + more:
                raise Mistake(f"option {name} is not known; the options are {', '.join(NAMES + more)}")
        for name in "dsn", "table":
            if not values.get(name):
                raise Mistake(f"option {name} is required")
        start, end = _time(values, "from"), _time(values, "to")
        if start is not None and end is not None and start >= end:
            raise Mistake(f"options from={values['from']} to={values['to']}: the window must end after it starts")
        table = tables.find(values["table"])
        columns = tuple(name.strip() for name in values["columns"].split(",")) if "columns" in values else None
        table.schema(columns)
        return cls(
            values["dsn"],
            table,
            values.get("topic"),
            start,
            end,
            columns,
            filters.parse(table, values["filters"]) if "filters" in values else (),
            number(values, "page", 1, MOST_PAGE) or PAGE,
            number(values, "partitions", 1, MOST_PARTITIONS),
        )


def number(values: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    """A whole number from `least` to `most`; None if it is not set. Raises Mistake."""
    if name not in values:
        return None
    try:
        read = int(values[name])
    except ValueError:
        read = least - 1
    if not least <= read <= most:
        raise Mistake(f"option {name}={values[name]}: must be a whole number from {least} to {most}")
    return read


def _time(values: Mapping[str, str], name: str) -> datetime | None:
    return instant(values[name], f"option {name}") if name in values else None
