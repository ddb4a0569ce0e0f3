"""Reads the ledger by time in slices, each with one short statement. Slices adapt to the number of rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar, cast

from spark.errors import Mistake
from spark.source.connection import Connection, ask
from spark.source.days import DAYS
from spark.source.filters import Condition, all_of
from spark.source.pages import Row, Walk

LEDGER: Final = "holdfast.lease_events"
LOOK: Final = 20_000  # rows that one statement examines
INSTANT: Final = timedelta(microseconds=1)
ENDLESS: Final = datetime(9999, 12, 31, tzinfo=UTC)

T = TypeVar("T")

_OLDEST: Final = f"SELECT min(d.midnight) FROM {DAYS} d"


def slices(
    low: datetime, high: datetime, now: datetime, look: Callable[[datetime, datetime, bool], T | None]
) -> Iterator[tuple[datetime, T]]:
    """Walk from `low` to `high`. Yields the end of each slice and the result of `look`.

    `look` takes the bounds of a half-open slice, and whether it is the smallest possible one. It returns None for too
    many rows, and the slice is halved. Few rows are expected after `now`.
    """
    step = high - low
    while low < high:
        end = min(high, low + step)
        found = look(low, end, end - low <= INSTANT)
        if found is None:
            step = max(INSTANT, ((now if low < now < end else end) - low) / 2)
            continue
        yield end, found
        step = high - end if end >= now else step * 2
        low = end


def rows(connection: Connection, walk: Walk, low: datetime, high: datetime) -> Iterator[list[Row]]:
    """The rows with low <= at < high, unordered, in pages of at most walk.limit rows; more only in one microsecond."""
    selected = ", ".join(walk.table.columns[name].select_sql.format(name) for name in walk.columns)
    where = all_of(walk.conditions)
    sql = f"SELECT {selected}, at IS NOT NULL, n FROM (SELECT count(*) AS n FROM s) c LEFT JOIN s ON {where.sql}"

    def look(low: datetime, high: datetime, is_least: bool) -> list[Row] | None:
        found = _look(connection, sql, where, (low, high, None if is_least else walk.limit))
        return None if found[0][-1] > walk.limit and not is_least else [row for row in found if row[-2]]

    for _, page in slices(low, high, _use_brin(connection), look):
        if page:
            yield page


def reach(
    connection: Connection, conditions: Sequence[Condition], low: datetime, most: int | None
) -> tuple[datetime, int, int]:
    """How far about `most` rows from `low` reach (None: all).

    Returns three values: the time that at least half of `most` rows reach, or ENDLESS; their number; the number of
    examined rows. More than `most` only in one microsecond.
    """
    where = all_of(conditions)
    sql = f"SELECT count(*) FILTER (WHERE {where.sql}), count(*) FROM s"
    reached, count, seen = low, 0, 0

    def look(low: datetime, high: datetime, is_least: bool) -> Row | None:
        [found] = _look(connection, sql, where, (low, high, None if is_least else LOOK))
        fits = found[1] <= LOOK and (most is None or count + found[0] <= most)
        return found if fits or is_least else None

    for end, found in slices(low, ENDLESS, _use_brin(connection), look):
        reached, count, seen = end, count + found[0], seen + found[1]
        if most is not None and count >= most / 2:
            break
    return reached, count, seen


def oldest(connection: Connection) -> datetime | None:
    """The start of the oldest day with events; None if there is none."""
    [(oldest,)] = ask(connection, _OLDEST, [LEDGER])
    return cast("datetime | None", oldest)


def check_kept(connection: Connection, since: datetime) -> None:
    """Raises Mistake if days with events since then were dropped."""
    first = oldest(connection)
    if first is None or first > since:
        raise Mistake(
            f"events since {since.isoformat()} were dropped by retention before they were read; the oldest day is now "
            f"{first and first.isoformat()}. Set option lost=skip to go on without them, or start with a new checkpoint"
        )


def _look(
    connection: Connection, sql: str, where: Condition, slice: tuple[datetime, datetime, int | None]
) -> list[Row]:
    """Runs `sql` on a slice `s`, which ends one row after the limit."""
    low, high, limit = slice
    cte = "WITH s AS MATERIALIZED (SELECT * FROM holdfast.lease_events WHERE at >= %s AND at < %s LIMIT %s::bigint)"
    return ask(connection, f"{cte} {sql}", [low, high, None if limit is None else limit + 1, *where.values])


def _use_brin(connection: Connection) -> datetime:
    """Lets this session use the ledger's BRIN index. Returns the database's time."""
    connection.execute("SET enable_bitmapscan = on")
    [(now,)] = ask(connection, "SELECT now()")
    return cast(datetime, now)
