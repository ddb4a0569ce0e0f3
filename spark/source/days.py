"""Tables with a partition for each day, whose name ends in the day, such as lease_events_20261121."""

from __future__ import annotations

from datetime import UTC, date, datetime
from typing import Final

from spark.source.connection import Connection, ask

# The partitions of a table such as holdfast.lease_events. Days are UTC, as in the sessions of `connect`.
DAYS: Final = """(
    SELECT c.oid, c.relname::text AS name, to_date(right(c.relname, 8), 'YYYYMMDD')::timestamptz AS midnight
    FROM pg_catalog.pg_inherits i JOIN pg_catalog.pg_class c ON c.oid = i.inhrelid WHERE i.inhparent = %s::regclass)"""

_LISTED: Final = f"SELECT d.midnight::date FROM {DAYS} d ORDER BY 1"


def list_days(connection: Connection, table: str) -> list[date]:
    """The days of a table in the database, the oldest first."""
    return [day for (day,) in ask(connection, _LISTED, [f"holdfast.{table}"])]


def start_of(partition: str) -> datetime:
    """The midnight at which a partition's day starts."""
    return datetime.strptime(partition[-8:], "%Y%m%d").replace(tzinfo=UTC)
