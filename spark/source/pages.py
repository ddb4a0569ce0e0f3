"""Pages: short statements, each with a snapshot of its own, that together walk a stretch of a table once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Final

from spark.source.connection import Connection, ask
from spark.source.filters import Condition, joined
from spark.source.tables import Table

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
        while True:
            sql, values = self.statement(bounds, after)
            rows = ask(connection, sql, values)
            if rows:
                yield rows
            if not rows or (len(rows) == rows[0][-1] < self.limit):
                return
            after = rows[-1][len(self.columns) : -1]

    def statement(self, bounds: Sequence[Condition], after: Row | None) -> tuple[str, tuple[Any, ...]]:
        """A page's: the columns, the key, and how many rows were found before they were cut off by their weight."""
        table = self.table
        key = ", ".join(table.key)
        all_of = [*bounds, *self.conditions]
        if table.only is not None:
            all_of.append(Condition(table.only))
        if after is not None:
            marks = ", ".join(f"%s::{_type(table, name)}" for name in table.key)
            all_of.append(Condition(f"({key}) > ({marks})" if len(table.key) > 1 else f"{key} > {marks}", tuple(after)))
        where = joined(all_of)
        shown = [table.columns[name].shown.format(name) for name in self.columns]
        shown += [f"{name}::text AS place" if name == "ctid" else name for name in table.key]
        big = [name for name in self.columns if name in table.big]
        inner = ", ".join(dict.fromkeys([*self.columns, *table.key]))
        found = f"SELECT {inner} FROM holdfast.{table.source} WHERE {where.sql} ORDER BY {key} LIMIT {self.limit}"
        if not big:
            return f"SELECT {', '.join(shown)}, count(*) OVER () FROM ({found}) f ORDER BY {key}", where.values
        weight = " + ".join(f"coalesce(pg_column_size({name}), 0)" for name in big)
        return (
            f"SELECT {', '.join(shown)}, found FROM ("
            f"SELECT *, count(*) OVER () AS found, {weight} AS weight, sum({weight}) OVER (ORDER BY {key}) AS upto"
            f" FROM ({found}) f) w WHERE upto <= {PAGE_BYTES} OR upto = weight ORDER BY {key}"
        ), where.values


def _type(table: Table, name: str) -> str:
    return "tid" if name == "ctid" else table.columns[name].pg
