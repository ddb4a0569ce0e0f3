"""Days in the database: which are closed, their checksums, and which are marked as archived."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import date, datetime, timedelta
from typing import Final

from psycopg import sql
from pyspark.sql.types import StructType

from spark.archive.checksums import Sum, in_sql
from spark.source import epochs
from spark.source.connection import Connection, connect
from spark.windows import midnight

PATIENCE_SECONDS: Final = 10.0  # for transactions that may still write
LOOK_SECONDS: Final = 0.02
FIRST_BLOCKS: Final = 64  # of a page of a checksum
PAGE_SECONDS: Final = 0.5  # a page should take

# Every writer of these tables takes this lock on one of them before it reads the clock, and holds it until its end.
_WRITERS: Final = """
    SELECT l.virtualtransaction, min(a.xact_start), coalesce(
        min('prepared transaction ' || p.gid), min('transaction of pid ' || l.pid || ', ' || a.application_name))
    FROM pg_catalog.pg_locks l
    LEFT JOIN pg_catalog.pg_stat_activity a ON a.pid = l.pid
    LEFT JOIN pg_catalog.pg_locks x ON x.locktype = 'transactionid' AND x.virtualtransaction = l.virtualtransaction
    LEFT JOIN pg_catalog.pg_prepared_xacts p ON p.transaction = x.transactionid
    WHERE l.locktype = 'relation' AND l.mode = 'RowExclusiveLock' AND l.granted
      AND l.database = (SELECT d.oid FROM pg_catalog.pg_database d WHERE d.datname = current_database())
      AND l.relation IN ('holdfast.jobs'::regclass, 'holdfast.lease_events'::regclass, 'holdfast.results'::regclass,
                         'holdfast.archive'::regclass)
      AND l.pid IS DISTINCT FROM pg_backend_pid()
    GROUP BY l.virtualtransaction
"""
_PARTS: Final = "SELECT of_table, day FROM holdfast.day_partitions WHERE over AND archived = %s ORDER BY 2, 1"
_MARKS: Final = """
    SELECT of_table, day, rows, checksum, location FROM holdfast.archived_days ORDER BY day, of_table
"""
_LOCATION: Final = "SELECT location FROM holdfast.archived_days WHERE of_table = %s AND day = %s"
_MARK: Final = """
    INSERT INTO holdfast.archived_days (of_table, day, rows, checksum, location) VALUES (%s, %s, %s, %s, %s)
"""
# Only while the database still has the day.
_UNMARK: Final = """
    DELETE FROM holdfast.archived_days a WHERE a.of_table = %s AND a.day = %s AND a.location = %s AND EXISTS (
        SELECT FROM holdfast.day_partitions d WHERE d.of_table = a.of_table AND d.day = a.day)
"""
_COLUMNS: Final = """
    SELECT attname FROM pg_catalog.pg_attribute
    WHERE attrelid = %s::regclass AND attnum > 0 AND NOT attisdropped ORDER BY attnum
"""


@dataclass(frozen=True, slots=True, order=True)
class Part:
    """A day of a table."""

    day: date
    table: str

    def __str__(self) -> str:
        return f"{self.table} {self.day}"

    @property
    def start(self) -> datetime:
        return midnight(self.day)

    @property
    def end(self) -> datetime:
        return self.start + timedelta(days=1)

    @property
    def partition(self) -> str:
        """The name of the day's partition in the database."""
        return f"{self.table}_{self.day:%Y%m%d}"


@dataclass(frozen=True, slots=True)
class Mark:
    """The mark of an archived day: the sums of its files, and their location."""

    held: Sum
    location: str


@dataclass(frozen=True, slots=True)
class Writer:
    """A transaction that may still write. `since` is None if this role can't see when it began."""

    since: datetime | None
    name: str

    def may_write_before(self, end: datetime) -> bool:
        return self.since is None or self.since < end


def list_unmarked(dsn: str) -> tuple[list[Part], list[Writer]]:
    """Finished days without a mark, the oldest first, and the transactions that may still write to them.

    A transaction that writes a time of yesterday took a lock before, and holds it until its commit. So this waits up to
    PATIENCE_SECONDS for the holders of such locks, and returns the remaining ones.
    """
    with connect(dsn, read_only=True, purpose="archive") as db:
        parts = [Part(day, table) for table, day in db.execute(_PARTS, [False])]
        return parts, wait_for_writers(db) if parts else []


