"""Enqueueing to a queue with a limit. docs/semantics.md, section 11; docs/adr/0022.

Transactions that add to one topic run one after the other: what the queue holds is counted under a lock until commit,
so no number of processes exceeds the limit together. Jobs that leave the queue take no lock. Moves to a dead-letter
topic are never refused, and take no lock either.

A queue that evicts takes all jobs that max_depth allows, and then deletes its oldest claimable jobs. Leased and delayed
jobs stay, even if they alone exceed the caps.
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
MOST_EXPIRIES: Final = 10  # batches of expired jobs that are marked before a batch is refused or a job evicted
FIRST_LOOK: Final = 64  # jobs to read beyond those to evict, as some may be locked
EVICTED_AT_ONCE: Final = 1_000
FRESH_SECONDS: Final = 1.0
MOST_EVICTIONS: Final = 30  # batches in one transaction; lowered caps take effect gradually


class Holdings(msgspec.Struct, frozen=True):
    """What a queue holds: unfinished jobs, and the bytes of their payloads."""

    jobs: int
    bytes: int


class Bounds(msgspec.Struct, frozen=True):
    """The limits of a queue; 0 is no limit."""

    depth: int = 0  # jobs, by max_depth
    records: int = 0  # jobs, by cap_records
    bytes: int = 0  # of payload
    evicts: bool = False  # whether jobs above the caps are deleted, rather than new ones refused

    def refusal(self, held: Holdings) -> Refusal | None:
        """Why a queue must not hold so much; None if it may."""
        if 0 < self.depth < held.jobs:
            return Refusal.TOO_DEEP
        return Refusal.FULL if not self.evicts and self.above(held) else None

    def above(self, held: Holdings) -> Holdings | None:
        """By how much a queue exceeds its caps; None if it does not."""
        jobs = held.jobs - self.records if 0 < self.records < held.jobs else 0
        size = held.bytes - self.bytes if 0 < self.bytes < held.bytes else 0
        return Holdings(jobs, size) if jobs or size else None


class Refusal(Enum):
    TOO_DEEP = "too_deep"  # max_depth
    FULL = "full"  # the caps


class Clearance(msgspec.Struct):
    """How many jobs were marked as expired or evicted to make room."""

    expired: int = 0
    evicted: int = 0


async def enqueue(
    db: Connection, topic: Topic, budget: Budget, batches: Sequence[Batch], bounds: Bounds, *, ttl_ms: int, lows: Lows
) -> tuple[list[list[Seq] | Refusal], Clearance]:
    """Insert each batch whole or not at all, in order, as far as there is room. A smaller batch may fit after a larger
    one did not. Returns each batch's seqs, or why it was refused.

    `db` must be in a transaction, which holds the lock until its end. Tallies below `lows` don't count. Before a batch
    is refused or a job evicted, expired jobs are marked to make room. The batches' lanes must be known. Raises
    asyncpg's errors.
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
    """The answer of a statement that looks at existing jobs."""

    @property
    def new(self) -> int:
        """How many jobs were added."""


Wrote = TypeVar("Wrote", bound=WriteResult)


class _NoRoomError(Exception):
    """Rolls back the insert."""

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
    """The same for records that look at existing jobs. `write` inserts them with one statement over `db`. Returns its
    answer, or why all records were refused. Without `makes_room`, no jobs are marked as expired before that.

    Updates and duplicates need no room, so a batch of these is never refused. Which records they are is known only
    after the insert, so it runs inside a savepoint. One statement locks all groups and keys in the order that every
    transaction keeps. A second statement in the same transaction would break that order.
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
    assert row is not None, "an aggregate always answers one row"
    return Holdings(row["held"], row["bytes"])


async def _verdicts(
    db: Connection, topic: Topic, batches: Sequence[Batch], bounds: Bounds, lows: Lows
) -> tuple[list[Refusal | None], Holdings]:
    """The verdict on each batch, and what the queue holds with the accepted ones."""
    held = await _read_holdings(db, topic, lows)
    verdicts: list[Refusal | None] = []
    for batch in batches:
        more = Holdings(held.jobs + len(batch), held.bytes + sum(map(len, batch.payloads)))
        verdicts.append(bounds.refusal(more))
        if verdicts[-1] is None:
            held = more
    return verdicts, held


async def _evict(db: Connection, topic: Topic, budget: Budget, above: Holdings | None, lows: Lows) -> int:
    """Delete the oldest claimable jobs above the caps. Returns how many."""
    jobs, size, count = (above.jobs, above.bytes, 0) if above else (0, 0, 0)
    look = min(jobs + FIRST_LOOK, EVICTED_AT_ONCE)
    for _ in range(MOST_EVICTIONS):
        if jobs <= 0 and size <= 0:
            break
        row = await db.fetchrow(
            _EVICT, topic.name, jobs, size, look, budget.ends, budget.max_deliveries, *columns(lows.lanes)
        )
        assert row is not None, "an aggregate always answers one row"
        if row["evicted"] == 0 and look == EVICTED_AT_ONCE:
            break
        jobs, size, count = jobs - row["evicted"], size - row["bytes"], count + row["evicted"]
        look = EVICTED_AT_ONCE
    return count


class ByteQuota:
    """The limit on the bytes of all topics together.

    Bytes are counted at most every FRESH_SECONDS, and only while jobs are written. In between, this process adds what
    it writes. Other processes' writes in that time may exceed the limit.
    """

    def __init__(self, pools: Pools, most: int) -> None:
        self.most = most  # bytes; 0: no limit
        self._pools = pools
        self._held = 0
        self._fresh: Fresh[None, None] = Fresh(FRESH_SECONDS)

    async def take(self, size: int) -> None:
        """Count `size` bytes as written. Raises Throttled, and asyncpg's errors."""
        await self._fresh.get(None, self._look)
        if self._held + size > self.most:
            raise Throttled(
                f"All topics together can hold {self.most} bytes. There is no room for {size} more.",
                {"limit": "max_total_bytes", "max": self.most},
            )
        self._held += size

    async def _look(self) -> None:
        before = self._held
        held = await inspector.total_bytes(self._pools.rest)
        self._held = held + self._held - before
