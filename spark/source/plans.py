"""How a read is cut into partitions: fixed once, by the driver, so that they neither overlap nor leave a gap."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import InputPartition

from spark.errors import Mistake
from spark.source.connection import Connection
from spark.source.filters import Condition
from spark.source.tables import Layout, Table

ROWS_A_PARTITION: Final = 50_000
MOST_BY_DEFAULT: Final = 8
ROWS_A_BLOCK: Final = 64  # of the ledger; as good a guess as any for the others
BLOCKS_AT_ONCE: Final = 128
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_TYPES: Final = "SELECT name, type::text FROM holdfast.topics WHERE name = %s"
# The first and the last of each topic, from the ends of the index. Dead entries at its front are walked over.
_KEYED: Final = """
    SELECT t.name, low.x, high.x FROM holdfast.topics t
    CROSS JOIN LATERAL (
        SELECT {x} AS x FROM holdfast.{source} WHERE topic = t.name AND {only} ORDER BY {key} LIMIT 1) low
    CROSS JOIN LATERAL (
        SELECT {x} AS x FROM holdfast.{source} WHERE topic = t.name AND {only} ORDER BY {down} LIMIT 1) high
    WHERE %s::text[] IS NULL OR t.name = ANY (%s::text[]) ORDER BY t.name"""
# The days, how long each is, and what is committed: what that is, is known before the lengths are looked at.
_DAYS: Final = """
    SELECT c.relname::text, (pg_relation_size(c.oid) / current_setting('block_size')::integer)::bigint,
           pg_relation_filenode(c.oid)::bigint, pg_current_snapshot()::text, now()
    FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
    WHERE i.inhparent = %s::regclass ORDER BY c.relname"""
_FILENODE: Final = "SELECT pg_relation_filenode(to_regclass(%s))::bigint"


@dataclass(frozen=True, slots=True)
class Span:
    """low < place <= high, of a topic's key or of a day's blocks."""

    name: str
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Scope:
    """Rows of these topics (None: all) within a half-open window of the table's time, in so many partitions if given."""

    topics: Sequence[str] | None = None
    start: datetime | None = None
    end: datetime | None = None
    partitions: int | None = None


class Part(InputPartition):
    """A partition: stretches of a table, and conditions that all of the read's have in common."""

    def __init__(self, stretches: Sequence[Stretch], conditions: Sequence[Condition] = ()) -> None:
        self.stretches = tuple(stretches)
        self.conditions = tuple(conditions)


@dataclass(frozen=True, slots=True)
class Keys:
    """A stretch of a table's key."""

    between: tuple[Condition, ...]

    def bounds(self) -> Iterator[tuple[Condition, ...]]:
        yield self.between

    def must_be_whole(self, connection: Connection) -> None:
        """Rows come and go in it, and what came or went is no fault."""


@dataclass(frozen=True, slots=True)
class Blocks:
    """Blocks of a day's partition: low <= block < high. No row moves in there, unless the day is written anew."""

    day: str
    time: str
    filenode: int
    low: int
    high: int

    def bounds(self) -> Iterator[tuple[Condition, ...]]:
        """A few blocks each: a page looks at no more of them."""
        midnight = _midnight(self.day)
        within = Condition(f"{self.time} >= %s AND {self.time} < %s", (midnight, midnight + timedelta(days=1)))
        for low in range(self.low, self.high, BLOCKS_AT_ONCE):
            high = min(self.high, low + BLOCKS_AT_ONCE)
            yield within, Condition("ctid > %s::tid AND ctid < %s::tid", (f"({low},0)", f"({high},0)"))

    def must_be_whole(self, connection: Connection) -> None:
        """Raises Mistake if the day that was read is gone, or was written anew: rows may have been missed."""
        row = connection.execute(_FILENODE, [f"holdfast.{self.day}"]).fetchone()
        if row is None or row[0] != self.filenode:
            raise Mistake(f"{self.day} was dropped by retention, or rewritten, while it was read: read again")


Stretch = Keys | Blocks


def cut(spans: Sequence[Span], most: int) -> list[list[Span]]:
    """The spans in their order, as `most` lists or fewer, equally long within one place."""
    total = sum(span.high - span.low for span in spans)
    size = max(1, math.ceil(total / most))
    lists: list[list[Span]] = []
    room = 0
    for span in spans:
        low = span.low
        while low < span.high:
            if room == 0:
                lists.append([])
                room = size
            high = min(span.high, low + room)
            lists[-1].append(Span(span.name, low, high))
            room -= high - low
            low = high
    return lists


