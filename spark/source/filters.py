"""Filters of a read as conditions of PostgreSQL, where Spark would mean the same by them."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import datetime
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    IsNull,
    LessThan,
    LessThanOrEqual,
)

from spark.errors import Mistake
from spark.source.tables import Kind, Table
from spark.windows import instant

_Compared = EqualTo | GreaterThan | GreaterThanOrEqual | LessThan | LessThanOrEqual
_OPERATORS: Final[dict[type[_Compared], str]] = {
    EqualTo: "=",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
}


_NAMED: Final = {operator: kind for kind, operator in _OPERATORS.items()}
_BARE: Final = {"is null": IsNull, "is not null": IsNotNull}


@dataclass(frozen=True, slots=True)
class Condition:
    """A condition of a WHERE clause, with its parameters in the order of its placeholders."""

    sql: str
    values: tuple[Any, ...] = ()


def parse(table: Table, text: str) -> tuple[Filter, ...]:
    """Of option `filters`: a JSON list of [column, operator, value], all of which hold. Raises Mistake."""
    try:
        asked = json.loads(text)
        filters = tuple(_parse(table, *one) for one in asked)
    except (ValueError, TypeError) as error:
        raise Mistake(f"option filters={text}: a JSON list of [column, operator, value]: {error}") from None
    for written, one in zip(asked, filters, strict=True):
        if condition(table, one) is None:
            raise Mistake(f"option filters: {written} can't be asked of table {table.name}")
    return filters


def _parse(table: Table, column: str, operator: str, value: Any = None) -> Filter:
    if operator in _BARE:
        return _BARE[operator]((column,))
    kind = table.columns.get(column)
    if kind is not None and kind.pg == "timestamptz":
        value = [instant(v, column) for v in value] if operator == "in" else instant(value, column)
    if operator == "in":
        return In((column,), tuple(value))
    if operator not in _NAMED:
        raise ValueError(f"operator {operator}: one of {', '.join([*_NAMED, 'in', *_BARE])}")
    return _NAMED[operator]((column,), value)


def joined(conditions: Iterable[Condition]) -> Condition:
    """All of them."""
    all_of = list(conditions)
    sql = " AND ".join(one.sql for one in all_of)
    return Condition(sql or "true", tuple(value for one in all_of for value in one.values))


def condition(table: Table, asked: Filter) -> Condition | None:
    """The same in SQL; None if it isn't, and Spark has to look itself.

    Text is compared byte by byte, as Spark does; times are instants of whole microseconds in both.
    """
    if not isinstance(asked, _Compared | In | IsNull | IsNotNull) or len(asked.attribute) != 1:
        return None
    name = asked.attribute[0]
    kind = table.columns.get(name)
    if kind is None or not kind.can_be_pushed:
        return None
    if isinstance(asked, IsNull | IsNotNull):
        return Condition(f"{name} IS {'NOT ' if isinstance(asked, IsNotNull) else ''}NULL")
    # In a list NULL is equal to nothing, in both.
    values = [one for one in asked.value if one is not None] if isinstance(asked, In) else [asked.value]
    if not all(_is_of(kind, value) for value in values):
        return None
    column = kind.compared.format(name)
    if isinstance(asked, In):
        return Condition(f"{column} = ANY (%s::{kind.pg}[])", (values,))
    return Condition(f"{column} {_OPERATORS[type(asked)]} %s::{kind.pg}", (asked.value,))


def bounds(table: Table, filters: Iterable[Filter]) -> tuple[datetime | None, datetime | None]:
    """What filters say about the table's time: not before, and not after; None: nothing. They need not be exact."""
    start = end = None
    for one in filters:
        if not isinstance(one, _Compared) or one.attribute != (table.time,) or not _is_time(one.value):
            continue
        if isinstance(one, EqualTo | GreaterThan | GreaterThanOrEqual):
            start = max(start or one.value, one.value)
        if isinstance(one, EqualTo | LessThan | LessThanOrEqual):
            end = min(end or one.value, one.value)
    return start, end


def topics(filters: Iterable[Filter]) -> list[str] | None:
    """The only topics that filters let through; None: all."""
    only: set[str] | None = None
    for one in filters:
        if isinstance(one, EqualTo) and one.attribute == ("topic",):
            named = {one.value}
        elif isinstance(one, In) and one.attribute == ("topic",):
            named = set(one.value)
        else:
            continue
        only = named if only is None else only & named
    return None if only is None else sorted(name for name in only if isinstance(name, str))


def _is_of(kind: Kind, value: Any) -> bool:
    if kind.pg == "text":
        return isinstance(value, str) and "\0" not in value
    if kind.pg == "timestamptz":
        return _is_time(value)
    return isinstance(value, int) and not isinstance(value, bool)


def _is_time(value: Any) -> bool:
    return isinstance(value, datetime) and value.tzinfo is not None
