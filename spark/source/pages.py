"""Pages: short statements, each with a snapshot of its own, that together walk a stretch of a table once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from spark.source.connection import Connection, ask
from spark.source.filters import Condition, joined
from spark.source.tables import Layout, Table

PAGE_BYTES: Final = 16 << 20  # of payloads and the like; the first row comes whatever it weighs

Row = tuple[Any, ...]


@dataclass(frozen=True, slots=True)
class Walk:
    """What each page of a read asks: these columns of a table under these conditions, `limit` rows at most."""

    table: Table
    columns: tuple[str, ...]
    conditions: tuple[Condition, ...]
    limit: int

    def pages(self, connection: Connection, bounds: Sequence[Condition]) -> Iterator[list[Row]]:
        """The rows within further bounds, page by page along the key; the values of `columns` come first in a row.

        Each page is a statement by itself: no cursor and no transaction is open while the caller has one.
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
        """A page's: the columns, the key, whether it is wanted, its place among the rows that were looked at, and how
        many these were before they were cut off by their weight. The last one looked at comes in any case.

        Of a keyed table no more than `limit` rows are looked at, whatever is asked of them: for a filter that few rows
        pass, a statement would go on for as long as the table does. Of a day the bounds are a few blocks.
        """
        table = self.table
        key = ", ".join(table.key)
        within, asked = list(bounds), joined(self.conditions)
        if table.layout is Layout.DAYS:
            within, asked = [*within, asked], Condition("true")
        if table.only is not None:
            within.append(Condition(table.only))
        if after is not None:
            marks = ", ".join(f"%s::{_type(table, name)}" for name in table.key)
            within.append(Condition(f"({key}) > ({marks})" if len(table.key) > 1 else f"{key} > {marks}", tuple(after)))
        where = joined(within)
        shown = [_shown(table, name) for name in self.columns]
        shown += [f"{name}::text AS place" if name == "ctid" else name for name in table.key]
        inner = ", ".join(dict.fromkeys([*self.columns, *table.key]))
        big = [f"coalesce(pg_column_size({name}), 0)" for name in self.columns if name in table.big]
        weight = f"CASE WHEN wanted THEN {' + '.join(big) or '0'} ELSE 0 END"
        found = (
            f"SELECT {inner}, ({asked.sql}) IS TRUE AS wanted FROM holdfast.{table.source} WHERE {where.sql}"
            f" ORDER BY {key} LIMIT {self.limit}"
        )
        weighed = (
            f"SELECT *, row_number() OVER w AS nth, count(*) OVER () AS found, {weight} AS weight,"
            f" sum({weight}) OVER w AS upto FROM ({found}) f WINDOW w AS (ORDER BY {key})"
        )
        kept = f"SELECT *, count(*) OVER () AS kept FROM ({weighed}) g WHERE upto <= {PAGE_BYTES} OR upto = weight"
        return (
            f"SELECT {', '.join(shown)}, wanted, nth, found FROM ({kept}) h WHERE wanted OR nth = kept ORDER BY {key}"
        ), (*asked.values, *where.values)


def _shown(table: Table, name: str) -> str:
    shown = table.columns[name].shown.format(name)
    return f"CASE WHEN wanted THEN {shown} END" if name in table.big else shown


def _type(table: Table, name: str) -> str:
    return "tid" if name == "ctid" else table.columns[name].pg
