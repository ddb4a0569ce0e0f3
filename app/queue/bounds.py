"""Putting jobs into a queue that may hold no more than so many. docs/semantics.md, section 11; docs/adr/0022.

Two who add to one topic do so one after the other, up to commit: what a queue holds is counted under a lock, so that no
number of processes together exceeds its limit. Jobs that leave take no lock. What moves to a dead-letter topic is never
refused, and takes none either.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from enum import Enum
from functools import partial
from typing import Final, TypeVar

from app.db import sql
from app.queue import exits, producer
from app.queue.model import Batch, Connection, Seq, Session, Topic, merge
from app.queue.producer import Placed

_LOCK = sql.load(__package__, "lock_depth")
_DEPTH = sql.load(__package__, "depth")

Write = TypeVar("Write")

EXPIRED_AT_ONCE: Final = 1_000
MOST_EXPIRIES: Final = 10  # batches that are marked as expired before somebody is refused


@dataclass(frozen=True, slots=True)
class Bounds:
    """What a queue may hold: jobs, by max_depth and by cap_records, and bytes of payload; 0 for any."""

    depth: int = 0
    records: int = 0
    bytes: int = 0


class Refusal(Enum):
    """Why a batch was not taken: TOO_DEEP is max_depth's word, FULL that of the caps."""

    TOO_DEEP = "too_deep"
    FULL = "full"


@dataclass(frozen=True, slots=True)
class Taken:
    """Of each batch its seqs, or why it was refused; and how many jobs were marked as expired to make room."""

    batches: list[list[Seq] | Refusal]
    expired: int


async def enqueue(
    db: Connection, topic: Topic, batches: Sequence[Batch], bounds: Bounds, *, ttl_ms: int, above: int = 0
) -> Taken:
    """Insert each batch whole or not at all, in order, as far as there is room: a smaller one may fit behind one that
    did not.

    `db` is a connection with a transaction of its own, which holds the lock until it ends. `above`: tallies up to this
    id count for nothing. Before a batch is refused, jobs that have outlived their time make room. The batches' lanes
    must be known. Raises asyncpg's errors.
    """
    await db.execute(_LOCK, topic.id)
    expired = 0
    verdicts = await _verdicts(db, topic, batches, bounds, above)
    for _ in range(MOST_EXPIRIES):
        gone = await exits.expire(db, topic.name, EXPIRED_AT_ONCE) if any(verdicts) else 0
        if not gone:
            break
        expired += gone
        verdicts = await _verdicts(db, topic, batches, bounds, above)
    admitted = [batch for batch, refusal in zip(batches, verdicts, strict=True) if refusal is None]
    seqs = await producer.enqueue(db, topic, merge(admitted), ttl_ms=ttl_ms) if admitted else []
    shares: list[list[Seq] | Refusal] = []
    start = 0
    for batch, refusal in zip(batches, verdicts, strict=True):
        if refusal is None:
            shares.append(seqs[start : start + len(batch)])
            start += len(batch)
        else:
            shares.append(refusal)
    return Taken(shares, expired)


class _NoRoomError(Exception):
    """Undoes what was put in."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal


async def upsert(
    db: Session,
    topic: Topic,
    writes: Sequence[Write],
    write: Callable[[Write], Awaitable[Placed]],
    bounds: Bounds,
    *,
    above: int = 0,
) -> tuple[list[Placed | Refusal], int]:
    """The same for batches with keys or dedupe ids, each of which `write` puts in, over `db`: what became of each, and
    how many jobs were marked as expired to make room.

    Neither an update nor a duplicate takes room, so a batch of such is never refused. Which records those are is known
    once they are written: each batch is tried behind a savepoint.
    """
    await db.execute(_LOCK, topic.id)
    shares: list[Placed | Refusal] = []
    expired = 0
    for one in writes:
        for _ in range(MOST_EXPIRIES + 1):
            share = await _upsert_one(db, topic, partial(write, one), bounds, above)
            gone = await exits.expire(db, topic.name, EXPIRED_AT_ONCE) if isinstance(share, Refusal) else 0
            expired += gone
            if not gone:
                break
        shares.append(share)
    return shares, expired


async def _upsert_one(
    db: Session, topic: Topic, write: Callable[[], Awaitable[Placed]], bounds: Bounds, above: int
) -> Placed | Refusal:
    try:
        async with db.transaction():
            placed = await write()
            if placed.new:
                row = await db.fetchrow(_DEPTH, topic.id, above)
                assert row is not None, "an aggregate answers one row always"
                if 0 < bounds.depth < row["held"]:
                    raise _NoRoomError(Refusal.TOO_DEEP)
                if 0 < bounds.records < row["held"] or 0 < bounds.bytes < row["bytes"]:
                    raise _NoRoomError(Refusal.FULL)
    except _NoRoomError as error:
        return error.refusal
    return placed


async def _verdicts(
    db: Connection, topic: Topic, batches: Sequence[Batch], bounds: Bounds, above: int
) -> list[Refusal | None]:
    row = await db.fetchrow(_DEPTH, topic.id, above)
    assert row is not None, "an aggregate answers one row always"
    jobs, weight = row["held"], row["bytes"]
    verdicts: list[Refusal | None] = []
    for batch in batches:
        more, heavier = jobs + len(batch), weight + sum(map(len, batch.payloads))
        if 0 < bounds.depth < more:
            verdicts.append(Refusal.TOO_DEEP)
        elif 0 < bounds.records < more or 0 < bounds.bytes < heavier:
            verdicts.append(Refusal.FULL)
        else:
            verdicts.append(None)
            jobs, weight = more, heavier
    return verdicts
