"""Putting jobs into a queue that may hold no more than so many. docs/semantics.md, section 11; docs/adr/0022.

Two who add to one topic do so one after the other, up to commit: what a queue holds is counted under a lock, so that no
number of processes together exceeds its limit. Jobs that leave take no lock. What moves to a dead-letter topic is never
refused, and takes none either.

A queue that evicts takes all that max_depth allows, and then lets go of the oldest that could be claimed. What is
leased or delayed stays, even where that alone is more than its caps allow.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Final, Protocol, TypeVar

import msgspec

from app.base.db import sql
from app.kernel.counts.inspector import Lows, columns
from app.kernel.enqueue import producer
from app.kernel.model import Batch, Budget, Connection, Seq, Session, Topic, merge
from app.kernel.settle import exit_rows as exits

_SQL: Final = sql.load_all(__package__)
_LOCK = _SQL["lock_depth"]
_DEPTH = _SQL["depth"]
_EVICT = sql.load(__package__, "evict")

EXPIRED_AT_ONCE: Final = 1_000
MOST_EXPIRIES: Final = 10  # batches that are marked as expired before somebody is refused, or something evicted
FIRST_LOOK: Final = 64  # jobs that are looked at beyond those to evict, should some of them be being leased
EVICTED_AT_ONCE: Final = 1_000
MOST_EVICTIONS: Final = 30  # batches of one transaction: caps that were lowered take effect by and by


class Held(msgspec.Struct, frozen=True):
    """What a queue holds: jobs that are not finished, and the bytes of their payloads."""

    jobs: int
    bytes: int


class Bounds(msgspec.Struct, frozen=True):
    """What a queue may hold: jobs, by max_depth and by cap_records, and bytes of payload; 0 for any. `evicts`: what is
    above the caps goes, rather than that more is refused."""

    depth: int = 0
    records: int = 0
    bytes: int = 0
    evicts: bool = False

    def refusal(self, held: Held) -> Refusal | None:
        """Why a queue must not hold so much."""
        if 0 < self.depth < held.jobs:
            return Refusal.TOO_DEEP
        return Refusal.FULL if not self.evicts and self.above(held) else None

    def above(self, held: Held) -> Held | None:
        """By how much it is above the caps; None where it isn't."""
        jobs = held.jobs - self.records if 0 < self.records < held.jobs else 0
        size = held.bytes - self.bytes if 0 < self.bytes < held.bytes else 0
        return Held(jobs, size) if jobs or size else None


class Refusal(Enum):
    """Why a batch was not taken: TOO_DEEP is max_depth's word, FULL that of the caps."""

    TOO_DEEP = "too_deep"
    FULL = "full"


class Room(msgspec.Struct):
    """How many jobs were marked as expired to make room, and how many were evicted."""

    expired: int = 0
    evicted: int = 0


async def enqueue(
    db: Connection, topic: Topic, budget: Budget, batches: Sequence[Batch], bounds: Bounds, *, ttl_ms: int, lows: Lows
) -> tuple[list[list[Seq] | Refusal], Room]:
    """Insert each batch whole or not at all, in order, as far as there is room: a smaller one may fit behind one that
    did not. Of each its seqs, or why it was refused.

    `db` is a connection with a transaction of its own, which holds the lock until it ends. What is below `lows` counts
    for nothing. Before a batch is refused, or a job evicted, jobs that have outlived their time make room. The batches'
    lanes must be known. Raises asyncpg's errors.
    """
    await db.execute(_LOCK, topic.id)
    room = Room()
    verdicts, held = await _verdicts(db, topic, batches, bounds, lows)
    for _ in range(MOST_EXPIRIES):
        lacks = any(verdicts) or (bounds.evicts and bounds.above(held))
        gone = await exits.expire(db, topic.name, EXPIRED_AT_ONCE) if lacks else 0
        if not gone:
            break
        room.expired += gone
        verdicts, held = await _verdicts(db, topic, batches, bounds, lows)
    admitted = [batch for batch, refusal in zip(batches, verdicts, strict=True) if refusal is None]
    seqs = await producer.enqueue(db, topic, merge(admitted), ttl_ms=ttl_ms) if admitted else []
    if bounds.evicts:
        room.evicted = await _evict(db, topic, budget, bounds.above(held), lows)
    shares: list[list[Seq] | Refusal] = []
    start = 0
    for batch, refusal in zip(batches, verdicts, strict=True):
        if refusal is None:
            shares.append(seqs[start : start + len(batch)])
            start += len(batch)
        else:
            shares.append(refusal)
    return shares, room


