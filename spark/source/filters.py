"""Turns a read's filters into PostgreSQL conditions with the same meaning as in Spark."""

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
    """Parse the option `filters`: a JSON list of [column, operator, value], joined by AND. Raises Mistake."""
    try:
        entries = json.loads(text)
        filters = tuple(_parse(table, *one) for one in entries)
    except (ValueError, TypeError) as error:
        raise Mistake(f"option filters={text}: must be a JSON list of [column, operator, value]: {error}") from None
    for written, one in zip(entries, filters, strict=True):
        if condition(table, one) is None:
            raise Mistake(f"option filters: {written} is not supported for table {table.name}")
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
        raise ValueError(f"operator {operator} is not one of {', '.join([*_NAMED, 'in', *_BARE])}")
    return _NAMED[operator]((column,), value)


def all_of(conditions: Iterable[Condition]) -> Condition:
    """The conditions joined by AND; true if there are none."""
    all_of = list(conditions)
    sql = " AND ".join(one.sql for one in all_of)
    return Condition(sql or "true", tuple(value for one in all_of for value in one.values))


def condition(table: Table, given: Filter) -> Condition | None:
    """A filter as SQL; None if PostgreSQL would not mean the same, so that Spark must filter.

    Text is compared byte by byte, as in Spark; times are instants in whole microseconds in both.
    """
    if not isinstance(given, _Compared | In | IsNull | IsNotNull) or len(given.attribute) != 1:
        return None
    name = given.attribute[0]
    kind = table.columns.get(name)
    if kind is None or not kind.can_be_pushed:
        return None
    if isinstance(given, IsNull | IsNotNull):
        return Condition(f"{name} IS {'NOT ' if isinstance(given, IsNotNull) else ''}NULL")
    # In a list, NULL equals nothing, in both.
    values = [one for one in given.value if one is not None] if isinstance(given, In) else [given.value]
    if not all(_is_of(kind, value) for value in values):
        return None
    column = kind.compare_sql.format(name)
    if isinstance(given, In):
        return Condition(f"{column} = ANY (%s::{kind.pg}[])", (values,))
    return Condition(f"{column} {_OPERATORS[type(given)]} %s::{kind.pg}", (given.value,))


def bounds(table: Table, filters: Iterable[Filter]) -> tuple[datetime | None, datetime | None]:
    """The filters' bounds of the table's time, inclusive; None: no bound. The filters still apply to each row."""
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
    """The topics that filters allow, sorted; None: all."""
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
