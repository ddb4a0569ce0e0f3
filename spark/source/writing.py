"""Writes frames as jobs: tasks stage rows, and the driver turns them into jobs in one transaction. docs/adr/0027.

Only rows named in the commit's messages count. Rows of attempts that failed, were killed, or ran beside others are
dropped. The same transaction stores the write id (for a stream: query and batch), so a repeated commit changes nothing.
"""

from __future__ import annotations

import contextlib
import re
import time
import uuid
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import psycopg
import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import (
    DataSourceArrowWriter,
    DataSourceStreamArrowWriter,
    WriterCommitMessage,
)
from pyspark.sql.types import StructType

from spark.errors import Mistake
from spark.source.columns import Columns
from spark.source.connection import Connection, connect

MOST_ID: Final = 256  # characters
DROP: Final = 20_000  # rows of a statement
PAUSES: Final = (0.2, 0.5, 1.0, 2.0, 4.0)  # seconds, before a commit is retried
LOCK_NOT_AVAILABLE: Final = "55P03"
# A row's place: its partition in the upper bits, its number below.
PARTITION: Final = 32  # bits
PLACES: Final = (1 << PARTITION) - 1
# The row's number in an error of a COPY: from PostgreSQL for columns and constraints, or from holdfast.check_inbox.
COPYING: Final = re.compile(r"COPY staged, line (\d+)")
CHECKED: Final = re.compile(r"row (\d+) for topic \"[^\"]*\": ")
# A task's properties: the query's id, which the checkpoint keeps, and the batch's.
QUERY: Final = "sql.streaming.queryId"
BATCH: Final = "streaming.sql.batchId"

SPARKS: Final = ("path", "checkpointlocation")  # options that Spark itself uses


@dataclass(frozen=True, slots=True)
class Target:
    """Where rows go, and their columns."""

    dsn: str
    columns: Columns


@dataclass
class Staged(WriterCommitMessage):
    """What one task has staged. Its rows count once a commit names them."""

    run: str
    attempt: int
    rows: int


class BatchWriter(DataSourceArrowWriter):
    """df.write: one transaction for all partitions. A `write_id` is written once."""

    def __init__(self, target: Target, write_id: str | None) -> None:
        self._target = target
        self._run = str(uuid.uuid4())  # the driver pickles this writer for the tasks, and for the commit
        self._write_id = write_id or self._run

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        return stage(self._target, self._run, iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        commit(self._target.dsn, self._run, self._write_id, 0, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None]) -> None:
        drop(self._target.dsn, self._run)


