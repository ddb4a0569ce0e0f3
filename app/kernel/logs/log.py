"""The verbs of a log: append, read after a cursor, delete, trim. docs/semantics.md, section 17.

Appends to one log run one after the other until commit, so seqs become visible in order. A reader that has read up to a
seq has missed nothing below it.
"""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final

import asyncpg
import msgspec

from app.base.db import sql
from app.kernel.batching import rows_of
from app.kernel.model import Batch, Connection, Topic

_APPEND = sql.load(__package__, "append_records")
_READ = sql.load(__package__, "read_records")
_SQL: Final = sql.load_all(__package__)
_STATES = _SQL["log_states"]
_NEWEST = _SQL["newest"]
_DELETE = _SQL["delete_records"]
_TRIM = _SQL["trim_log"]
_SWEEP_KEYS = _SQL["sweep_keys"]

LOOKED_AT: Final = 10_000  # most seqs of one read

# Raised by statements that change a log if the topic was deleted meanwhile.
Gone = asyncpg.UndefinedObjectError


class Limits(msgspec.Struct, frozen=True):
    """The limits of a log: records, bytes and age in ms, 0 for none; whether a full log refuses new records or evicts
    the oldest; for how many ms idempotency keys are remembered."""

    records: int = 0
    bytes: int = 0
    rejects: bool = False
    ttl_ms: int = 0
    window_ms: int = 0


class AppendPart(msgspec.Struct, frozen=True):
    """One caller's part of an append: how many records, their bytes of payload and metadata, and its key."""

    records: int
    bytes: int
    key: str | None = None


class AppendOutcome(Enum):
    """What happened to a caller's batch. deduped: its key is known, and its first append counts."""

    WRITTEN = "written"
    DEDUPED = "deduped"
    FULL = "full"


class AppendResult(msgspec.Struct, frozen=True):
    """A caller's seqs, contiguous; 0 if the log is full. The log's head and earliest seq are those after all parts."""

    outcome: AppendOutcome
    first_seq: int
    last_seq: int
    head_seq: int
    earliest_seq: int


async def append(
    db: Connection, topic: Topic, batch: Batch, parts: Sequence[AppendPart], limits: Limits
) -> list[AppendResult]:
    """Append the parts of a batch in order, each whole or not at all. Raises Gone and asyncpg's other errors.

    Uses the batch's payloads, tags, producers and metadata. If the log evicts, its oldest records are deleted in the
    same transaction, so it never exceeds its caps. After caps were lowered, each call deletes 5,000 more.
    """
    row = await db.fetchrow(
        _APPEND,
        topic.name,
        topic.id,
        batch.payloads,
        batch.tags,
        batch.producers,
        batch.metadata,
        [part.records for part in parts],
        [part.bytes for part in parts],
        [part.key for part in parts],
        limits.records,
        limits.bytes,
        limits.rejects,
        limits.ttl_ms,
        limits.window_ms,
    )
    assert row is not None, "a function always answers one row"
    outcomes, firsts, lasts, head, earliest = row
    return [
        AppendResult(AppendOutcome(outcome), first, last, head, earliest)
        for outcome, first, last in zip(outcomes, firsts, lasts, strict=True)
    ]


class Ask(msgspec.Struct, frozen=True):
    """A read: after a seq, at most so many records and bytes, without records of some nodes."""

    after: int = 0
    limit: int = 256
    max_bytes: int = 1024 * 1024
    without: Sequence[str] = ()
    tags: bool = False
    metadata: bool = True
    payloads: bool = True


class Records(msgspec.Struct, frozen=True):
    """Records as columns, with times in ms since 1970. `next_seq` is the last seq that was read. Payloads are None if
    they were not asked for."""

    next_seq: int
    seqs: list[int]
    times: list[int]
    nodes: list[str | None]
    tags: list[str | None]
    metadata: list[str | None]
    payloads: list[bytes | None]
    content_types: Sequence[str | None] = ()  # of jobs: None is application/json; empty: all are


class Extent(msgspec.Struct, frozen=True):
    """The first and last seqs of a log, and the last seqs that it has lost to age and to caps (0: none)."""

    head_seq: int
    earliest_seq: int  # of records that are not too old; head_seq + 1: there is none
    ttl_lost_to: int = 0
    cap_lost_to: int = 0


