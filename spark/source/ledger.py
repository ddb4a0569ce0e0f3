"""The ledger by time: slices that shrink and grow with what happened in them, each looked at by one short statement."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from typing import Final, TypeVar, cast

from spark.errors import Mistake
from spark.source.connection import Connection, ask
from spark.source.days import DAYS
from spark.source.filters import Condition, joined
from spark.source.pages import Row, Walk

LEDGER: Final = "holdfast.lease_events"
LOOK: Final = 20_000  # rows that one statement looks at
INSTANT: Final = timedelta(microseconds=1)
ENDLESS: Final = datetime(9999, 12, 31, tzinfo=UTC)

T = TypeVar("T")

_OLDEST: Final = f"SELECT min(d.midnight) FROM {DAYS} d"


def slices(
    low: datetime, high: datetime, now: datetime, look: Callable[[datetime, datetime, bool], T | None]
) -> Iterator[tuple[datetime, T]]:
    """From `low` up to `high`: the end of each slice, and what `look` found in it.

    `look` takes a slice, half-open, and whether it has to do, since it can't be cut; it answers None for too much.
    Nothing much is expected after `now`.
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
    """What happened in low <= at < high, in no order, in pages of walk.limit rows: more only within a microsecond."""
    shown = ", ".join(walk.table.columns[name].shown.format(name) for name in walk.columns)
    where = joined(walk.conditions)
    sql = f"SELECT {shown}, at IS NOT NULL, n FROM (SELECT count(*) AS n FROM s) c LEFT JOIN s ON {where.sql}"

    def look(low: datetime, high: datetime, is_least: bool) -> list[Row] | None:
        found = _look(connection, sql, where, (low, high, None if is_least else walk.limit))
        return None if found[0][-1] > walk.limit and not is_least else [row for row in found if row[-2]]

    for _, page in slices(low, high, _ready(connection), look):
        if page:
            yield page


def reach(
    connection: Connection, conditions: Sequence[Condition], low: datetime, most: int | None
) -> tuple[datetime, int, int]:
    """How far from `low` on `most` rows go (None: all), about: at least half as many, or ENDLESS.

    Also how many there are up to there, and how many had to be looked at. More than `most` only within a microsecond.
    """
    where = joined(conditions)
    sql = f"SELECT count(*) FILTER (WHERE {where.sql}), count(*) FROM s"
    reached, count, seen = low, 0, 0

    def look(low: datetime, high: datetime, is_least: bool) -> Row | None:
        [found] = _look(connection, sql, where, (low, high, None if is_least else LOOK))
        fits = found[1] <= LOOK and (most is None or count + found[0] <= most)
        return found if fits or is_least else None

    for end, found in slices(low, ENDLESS, _ready(connection), look):
        reached, count, seen = end, count + found[0], seen + found[1]
        if most is not None and count >= most / 2:
            break
    return reached, count, seen


def oldest(connection: Connection) -> datetime | None:
    """When the first day began whose events are there."""
    [(oldest,)] = ask(connection, _OLDEST, [LEDGER])
    return cast("datetime | None", oldest)


def must_be_kept(connection: Connection, since: datetime) -> None:
    """Raises Mistake if days with events since then are gone."""
    first = oldest(connection)
    if first is None or first > since:
        raise Mistake(
            f"events since {since.isoformat()} were dropped by retention before they were read, which begins now at "
            f"{first and first.isoformat()}; go on without them by option lost=skip, or start with a new checkpoint"
        )


def _look(
    connection: Connection, sql: str, where: Condition, slice: tuple[datetime, datetime, int | None]
) -> list[Row]:
    """Runs `sql` on a slice, `s`, that is cut off one row behind a limit."""
    low, high, limit = slice
    cte = "WITH s AS MATERIALIZED (SELECT * FROM holdfast.lease_events WHERE at >= %s AND at < %s LIMIT %s::bigint)"
    return ask(connection, f"{cte} {sql}", [low, high, None if limit is None else limit + 1, *where.values])


def _ready(connection: Connection) -> datetime:
    """The database's time; from now on this session reads by the ledger's index, a BRIN."""
    connection.execute("SET enable_bitmapscan = on")
    [(now,)] = ask(connection, "SELECT now()")
    return cast(datetime, now)
