"""A log's verbs: append, read behind a cursor, delete, trim. docs/semantics.md, section 17.

Appends to one log are serialised up to commit, so the order of seqs is the order in which they can be seen: who has
read up to a seq has missed nothing below it.
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

LOOKED_AT: Final = 10_000  # most seqs that one read looks at

# What the verbs that change a log raise when the topic was deleted meanwhile.
Gone = asyncpg.UndefinedObjectError


class Limits(msgspec.Struct, frozen=True):
    """What a log may hold: records, bytes and age in ms, 0 for any; whether a full log refuses, or evicts what is
    oldest; and for how many ms idempotency keys are kept."""

    records: int = 0
    bytes: int = 0
    rejects: bool = False
    ttl_ms: int = 0
    window_ms: int = 0


class AppendPart(msgspec.Struct, frozen=True):
    """One caller's share of an append: so many records, of so many bytes of payload and metadata, and its key."""

    records: int
    bytes: int
    key: str | None = None


class AppendOutcome(Enum):
    """What became of a caller's batch. deduped: its key is known, and what it wrote then counts."""

    WRITTEN = "written"
    DEDUPED = "deduped"
    FULL = "full"


class AppendResult(msgspec.Struct, frozen=True):
    """A caller's seqs, contiguous; 0 where the log is full. The log's head and earliest seq are those after all."""

    outcome: AppendOutcome
    first_seq: int
    last_seq: int
    head_seq: int
    earliest_seq: int


async def append(
    db: Connection, topic: Topic, batch: Batch, parts: Sequence[AppendPart], limits: Limits
) -> list[AppendResult]:
    """Append the parts of a batch in order, each whole or not at all. Raises Gone and asyncpg's other errors.

    Of the batch, payloads, tags, producers and metadata count. When a log has caps and evicts, what is oldest goes in
    the same transaction, so that it never holds more; after caps were lowered, 5,000 more a call.
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
    assert row is not None, "a function answers one row always"
    outcomes, firsts, lasts, head, earliest = row
    return [
        AppendResult(AppendOutcome(outcome), first, last, head, earliest)
        for outcome, first, last in zip(outcomes, firsts, lasts, strict=True)
    ]


class Ask(msgspec.Struct, frozen=True):
    """What a reader wants: what comes after a seq, so many records and bytes at most, without those of some nodes."""

    after: int = 0
    limit: int = 256
    max_bytes: int = 1024 * 1024
    without: Sequence[str] = ()
    tags: bool = False
    metadata: bool = True
    payloads: bool = True


class Records(msgspec.Struct, frozen=True):
    """What was read, column by column; times in ms since 1970. `next_seq` is the last seq looked at. Payloads are None
    where they were not asked for."""

    next_seq: int
    seqs: list[int]
    times: list[int]
    nodes: list[str | None]
    tags: list[str | None]
    metadata: list[str | None]
    payloads: list[bytes | None]
    content_types: Sequence[str | None] = ()  # of jobs: None is application/json, and none at all that all are


class Extent(msgspec.Struct, frozen=True):
    """How far a log goes, and up to which seqs it has lost records to age and to caps (0: none)."""

    head_seq: int
    earliest_seq: int  # of what is not too old; head_seq + 1: nothing
    ttl_lost_to: int = 0
    cap_lost_to: int = 0


class Diff(msgspec.Struct, frozen=True):
    """What a reader gets. `extent` is of the same snapshot as the records, where the topic is a log."""

    extent: Extent
    records: Records


async def read(db: Connection, topic: Topic, ask: Ask, ttl_ms: int) -> tuple[Extent, Records] | None:
    """Read a log behind a cursor, state and records of one snapshot; None when there is no such log any more.

    A cursor beyond the head is of another log, and reads from the start. Looks at LOOKED_AT seqs at most, so `next_seq`
    can be below the head though nothing was found.
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
    head, earliest, cap_lost_to, ttl_lost_to, *shown = row
    return Extent(head, earliest, ttl_lost_to, cap_lost_to), records_of(shown)


def records_of(columns: Sequence[object]) -> Records:
    """The columns that a reading statement answers; NULL is none."""
    next_seq, *rest = columns
    return Records(next_seq, *(column or [] for column in rest))  # type: ignore[arg-type]


class LogState(msgspec.Struct, frozen=True):
    """What a log holds, without what is too old. `bytes` are of payloads and metadata."""

    topic: str
    head_seq: int
    earliest_seq: int
    count: int
    bytes: int
    last_write_ms: int | None


async def states(db: Connection, logs: Sequence[tuple[Topic, int]], bound: int = 10_000) -> dict[str, LogState]:
    """The states of logs by name, each given with its TTL in ms (0: none); one that was deleted is left out.

    Of each, at most `bound` records are looked at that are too old and have not been taken out yet: with more of those,
    `count` and `bytes` are too high until the next sweep.
    """
    names, ids = [topic.name for topic, _ in logs], [topic.id for topic, _ in logs]
    rows = await db.fetch(_STATES, names, ids, [ttl_ms for _, ttl_ms in logs], bound)
    return {row["topic"]: LogState(**dict(row)) for row in rows}


async def newest(db: Connection, logs: Sequence[Topic], queues: Sequence[Topic]) -> dict[int, int]:
    """The last seqs of topics, by id; one that was deleted is left out."""
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
    """Tags: this one exactly, or those that start with a prefix; neither is every record, tagged or not."""

    tag: str | None = None
    prefix: str | None = None


class DeletionPlace(msgspec.Struct, frozen=True):
    """Where a deletion goes on."""

    tag: str = ""
    seq: int = 0


class DeletedRecords(msgspec.Struct, frozen=True):
    """What a batch of a deletion did, and where the next one begins; None: there is nothing more."""

    count: int
    next: DeletionPlace | None


async def delete(
    db: Connection, topic: Topic, match: TagMatch, place: DeletionPlace, *, upto: int, limit: int
) -> DeletedRecords:
    """Delete up to `limit` records that match, up to a seq, and behind a place. Raises Gone."""
    row = await db.fetchrow(_DELETE, topic.name, topic.id, upto, match.tag, match.prefix, place.tag, place.seq, limit)
    assert row is not None, "a function answers one row always"
    more = row["deleted"] == limit
    return DeletedRecords(row["deleted"], DeletionPlace(row["last_tag"], row["last_seq"]) if more else None)


async def trim(db: Connection, topic: Topic, limits: Limits, limit: int) -> int:
    """Take out up to `limit` records that are too old or above the caps: how many. Raises Gone."""
    count: int = await db.fetchval(
        _TRIM, topic.name, topic.id, limits.records, limits.bytes, limits.rejects, limits.ttl_ms, limit
    )
    return count


async def sweep_keys(db: Connection, limit: int) -> int:
    """Forget up to `limit` idempotency keys whose window has passed: how many."""
    count: int = await db.fetchval(_SWEEP_KEYS, limit)
    return count
