"""The options of the data source, checked once, before anything is asked of the database."""

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
# Those of reads; Spark's own and a schema's come beside them.
NAMES: Final = ("dsn", "table", "topic", "from", "to", "columns", "filters", "page", "partitions")


@dataclass(frozen=True, slots=True)
class Options:
    """What a read was asked for. `start` and `end` are half-open bounds of the table's time; None: none.

    `page`: rows of a statement at most. `partitions`: Spark's tasks; None: as many as the rows ask for.
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
        """From Spark's, whose names have no case; `more` are allowed besides. Raises Mistake."""
        asked = {name.lower(): value for name, value in given.items()}
        for name in asked:
            if name not in NAMES + more:
                raise Mistake(f"option {name}: there is none of that name; there are {', '.join(NAMES + more)}")
        for name in "dsn", "table":
            if not asked.get(name):
                raise Mistake(f"option {name} is needed")
        start, end = _time(asked, "from"), _time(asked, "to")
        if start is not None and end is not None and start >= end:
            raise Mistake(f"options from={asked['from']} to={asked['to']}: a window ends after it begins")
        table = tables.find(asked["table"])
        columns = tuple(name.strip() for name in asked["columns"].split(",")) if "columns" in asked else None
        table.schema(columns)
        return cls(
            asked["dsn"],
            table,
            asked.get("topic"),
            start,
            end,
            columns,
            filters.parse(table, asked["filters"]) if "filters" in asked else (),
            number(asked, "page", 1, MOST_PAGE) or PAGE,
            number(asked, "partitions", 1, MOST_PARTITIONS),
        )


def number(asked: Mapping[str, str], name: str, least: int, most: int) -> int | None:
    """A whole number between bounds; None if it was left out. Raises Mistake."""
    if name not in asked:
        return None
    try:
        read = int(asked[name])
    except ValueError:
        read = least - 1
    if not least <= read <= most:
        raise Mistake(f"option {name}={asked[name]}: a whole number from {least} to {most}")
    return read


def _time(asked: Mapping[str, str], name: str) -> datetime | None:
    return instant(asked[name], f"option {name}") if name in asked else None