def list_marked(dsn: str) -> list[Part]:
    """Marked days that are still in the database."""
    with connect(dsn, read_only=True, purpose="archive") as db:
        return [Part(day, table) for table, day in db.execute(_PARTS, [True])]


def wait_for_writers(db: Connection, patience: float | None = None) -> list[Writer]:
    """Wait for every transaction that may write a time before now. Returns those left after `patience` seconds.

    `patience` is PATIENCE_SECONDS if it is None.
    """
    until = time.monotonic() + (PATIENCE_SECONDS if patience is None else patience)
    left = _writers(db)
    while left and time.monotonic() < until:
        time.sleep(LOOK_SECONDS)
        there = _writers(db)
        left = {name: there[name] for name in left if name in there}
    return [left[name] for name in sorted(left)]


def _writers(db: Connection) -> dict[str, Writer]:
    return {row[0]: Writer(row[1], row[2] or "a transaction") for row in db.execute(_WRITERS)}


def marks(dsn: str) -> dict[Part, Mark]:
    """All marked days, the oldest first."""
    with connect(dsn, read_only=True, purpose="archive") as db:
        return {
            Part(day, table): Mark(Sum(rows, int(checksum)), location)
            for table, day, rows, checksum, location in db.execute(_MARKS)
        }


def columns(db: Connection, table: str) -> list[str]:
    """A table's columns in the database, in order."""
    return [name for (name,) in db.execute(_COLUMNS, [f"holdfast.{table}"])]


def sum_rows(db: Connection, part: Part, schema: StructType, done: Callable[[int], None]) -> dict[str, Sum]:
    """The sums of a day's rows by topic, computed by the database. `done` is called with each number of counted rows.

    The rows are read in pages by place, each a short statement. Nothing is held between them.
    """
    partition = sql.Identifier("holdfast", part.partition)
    page = sql.SQL(
        "SELECT d.topic, count(*), sum({number}) FROM {partition} d"
        " WHERE d.ctid >= %s::tid AND d.ctid < %s::tid GROUP BY 1"
    ).format(number=in_sql(schema), partition=partition)
    size = "SELECT pg_relation_size(%s::regclass) / current_setting('block_size')::bigint"
    blocks = next(iter(db.execute(size, [f"holdfast.{part.partition}"])))[0]
    found: dict[str, Sum] = {}
    block, step = 0, FIRST_BLOCKS
    while block < blocks:
        began = time.monotonic()
        for topic, rows, checksum in db.execute(page, [f"({block},0)", f"({block + step},0)"]):
            found[topic] = found.get(topic, Sum()) + Sum(rows, int(checksum))
            done(rows)
        block += step
        step = max(1, min(2 * step, int(step * PAGE_SECONDS / (time.monotonic() - began + 0.001))))
    return found


class Marking:
    """A lock on a day, which is marked in the same transaction.

    database  identifies this database among others that archive to the same folder
    location  where the day was archived, None if it is not marked
    """

    def __init__(self, db: Connection, part: Part) -> None:
        self._db = db
        self._part = part
        self.database = epochs.current(db)
        found = db.execute(_LOCATION, [part.table, part.day]).fetchone()
        self.location: str | None = None if found is None else found[0]

    def mark(self, held: Sum, location: str) -> None:
        """Mark the day. Raises psycopg.Error, also if the lock was lost meanwhile."""
        self._db.execute(_MARK, [self._part.table, self._part.day, held.rows, held.checksum, location])


@contextmanager
def lock_day(dsn: str, part: Part) -> Iterator[Marking | None]:
    """Lock a day in a transaction. Yields None if another run holds it."""
    with connect(dsn, read_only=False, purpose="archive") as db, db.transaction():
        db.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        name = f"holdfast archive {part}"
        [(is_ours,)] = db.execute("SELECT pg_try_advisory_xact_lock(hashtextextended(%s, 0))", [name])
        yield Marking(db, part) if is_ours else None


@contextmanager
def remove_mark(dsn: str, part: Part, mark: Mark) -> Iterator[bool]:
    """Remove a mark if the database still has the day. Yields whether it did.

    Others see the mark until the block ends. It stays if the block raises.
    """
    with connect(dsn, read_only=False, purpose="archive") as db, db.transaction():
        db.execute("SET LOCAL idle_in_transaction_session_timeout = 0")
        yield db.execute(_UNMARK, [part.table, part.day, mark.location]).rowcount > 0
