"""Tables by day: their partitions, one for each day, whose names end in it as lease_events_20261121 does."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Final

from spark.source.connection import Connection, ask

# Of a table, as holdfast.lease_events, its partitions. Days are UTC's, as are the sessions of `connect`.
DAYS: Final = """(
    SELECT c.oid, c.relname::text AS name, to_date(right(c.relname, 8), 'YYYYMMDD')::timestamptz AS midnight
    FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = %s::regclass)"""

_LISTED: Final = f"SELECT d.midnight::date FROM {DAYS} d ORDER BY 1"


def listed(connection: Connection, table: str) -> list[date]:
    """The days of a table that are there, the oldest first."""
    return [day for (day,) in ask(connection, _LISTED, [f"holdfast.{table}"])]


def began(partition: str) -> datetime:
    """The midnight that begins its day."""
    return datetime.strptime(partition[-8:], "%Y%m%d").replace(tzinfo=UTC)