class StreamWriter(DataSourceStreamArrowWriter):
    """df.writeStream: one transaction for each micro-batch.

    Spark makes one writer for the tasks and another for the commit. They share data through the messages only.
    """

    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        context = TaskContext.get()
        assert context is not None, "this runs in a task"
        return stage(self._target, f"{context.getLocalProperty(QUERY)} {context.getLocalProperty(BATCH)}", iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        for one in _staged_messages(messages)[:1]:  # all belong to one run; a batch without tasks has none
            query, _, batch = one.run.partition(" ")
            assert batch == str(batchId), f"rows of batch {batch} in the commit of batch {batchId}"
            commit(self._target.dsn, one.run, f"stream {query}", batchId, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        for one in _staged_messages(messages)[:1]:
            drop(self._target.dsn, one.run)


def batch(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> BatchWriter:
    """The writer of a frame. Raises Mistake for invalid options and columns."""
    values = _options(options, ("dsn", "topic", "write_id"), overwrite=overwrite)
    write_id = values.get("write_id")
    if write_id is not None and not 1 <= len(write_id) <= MOST_ID:
        raise Mistake(f"option write_id must have 1 to {MOST_ID} characters")
    return BatchWriter(_target(values, schema), write_id)


def stream(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> StreamWriter:
    """The writer of a stream. Raises Mistake for invalid options and columns."""
    return StreamWriter(_target(_options(options, ("dsn", "topic"), overwrite=overwrite), schema))


def _options(options: Mapping[str, str], names: tuple[str, ...], *, overwrite: bool) -> dict[str, str]:
    values = {name.lower(): value for name, value in options.items()}
    for name in values:
        if name not in names + SPARKS:
            raise Mistake(f"option {name} is not known; the options are {', '.join(names)}")
    if overwrite:
        raise Mistake("jobs can't be overwritten: use mode append")
    if not values.get("dsn"):
        raise Mistake("option dsn is required")
    return values


def _target(values: dict[str, str], schema: StructType) -> Target:
    return Target(values["dsn"], Columns.of(schema, values.get("topic")))


def stage(target: Target, run: str, batches: Iterator[pa.RecordBatch]) -> Staged:
    """Copy a task's rows to holdfast.staged. Raises Mistake for invalid rows."""
    context = TaskContext.get()
    assert context is not None, "this runs in a task"
    first = context.partitionId() << PARTITION  # ordered by partition, then by arrival
    into = f"COPY holdfast.staged ({target.columns.copy_columns}) FROM STDIN (FORMAT csv)"
    with contextlib.closing(_connect(target.dsn, "write")) as db:
        attempt = _one(db, "SELECT holdfast.open_stage(%s)", (run,))
        rows = 0
        for batch in batches:
            try:
                with db.cursor() as cursor, cursor.copy(into) as copy:
                    copy.write(target.columns.to_csv(batch, attempt, first + rows))
            except psycopg.DatabaseError as error:
                raise _refusal(error, first + rows) from error
            rows += batch.num_rows
    return Staged(run, attempt, rows)


def commit(dsn: str, run: str, write_id: str, batch: int, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Turn the staged rows into jobs, unless this batch of this write, or a later one, was committed before.

    Retries if it is not known whether the commit happened. Raises Mistake if a queue refuses a row.
    """
    staged = _staged_messages(messages)
    values = (run, write_id, batch, [one.attempt for one in staged], sum(one.rows for one in staged))

    def ask() -> None:
        with contextlib.closing(_connect(dsn, "commit")) as db:
            _one(db, "SELECT holdfast.commit_stages(%s, %s, %s, %s::bigint[], %s)", values)

    try:
        _retry(ask)
    except psycopg.DatabaseError as error:
        raise _refusal(error, 0) from error
    drop(dsn, run)


def drop(dsn: str, run: str) -> None:
    """Delete what a run staged and did not commit. If this fails, the service deletes it a day later."""
    with contextlib.suppress(psycopg.Error, Mistake), contextlib.closing(_connect(dsn, "drop")) as db:
        while _one(db, "SELECT holdfast.drop_stages(%s, %s)", (run, DROP)) >= DROP:
            pass


def _staged_messages(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]


def _connect(dsn: str, purpose: str) -> Connection:
    db = connect(dsn, read_only=False, purpose=purpose)
    db.execute("SET statement_timeout = 0; SET lock_timeout = '60s'")  # a commit may take long
    return db


def _one(db: Connection, statement: str, values: tuple[object, ...]) -> int:
    row = db.execute(statement, values).fetchone()
    assert row is not None
    return int(row[0])


def _retry(ask: Callable[[], None]) -> None:
    for pause in PAUSES:
        try:
            return ask()
        except (psycopg.Error, Mistake) as error:
            if not _is_transient(error):
                raise
        time.sleep(pause)
    return ask()


def _is_transient(error: psycopg.Error | Mistake) -> bool:
    """Whether a retry may succeed: the connection was lost or refused, or a lock was held."""
    state = None if isinstance(error, Mistake) else error.sqlstate
    return state is None or state.startswith(("08", "40", "57P")) or state == LOCK_NOT_AVAILABLE


def _refusal(error: psycopg.DatabaseError, before: int) -> Mistake:
    """PostgreSQL's error with the row's number; `before` is the place of the COPY's first row."""
    diag = error.diag
    said = diag.constraint_name or diag.message_primary or str(error).strip()
    found = COPYING.search(diag.context or "") or CHECKED.match(said)
    where = f" row {(before & PLACES) + int(found[1])} of partition {before >> PARTITION}" if found else ""
    hint = f". {diag.message_hint}" if diag.message_hint else ""
    return Mistake(f"refused{where}: {CHECKED.sub('', said)}{hint}")
