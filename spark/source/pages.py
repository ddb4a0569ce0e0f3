"""Pages: short statements, each with its own snapshot, that together read a stretch of a table once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from spark.source.connection import Connection, ask
from spark.source.filters import Condition, all_of
from spark.source.tables import Layout, Table

PAGE_BYTES: Final = 16 << 20  # of payloads and other large columns; the first row comes whatever its size

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Walk:
    """The columns, the conditions, and the row limit of each page of a read."""

    table: Table
    columns: tuple[str, ...]
    conditions: tuple[Condition, ...]
    limit: int

    def pages(self, connection: Connection, bounds: Sequence[Condition]) -> Iterator[list[Row]]:
        """The rows within `bounds`, page by page in the order of the key; a row starts with the values of `columns`.

        Each page is a statement of its own: no cursor and no transaction is open while the caller uses it.
        """
        after: Row | None = None
        more = True
        while more:
            sql, values = self.statement(bounds, after)
            rows = ask(connection, sql, values)
            if page := [row for row in rows if row[-3]]:
                yield page
            more = bool(rows) and not rows[-1][-2] == rows[-1][-1] < self.limit
            after = rows[-1][len(self.columns) : -3] if more else None

    def statement(self, bounds: Sequence[Condition], after: Row | None) -> tuple[str, tuple[Any, ...]]:
        """A page's SQL and values. A row has the columns, the key, whether it fits the conditions, its place among the
        examined rows, and how many rows were examined before the byte limit. The last examined row is always included.

        In a keyed table at most `limit` rows are examined, whatever the conditions: with a filter that few rows pass, a
        statement would otherwise scan the whole table. In a day, the bounds are a few blocks.
        """
        table = self.table
        key = ", ".join(table.key)
        within, wanted = list(bounds), all_of(self.conditions)
        if table.layout is Layout.DAYS:
            within, wanted = [*within, wanted], Condition("true")
        if table.only is not None:
            within.append(Condition(table.only))
        if after is not None:
            marks = ", ".join(f"%s::{_type(table, name)}" for name in table.key)
            within.append(Condition(f"({key}) > ({marks})" if len(table.key) > 1 else f"{key} > {marks}", tuple(after)))
        where = all_of(within)
        selected = [_select_sql(table, name) for name in self.columns]
        selected += [f"{name}::text AS place" if name == "ctid" else name for name in table.key]
        inner = ", ".join(dict.fromkeys([*self.columns, *table.key]))
        big = [f"coalesce(pg_column_size({name}), 0)" for name in self.columns if name in table.big]
        weight = f"CASE WHEN wanted THEN {' + '.join(big) or '0'} ELSE 0 END"
        found = (
            f"SELECT {inner}, ({wanted.sql}) IS TRUE AS wanted FROM holdfast.{table.source} WHERE {where.sql}"
            f" ORDER BY {key} LIMIT {self.limit}"
        )
        weighed = (
            f"SELECT *, row_number() OVER w AS nth, count(*) OVER () AS found, {weight} AS weight,"
            f" sum({weight}) OVER w AS upto FROM ({found}) f WINDOW w AS (ORDER BY {key})"
        )
        kept = f"SELECT *, count(*) OVER () AS kept FROM ({weighed}) g WHERE upto <= {PAGE_BYTES} OR upto = weight"
        return (
            f"SELECT {', '.join(selected)}, wanted, nth, found FROM ({kept}) h"
            f" WHERE wanted OR nth = kept ORDER BY {key}"
        ), (*wanted.values, *where.values)


def _select_sql(table: Table, name: str) -> str:
    selected = table.columns[name].select_sql.format(name)
    return f"CASE WHEN wanted THEN {selected} END" if name in table.big else selected


def _type(table: Table, name: str) -> str:
    return "tid" if name == "ctid" else table.columns[name].pg
