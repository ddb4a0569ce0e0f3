"""Frames as jobs: tasks stage their rows, and the driver makes all of them jobs in one transaction. docs/adr/0027.

Only what is named in the commit's messages counts: rows of tries that failed, were killed, or were run beside others,
stay behind and are dropped. What was committed is written down by write id (of a stream: query and batch) in the same
transaction, so that a commit that is repeated changes nothing.
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
PAUSES: Final = (0.2, 0.5, 1.0, 2.0, 4.0)  # seconds, before a commit is asked for again
LOCK_NOT_AVAILABLE: Final = "55P03"
# A row's place: its partition, and its number in it.
PARTITION: Final = 32  # bits
PLACES: Final = (1 << PARTITION) - 1
# How PostgreSQL numbers the rows of a COPY: of those that don't fit a column or a constraint, and of those that
# holdfast.check_inbox finds fault with.
COPYING: Final = re.compile(r"COPY staged, line (\d+)")
CHECKED: Final = re.compile(r"row (\d+) for topic \"[^\"]*\": ")
# Of a task's properties: what Spark calls the query, which its checkpoint keeps, and the batch.
QUERY: Final = "sql.streaming.queryId"
BATCH: Final = "streaming.sql.batchId"

SPARKS: Final = ("path", "checkpointlocation")  # options that Spark itself looks at


@dataclass(frozen=True, slots=True)
class Target:
    """Where rows go, and what they are."""

    dsn: str
    columns: Columns


@dataclass
class Staged(WriterCommitMessage):
    """What one task has staged: its rows count once a commit names them."""

    run: str
    attempt: int
    rows: int


class BatchWriter(DataSourceArrowWriter):
    """df.write: one transaction for all partitions. `write_id`: what is known by it is written once."""

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

    Spark makes one writer for the tasks and another one for the commit: what both have to know, the messages tell.
    """

    def __init__(self, target: Target) -> None:
        self._target = target

    def write(self, iterator: Iterator[pa.RecordBatch]) -> Staged:
        context = TaskContext.get()
        assert context is not None, "it is a task"
        return stage(self._target, f"{context.getLocalProperty(QUERY)} {context.getLocalProperty(BATCH)}", iterator)

    def commit(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        for one in _staged(messages)[:1]:  # all are of one run, and of a batch without tasks there are none
            query, _, batch = one.run.partition(" ")
            assert batch == str(batchId), f"rows of batch {batch} in the commit of batch {batchId}"
            commit(self._target.dsn, one.run, f"stream {query}", batchId, messages)

    def abort(self, messages: Sequence[WriterCommitMessage | None], batchId: int) -> None:  # noqa: N803
        for one in _staged(messages)[:1]:
            drop(self._target.dsn, one.run)


def batch(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> BatchWriter:
    """What writes a frame. Raises Mistake for options and columns that can't work."""
    asked = _options(options, ("dsn", "topic", "write_id"), overwrite=overwrite)
    write_id = asked.get("write_id")
    if write_id is not None and not 1 <= len(write_id) <= MOST_ID:
        raise Mistake(f"option write_id: 1 to {MOST_ID} characters")
    return BatchWriter(_target(asked, schema), write_id)


def stream(options: Mapping[str, str], schema: StructType, *, overwrite: bool) -> StreamWriter:
    """What writes a stream. Raises Mistake as well."""
    return StreamWriter(_target(_options(options, ("dsn", "topic"), overwrite=overwrite), schema))


def _options(options: Mapping[str, str], names: tuple[str, ...], *, overwrite: bool) -> dict[str, str]:
    asked = {name.lower(): value for name, value in options.items()}
    for name in asked:
        if name not in names + SPARKS:
            raise Mistake(f"option {name}: there is none of that name; there are {', '.join(names)}")
    if overwrite:
        raise Mistake("jobs are added, never overwritten: mode append")
    if not asked.get("dsn"):
        raise Mistake("option dsn is needed")
    return asked


def _target(asked: dict[str, str], schema: StructType) -> Target:
    return Target(asked["dsn"], Columns.of(schema, asked.get("topic")))


def stage(target: Target, run: str, batches: Iterator[pa.RecordBatch]) -> Staged:
    """Copies a task's rows to where they wait for the commit. Raises Mistake for rows that no queue takes."""
    context = TaskContext.get()
    assert context is not None, "it is a task"
    first = context.partitionId() << PARTITION  # in the order of partitions, and within them as they come
    into = f"COPY holdfast.staged ({target.columns.copied}) FROM STDIN (FORMAT csv)"
    with contextlib.closing(_connected(target.dsn, "write")) as db:
        attempt = _one(db, "SELECT holdfast.open_stage(%s)", (run,))
        rows = 0
        for batch in batches:
            try:
                with db.cursor() as cursor, cursor.copy(into) as copy:
                    copy.write(target.columns.lines(batch, attempt, first + rows))
            except psycopg.DatabaseError as error:
                raise _refused(error, first + rows) from error
            rows += batch.num_rows
    return Staged(run, attempt, rows)


def commit(dsn: str, run: str, write_id: str, batch: int, messages: Sequence[WriterCommitMessage | None]) -> None:
    """Makes jobs of what is staged, unless this batch of this write, or a later one, was committed before. Asks again
    where it is not known whether it happened. Raises Mistake for what queues refuse."""
    staged = _staged(messages)
    asked = (run, write_id, batch, [one.attempt for one in staged], sum(one.rows for one in staged))

    def ask() -> None:
        with contextlib.closing(_connected(dsn, "commit")) as db:
            _one(db, "SELECT holdfast.commit_stages(%s, %s, %s, %s::bigint[], %s)", asked)

    try:
        _again(ask)
    except psycopg.DatabaseError as error:
        raise _refused(error, 0) from error
    drop(dsn, run)


def drop(dsn: str, run: str) -> None:
    """Drops what a run has staged and never committed. What can't be dropped now, the service sweeps a day later."""
    with contextlib.suppress(psycopg.Error, Mistake), contextlib.closing(_connected(dsn, "drop")) as db:
        while _one(db, "SELECT holdfast.drop_stages(%s, %s)", (run, DROP)) >= DROP:
            pass


def _staged(messages: Sequence[WriterCommitMessage | None]) -> list[Staged]:
    return [message for message in messages if isinstance(message, Staged)]


def _connected(dsn: str, purpose: str) -> Connection:
    db = connect(dsn, read_only=False, purpose=purpose)
    db.execute("SET statement_timeout = 0; SET lock_timeout = '60s'")  # a commit takes as long as it takes
    return db


def _one(db: Connection, statement: str, values: tuple[object, ...]) -> int:
    row = db.execute(statement, values).fetchone()
    assert row is not None
    return int(row[0])


def _again(ask: Callable[[], None]) -> None:
    for pause in PAUSES:
        try:
            return ask()
        except (psycopg.Error, Mistake) as error:
            if not _passes(error):
                raise
        time.sleep(pause)
    return ask()


def _passes(error: psycopg.Error | Mistake) -> bool:
    """Whether it may go otherwise in a while: the connection was lost, or none was had, or others were in the way."""
    state = None if isinstance(error, Mistake) else error.sqlstate
    return state is None or state.startswith(("08", "40", "57P")) or state == LOCK_NOT_AVAILABLE


def _refused(error: psycopg.DatabaseError, before: int) -> Mistake:
    """What PostgreSQL said, and of which row: the one at this place and so many before it in a COPY."""
    diag = error.diag
    said = diag.constraint_name or diag.message_primary or str(error).strip()
    found = COPYING.search(diag.context or "") or CHECKED.match(said)
    where = f" row {(before & PLACES) + int(found[1])} of partition {before >> PARTITION}" if found else ""
    hint = f". {diag.message_hint}" if diag.message_hint else ""
    return Mistake(f"refused{where}: {CHECKED.sub('', said)}{hint}")