def plan(connection: Connection, table: Table, scope: Scope) -> list[Part]:
    """The partitions of a read; at least one, maybe empty."""
    kind = _keyed if table.layout is Layout.KEYED else _days
    return kind(connection, table, scope) or [Part(())]


def must_have(connection: Connection, table: Table, topic: str) -> None:
    """Raises Mistake if there is no such topic, or it has no rows of this kind."""
    row = connection.execute(_TYPES, [topic]).fetchone()
    if row is None:
        raise Mistake(f"option topic={topic}: there is no topic of that name")
    if (row[1] == "log") != (table.name == "records"):
        fitting = "records" if row[1] == "log" else "jobs"
        raise Mistake(f"option table={table.name}: topic {topic} is a {row[1]}; read table={fitting}")


def _keyed(connection: Connection, table: Table, scope: Scope) -> list[Part]:
    second = table.key[1]
    is_time = table.columns[second].pg == "timestamptz"
    sql = _KEYED.format(
        source=table.source,
        x=f"(extract(epoch FROM {second}) * 1000000)::bigint" if is_time else second,
        only=table.only or "true",
        key=", ".join(table.key),
        down=", ".join(f"{name} DESC" for name in table.key),
    )
    named = None if scope.topics is None else list(scope.topics)
    spans = [Span(name, low - 1, high) for name, low, high in connection.execute(sql, [named, named]).fetchall()]
    if is_time:
        spans = [span for span in (_clipped(span, scope) for span in spans) if span.low < span.high]
    rows = sum(span.high - span.low for span in spans) if not is_time else len(spans) * ROWS_A_PARTITION
    parts = []
    for group in cut(spans, scope.partitions or _fitting(rows)):
        first, last = group[0], group[-1]
        mark = f"({table.key[0]}, {second})"
        kind = table.columns[second].pg
        bounds = (
            Condition(f"{mark} > (%s::text, %s::{kind})", (first.name, _instant(first.low) if is_time else first.low)),
            Condition(f"{mark} <= (%s::text, %s::{kind})", (last.name, _instant(last.high) if is_time else last.high)),
        )
        # Between the first topic and the last there may be some that were not asked for.
        among = () if named is None else (Condition("topic = ANY (%s::text[])", (named,)),)
        parts.append(Part([Keys(bounds)], (*window(table, scope.start, scope.end), *among)))
    return parts


def _days(connection: Connection, table: Table, scope: Scope) -> list[Part]:
    days = connection.execute(_DAYS, [f"holdfast.{table.source}"]).fetchall()
    if not days:
        return []
    snapshot, now = days[0][3], days[0][4]
    start, end = scope.start, scope.end
    if "tx" in table.columns:
        common = [Condition("pg_visible_in_snapshot(tx, %s::pg_snapshot)", (snapshot,))]
    else:
        common, end = [], min(end or now, now)
    wanted = {}
    for name, blocks, filenode, *_ in days:
        day = _midnight(name)
        if (start is None or start < day + timedelta(days=1)) and (end is None or end > day):
            wanted[name] = (blocks, filenode)
    common += window(table, start, end)
    spans = [Span(name, 0, blocks) for name, (blocks, _) in wanted.items()]
    rows = sum(span.high for span in spans) * ROWS_A_BLOCK
    return [
        Part([Blocks(span.name, table.time, wanted[span.name][1], span.low, span.high) for span in group], common)
        for group in cut(spans, scope.partitions or _fitting(rows))
    ]


def window(table: Table, start: datetime | None, end: datetime | None) -> list[Condition]:
    """The bounds of a window, as far as it has any."""
    found = []
    if start is not None:
        found.append(Condition(f"{table.time} >= %s", (start,)))
    if end is not None:
        found.append(Condition(f"{table.time} < %s", (end,)))
    return found


def _fitting(rows: int) -> int:
    return max(1, min(MOST_BY_DEFAULT, math.ceil(rows / ROWS_A_PARTITION)))


def _clipped(span: Span, scope: Scope) -> Span:
    low = span.low if scope.start is None else max(span.low, _micros(scope.start) - 1)
    high = span.high if scope.end is None else min(span.high, _micros(scope.end) - 1)
    return Span(span.name, low, high)


def _micros(instant: datetime) -> int:
    return (instant - EPOCH) // timedelta(microseconds=1)


def _instant(micros: int) -> Any:
    return EPOCH + timedelta(microseconds=micros)


def _midnight(name: str) -> datetime:
    """When the day of a partition began."""
    return datetime.strptime(name[-8:], "%Y%m%d").replace(tzinfo=UTC)