class Diff(msgspec.Struct, frozen=True):
    """The result of a read. For a log, `extent` is of the same snapshot as the records."""

    extent: Extent
    records: Records


async def read(db: Connection, topic: Topic, ask: Ask, ttl_ms: int) -> tuple[Extent, Records] | None:
    """Read a log after a cursor, with its state in the same snapshot; None if there is no such log any more.

    A cursor beyond the head belongs to another log, so it reads from the start. Reads at most LOOKED_AT seqs, so
    `next_seq` can be below the head even if no record was found.
    """
    row = await db.fetchrow(
        _READ,
        topic.name,
        topic.id,
        ask.after,
        ask.limit,
        ask.max_bytes,
        list(ask.without),
        LOOKED_AT,
        ttl_ms,
        ask.tags,
        ask.metadata,
        ask.payloads,
    )
    if row is None:
        return None
    head, earliest, cap_lost_to, ttl_lost_to, *found = row
    return Extent(head, earliest, ttl_lost_to, cap_lost_to), records_of(found)


def records_of(columns: Sequence[object]) -> Records:
    """Convert the columns of a statement that reads records; NULL is an empty column."""
    next_seq, *rest = columns
    return Records(next_seq, *(column or [] for column in rest))  # type: ignore[arg-type]


class LogState(msgspec.Struct, frozen=True):
    """What a log holds, without records that are too old. `bytes` are of payloads and metadata."""

    topic: str
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    last_write_ms: int | None


async def states(db: Connection, logs: Sequence[tuple[Topic, int]], bound: int = 10_000) -> dict[str, LogState]:
    """The states of logs by name, each given with its TTL in ms (0: none). Deleted topics are left out.

    Reads at most `bound` records of each that are too old and not deleted yet. If there are more, `count` and `bytes`
    are too high until the next sweep.
    """
    names, ids = [topic.name for topic, _ in logs], [topic.id for topic, _ in logs]
    rows = await db.fetch(_STATES, names, ids, [ttl_ms for _, ttl_ms in logs], bound)
    return {row["topic"]: LogState(**dict(row)) for row in rows}


async def newest(db: Connection, logs: Sequence[Topic], queues: Sequence[Topic]) -> dict[int, int]:
    """The last seqs of topics, by id. Deleted topics are left out."""
    rows = await rows_of(
        db,
        _NEWEST,
        [topic.name for topic in logs],
        [topic.id for topic in logs],
        [topic.id for topic in queues],
        [topic.sequence for topic in queues],
    )
    return {row["topic_id"]: row["seq"] for row in rows}


class TagMatch(msgspec.Struct, frozen=True):
    """Matches exactly this tag, or tags that start with a prefix; without both every record, also without a tag."""

    tag: str | None = None
    prefix: str | None = None


class DeletionPlace(msgspec.Struct, frozen=True):
    """The place after which a deletion continues."""

    tag: str = ""
    seq: int = 0


class DeletedRecords(msgspec.Struct, frozen=True):
    """The result of one batch of a deletion, and where the next one begins; None: there are no more."""

    count: int
    next: DeletionPlace | None


async def delete(
    db: Connection, topic: Topic, match: TagMatch, place: DeletionPlace, *, upto: int, limit: int
) -> DeletedRecords:
    """Delete up to `limit` matching records, up to a seq, after a place. Raises Gone."""
    row = await db.fetchrow(_DELETE, topic.name, topic.id, upto, match.tag, match.prefix, place.tag, place.seq, limit)
    assert row is not None, "a function always answers one row"
    more = row["deleted"] == limit
    return DeletedRecords(row["deleted"], DeletionPlace(row["last_tag"], row["last_seq"]) if more else None)


async def trim(db: Connection, topic: Topic, limits: Limits, limit: int) -> int:
    """Delete up to `limit` records that are too old or above the caps. Returns how many. Raises Gone."""
    count: int = await db.fetchval(
        _TRIM, topic.name, topic.id, limits.records, limits.bytes, limits.rejects, limits.ttl_ms, limit
    )
    return count


async def sweep_keys(db: Connection, limit: int) -> int:
    """Forget up to `limit` idempotency keys whose window has passed. Returns how many."""
    count: int = await db.fetchval(_SWEEP_KEYS, limit)
    return count