class Written(Protocol):
    """What became of records that looked at what is there."""

    @property
    def new(self) -> int:
        """How many jobs were added."""


Wrote = TypeVar("Wrote", bound=Written)


class _NoRoomError(Exception):
    """Undoes what was put in."""

    def __init__(self, refusal: Refusal) -> None:
        self.refusal = refusal


async def upsert(
    db: Session,
    topic: Topic,
    write: Callable[[], Awaitable[Wrote]],
    bounds: Bounds,
    *,
    makes_room: bool,
    budget: Budget,
    lows: Lows,
) -> tuple[Wrote | Refusal, Room]:
    """The same for records that look at what is there, which `write` puts in, over `db`, in one statement: what it
    answers, or why none of them was taken. Without `makes_room`, nothing is marked as expired before they are refused.

    Neither an update nor a duplicate takes room, so a batch of such is never refused. Which records those are is known
    once they are written: they are tried behind a savepoint. One statement locks their groups and keys in the order in
    which everybody does; a second one in the same transaction would not.
    """
    await db.execute(_LOCK, topic.id)
    room = Room()
    for _ in range(MOST_EXPIRIES + 1):
        wrote = await _upsert(db, topic, write, bounds, lows)
        lacks = makes_room and isinstance(wrote, Refusal)
        gone = await exits.expire(db, topic.name, EXPIRED_AT_ONCE) if lacks else 0
        room.expired += gone
        if not gone:
            break
    if bounds.evicts and not isinstance(wrote, Refusal):
        for _ in range(MOST_EXPIRIES):
            above = bounds.above(await _held(db, topic, lows))
            gone = await exits.expire(db, topic.name, EXPIRED_AT_ONCE) if above else 0
            room.expired += gone
            if not gone:
                break
        room.evicted = await _evict(db, topic, budget, above, lows)
    return wrote, room


async def _upsert(
    db: Session, topic: Topic, write: Callable[[], Awaitable[Wrote]], bounds: Bounds, lows: Lows
) -> Wrote | Refusal:
    try:
        async with db.transaction():
            wrote = await write()
            if wrote.new:
                refusal = bounds.refusal(await _held(db, topic, lows))
                if refusal is not None:
                    raise _NoRoomError(refusal)
    except _NoRoomError as error:
        return error.refusal
    return wrote


async def _held(db: Connection, topic: Topic, lows: Lows) -> Held:
    row = await db.fetchrow(_DEPTH, topic.id, lows.tally)
    assert row is not None, "an aggregate answers one row always"
    return Held(row["held"], row["bytes"])


async def _verdicts(
    db: Connection, topic: Topic, batches: Sequence[Batch], bounds: Bounds, lows: Lows
) -> tuple[list[Refusal | None], Held]:
    """What becomes of each batch, and what there is with those that are taken."""
    held = await _held(db, topic, lows)
    verdicts: list[Refusal | None] = []
    for batch in batches:
        more = Held(held.jobs + len(batch), held.bytes + sum(map(len, batch.payloads)))
        verdicts.append(bounds.refusal(more))
        if verdicts[-1] is None:
            held = more
    return verdicts, held


async def _evict(db: Connection, topic: Topic, budget: Budget, above: Held | None, lows: Lows) -> int:
    """Take out what is too much, oldest first, as far as it can be claimed: how many jobs."""
    jobs, size, count = (above.jobs, above.bytes, 0) if above else (0, 0, 0)
    look = min(jobs + FIRST_LOOK, EVICTED_AT_ONCE)
    for _ in range(MOST_EVICTIONS):
        if jobs <= 0 and size <= 0:
            break
        row = await db.fetchrow(
            _EVICT, topic.name, jobs, size, look, budget.ends, budget.max_deliveries, *columns(lows.lanes)
        )
        assert row is not None, "an aggregate answers one row always"
        if row["evicted"] == 0 and look == EVICTED_AT_ONCE:
            break
        jobs, size, count = jobs - row["evicted"], size - row["bytes"], count + row["evicted"]
        look = EVICTED_AT_ONCE
    return count
