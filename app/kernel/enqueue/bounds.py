"""Putting jobs into a queue that may hold no more than so many. docs/semantics.md, section 11; docs/adr/0022.

Transactions that add to one topic do so one after the other: what a queue holds is counted under a lock up to commit,
so that no number of processes together exceeds its limit. Jobs that leave take no lock. What moves to a dead-letter
topic is never refused, and takes none either.

A queue that evicts takes all that max_depth allows, and then lets go of the oldest that could be claimed. What is
leased or delayed stays, even where that alone is more than its caps allow.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Sequence
from enum import Enum
from typing import Final, Protocol, TypeVar

import msgspec

from app.base.db import sql
from app.base.db.pool import Pools
from app.base.fresh import Fresh
from app.errors import Throttled
from app.kernel.counts import inspector
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
FRESH_SECONDS: Final = 1.0
MOST_EVICTIONS: Final = 30  # batches of one transaction: caps that were lowered take effect by and by


class Holdings(msgspec.Struct, frozen=True):
    """What a queue holds: jobs that are not finished, and the bytes of their payloads."""

    jobs: int
    bytes: int


class Bounds(msgspec.Struct, frozen=True):
    """What a queue may hold; 0 is no limit."""

    depth: int = 0  # jobs, by max_depth
    records: int = 0  # jobs, by cap_records
    bytes: int = 0  # of payload
    evicts: bool = False  # jobs above the caps go, and no more are refused

    def refusal(self, held: Holdings) -> Refusal | None:
        """Why a queue must not hold so much; None: it may."""
        if 0 < self.depth < held.jobs:
            return Refusal.TOO_DEEP
        return Refusal.FULL if not self.evicts and self.above(held) else None

    def above(self, held: Holdings) -> Holdings | None:
        """By how much a queue is above its caps; None where it isn't."""
        jobs = held.jobs - self.records if 0 < self.records < held.jobs else 0
        size = held.bytes - self.bytes if 0 < self.bytes < held.bytes else 0
        return Holdings(jobs, size) if jobs or size else None


class Refusal(Enum):
    """Why a batch was not taken."""

    TOO_DEEP = "too_deep"  # max_depth
    FULL = "full"  # the caps


class Clearance(msgspec.Struct):
    """How many jobs were marked as expired, or evicted, to make room."""

    expired: int = 0
    evicted: int = 0


async def enqueue(
    db: Connection, topic: Topic, budget: Budget, batches: Sequence[Batch], bounds: Bounds, *, ttl_ms: int, lows: Lows
) -> tuple[list[list[Seq] | Refusal], Clearance]:
    """Insert each batch whole or not at all, in order, as far as there is room: a smaller one may fit behind one that
    did not. Returns each batch's seqs, or why it was refused.

    `db` is a connection with a transaction of its own, which holds the lock until it ends. What is below `lows` counts
    for nothing. Before a batch is refused, or a job evicted, jobs that have outlived their time make room. The batches'
    lanes must be known. Raises asyncpg's errors.
    """
    await db.execute(_LOCK, topic.id)
    room = Clearance()
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


class WriteResult(Protocol):
    """What became of records that looked at existing jobs."""

    @property
    def new(self) -> int:
        """How many jobs were added."""


Wrote = TypeVar("Wrote", bound=WriteResult)


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
) -> tuple[Wrote | Refusal, Clearance]:
    """The same for records that look at existing jobs. `write` puts them in over `db`, in one statement. Returns its
    answer, or why no record was taken. Without `makes_room`, nothing is marked as expired before they are refused.

    Neither an update nor a duplicate takes room, so a batch of those is never refused. Which records they are is known
    once they are written, so they are tried behind a savepoint. One statement locks their groups and keys in the order
    that every transaction keeps to; a second one in the same transaction would not.
    """
    await db.execute(_LOCK, topic.id)
    room = Clearance()
    for _ in range(MOST_EXPIRIES + 1):
        wrote = await _upsert(db, topic, write, bounds, lows)
        lacks = makes_room and isinstance(wrote, Refusal)
        gone = await exits.expire(db, topic.name, EXPIRED_AT_ONCE) if lacks else 0
        room.expired += gone
        if not gone:
            break
    if bounds.evicts and not isinstance(wrote, Refusal):
        for _ in range(MOST_EXPIRIES):
            above = bounds.above(await _read_holdings(db, topic, lows))
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
                refusal = bounds.refusal(await _read_holdings(db, topic, lows))
                if refusal is not None:
                    raise _NoRoomError(refusal)
    except _NoRoomError as error:
        return error.refusal
    return wrote


async def _read_holdings(db: Connection, topic: Topic, lows: Lows) -> Holdings:
    row = await db.fetchrow(_DEPTH, topic.id, lows.tally)
    assert row is not None, "an aggregate answers one row always"
    return Holdings(row["held"], row["bytes"])


async def _verdicts(
    db: Connection, topic: Topic, batches: Sequence[Batch], bounds: Bounds, lows: Lows
) -> tuple[list[Refusal | None], Holdings]:
    """What becomes of each batch, and what the queue holds with those that are taken."""
    held = await _read_holdings(db, topic, lows)
    verdicts: list[Refusal | None] = []
    for batch in batches:
        more = Holdings(held.jobs + len(batch), held.bytes + sum(map(len, batch.payloads)))
        verdicts.append(bounds.refusal(more))
        if verdicts[-1] is None:
            held = more
    return verdicts, held


async def _evict(db: Connection, topic: Topic, budget: Budget, above: Holdings | None, lows: Lows) -> int:
    """Take out the claimable jobs that are above the caps, oldest first: how many."""
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


class ByteQuota:
    """The quota of bytes that all topics together may hold.

    Bytes are counted at most every FRESH_SECONDS, and only while something is written; in between, what this process
    lets in is added. What other processes write meanwhile may go above the quota.
    """

    def __init__(self, pools: Pools, most: int) -> None:
        self.most = most  # bytes; 0: no quota, and nothing to ask
        self._pools = pools
        self._held = 0
        self._fresh: Fresh[None, None] = Fresh(FRESH_SECONDS)

    async def take(self, size: int) -> None:
        """Let so many bytes in. Raises Throttled, and asyncpg's errors."""
        await self._fresh.get(None, self._look)
        if self._held + size > self.most:
            raise Throttled(
                f"All topics together may hold {self.most} bytes, and have no room for {size} more.",
                {"limit": "max_total_bytes", "max": self.most},
            )
        self._held += size

    async def _look(self) -> None:
        before = self._held
        held = await inspector.total_bytes(self._pools.rest)
        self._held = held + self._held - before
