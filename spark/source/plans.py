"""Cuts a read into partitions, once in the driver, so that they neither overlap nor leave gaps."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from typing import Final

from pyspark.sql.datasource import InputPartition

from spark.errors import Mistake
from spark.source import logs
from spark.source.connection import Connection, ask
from spark.source.days import DAYS
from spark.source.filters import Condition
from spark.source.ledger import ENDLESS, INSTANT
from spark.source.stretches import Blocks, Keys, Stretch, Times
from spark.source.tables import Layout, Table

ROWS_A_PARTITION: Final = 50_000
MOST_BY_DEFAULT: Final = 8
ROWS_A_BLOCK: Final = 64  # of the ledger; a guess for the other tables
WHOLE: Final = 0.5  # of a day: this much or more is read by blocks, less by the ledger's index
DAY: Final = timedelta(days=1)
EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)

_TYPE: Final = "SELECT type::text FROM holdfast.topics WHERE name = %s"
# The first and last row of each topic, from the ends of the index. Dead entries at its front are skipped.
_KEYED: Final = """
    SELECT t.name, low.x, high.x FROM holdfast.topics t
    CROSS JOIN LATERAL (
        SELECT {x} AS x FROM holdfast.{source} WHERE topic = t.name AND {only} ORDER BY {key} LIMIT 1) low
    CROSS JOIN LATERAL (
        SELECT {x} AS x FROM holdfast.{source} WHERE topic = t.name AND {only} ORDER BY {down} LIMIT 1) high
    WHERE %s::text[] IS NULL OR t.name = ANY (%s::text[]) ORDER BY t.name"""
# The days, their lengths, and a snapshot, which is taken before the lengths.
_DAYS: Final = f"""
    SELECT d.name, d.midnight, (pg_relation_size(d.oid) / current_setting('block_size')::integer)::bigint,
           pg_relation_filenode(d.oid)::bigint, pg_current_snapshot()::text, now()
    FROM {DAYS} d ORDER BY d.midnight"""
# Or the row comes from a cluster with higher numbers, from which pg_dump restored this one.
_COMMITTED: Final = """
    (pg_visible_in_snapshot(tx, %s::pg_snapshot) OR tx >= pg_snapshot_xmax(pg_current_snapshot()))"""


@dataclass(frozen=True, slots=True)
class Span:
    """low < place <= high, in a topic's key or a day's blocks."""

    name: str
    low: int
    high: int


@dataclass(frozen=True, slots=True)
class Scope:
    """What to read: topics (None: all), a half-open window of the table's time, and the number of partitions."""

    topics: Sequence[str] | None = None
    start: datetime | None = None
    end: datetime | None = None
    partitions: int | None = None


class Part(InputPartition):
    """A partition: stretches of a table, and the conditions that all partitions of the read share."""

    def __init__(self, stretches: Sequence[Stretch], conditions: Sequence[Condition] = ()) -> None:
        self.stretches = tuple(stretches)
        self.conditions = tuple(conditions)


def cut(spans: Sequence[Span], most: int) -> list[list[Span]]:
    """Divide the spans, in their order, into at most `most` lists of equal length, give or take one place."""
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
    """The partitions of a read: at least one, which may be empty."""
    kind = _keyed if table.layout is Layout.KEYED else _days
    return kind(connection, table, scope) or [Part(())]


def check_topic(connection: Connection, table: Table, topic: str) -> None:
    """Raises Mistake if there is no such topic, or if its rows are in another table."""
    found = ask(connection, _TYPE, [topic])
    if not found:
        raise Mistake(f"option topic={topic}: there is no topic of that name")
    [(type_,)] = found
    if (type_ == "log") != (table.name == "records"):
        fitting = "records" if type_ == "log" else "jobs"
        raise Mistake(f"option table={table.name}: topic {topic} is a {type_}; read table={fitting}")


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
    spans = [Span(name, low - 1, high) for name, low, high in ask(connection, sql, [named, named])]
    if is_time:
        spans = [span for span in (_clip(span, scope) for span in spans) if span.low < span.high]
    elif table.name == "records":
        spans = [_clip_log(connection, span, scope) for span in spans]
    rows = sum(span.high - span.low for span in spans) if not is_time else len(spans) * ROWS_A_PARTITION
    common = window(table, scope.start, scope.end)
    place, kind = (instant_of if is_time else int), table.columns[second].pg
    parts = []
    for group in cut(spans, scope.partitions or _default_partitions(rows)):
        # Between the first and the last topic there may be others, which must be skipped if topics were named.
        walked = [(span, span) for span in group] if named is not None else [(group[0], group[-1])]
        stretches = [
            Keys(
                (
                    Condition(f"(topic, {second}) > (%s::text, %s::{kind})", (first.name, place(first.low))),
                    Condition(f"(topic, {second}) <= (%s::text, %s::{kind})", (last.name, place(last.high))),
                )
            )
            for first, last in walked
        ]
        parts.append(Part(stretches, common))
    return parts


def _days(connection: Connection, table: Table, scope: Scope) -> list[Part]:
    days = ask(connection, _DAYS, [f"holdfast.{table.source}"])
    if not days:
        return []
    snapshot, now = days[0][-2:]
    start, end = scope.start, scope.end
    if "tx" in table.columns:
        common = [Condition(_COMMITTED, (snapshot,))]
    else:
        common, end = [], min(end or now, now)
    common += window(table, start, end)
    spans, filenodes, parts = [], {}, []
    for name, midnight, blocks, filenode, *_ in days:
        low, high = max(start or midnight, midnight), min(end or ENDLESS, midnight + DAY)
        share = (high - low) / max(INSTANT, min(now, midnight + DAY) - midnight)
        if blocks == 0 or share <= 0:
            continue
        if "tx" in table.columns and share < WHOLE:
            tasks = scope.partitions or _default_partitions(round(blocks * ROWS_A_BLOCK * share))
            marks = [low + (high - low) * i / tasks for i in range(tasks)] + [high]
            parts += [Part([Times(a, b)], common) for a, b in pairwise(marks) if a < b]
        else:
            spans.append(Span(name, 0, blocks))
            filenodes[name] = filenode
    rows = sum(span.high for span in spans) * ROWS_A_BLOCK
    for group in cut(spans, scope.partitions or _default_partitions(rows)):
        parts.append(Part([Blocks(span.name, filenodes[span.name], span.low, span.high) for span in group], common))
    return parts


def window(table: Table, start: datetime | None, end: datetime | None) -> list[Condition]:
    """A window as conditions, one for each bound."""
    found = []
    if start is not None:
        found.append(Condition(f"{table.time} >= %s", (start,)))
    if end is not None:
        found.append(Condition(f"{table.time} < %s", (end,)))
    return found


def _default_partitions(rows: int) -> int:
    return max(1, min(MOST_BY_DEFAULT, math.ceil(rows / ROWS_A_PARTITION)))


def _clip(span: Span, scope: Scope) -> Span:
    low = span.low if scope.start is None else max(span.low, micros(scope.start) - 1)
    high = span.high if scope.end is None else min(span.high, micros(scope.end) - 1)
    return Span(span.name, low, high)


def _clip_log(connection: Connection, span: Span, scope: Scope) -> Span:
    """The part of a log's span that may be in the window."""
    low, high = span.low, span.high
    if scope.start is not None:
        low = logs.before(connection, span.name, scope.start, low, high)
    if scope.end is not None:
        high = logs.before(connection, span.name, scope.end, low, high)
    return Span(span.name, low, high)


def micros(instant: datetime) -> int:
    """Microseconds since 1970."""
    return (instant - EPOCH) // timedelta(microseconds=1)


def instant_of(micros: int) -> datetime:
    """The instant of microseconds since 1970."""
    return EPOCH + timedelta(microseconds=micros)
