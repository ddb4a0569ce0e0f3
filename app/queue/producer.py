"""Putting jobs into a queue. docs/semantics.md, section 7, has what a key means."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from dataclasses import dataclass

from app.db import sql
from app.queue.model import Batch, Budget, Connection, Lane, Seq, Session, Topic

_ENQUEUE = sql.load(__package__, "enqueue")
_ENQUEUE_KEYED = sql.load(__package__, "enqueue_keyed")
_ADD_LANES = sql.load(__package__, "add_lanes")
_LOCK_KEY = sql.load(__package__, "lock_key")
_FIND_KEY = sql.load(__package__, "find_key")
_KEEP_KEY = sql.load(__package__, "keep_key")


async def enqueue(db: Connection, topic: Topic, batch: Batch, *, ttl_ms: int) -> list[Seq]:
    """Insert all records or none; their seqs, ascending, in the order of the batch.

    `ttl_ms` is the topic's own, 0 for none. The batch's lanes must be known (`add_lanes`). Raises asyncpg's errors;
    one for a missing relation when the topic was deleted meanwhile.
    """
    seqs: list[Seq] = await db.fetchval(_ENQUEUE, topic.name, topic.id, topic.sequence, *batch.columns(), ttl_ms)
    return seqs


@dataclass(frozen=True, slots=True)
class Placed:
    """Where the records of a batch with keys or groups are, in its order: a job's seq, and whether it was there before.

    `head_seq` is the last seq drawn, as far as is known. `ready` and `due` jobs became claimable; `touched` ones
    waited already, and were locked meanwhile, so that a claim went past them.
    """

    seqs: list[Seq]
    updated: list[bool]
    head_seq: int
    ready: int
    due: int
    touched: int


async def upsert(db: Connection, topic: Topic, budget: Budget, batch: Batch, *, ttl_ms: int) -> Placed:
    """Enqueue, with keys: a record whose tenant and key are those of a waiting job is written into it.

    And with groups: a record whose group has a live job is blocked until that is gone, as are all but the first of one
    group. All records or none. Of several with one key the last counts, and all have its seq. Otherwise as `enqueue`.
    Waits for others that write the same keys or groups, up to their commits; raises SerializationError where it is
    worth a retry.
    """
    keys = [*batch.keys, *([None] * (len(batch) - len(batch.keys)))]
    row = await db.fetchrow(
        _ENQUEUE_KEYED,
        *(topic.name, topic.id, topic.sequence),
        *batch.columns(),
        *(keys, ttl_ms, budget.ends, budget.max_deliveries, batch.groups),
    )
    assert row is not None, "it answers one row always"
    return Placed(*row)


async def add_lanes(db: Connection, topic: Topic, lanes: list[Lane]) -> None:
    """Record that these lanes exist, before the first job in them does."""
    tenants, priorities = [lane.tenant for lane in lanes], [lane.priority for lane in lanes]
    await db.execute(_ADD_LANES, topic.name, topic.id, tenants, priorities)


async def enqueue_once(
    db: Session, topic: Topic, key: str, put: Callable[[Session], Awaitable[list[Seq]]], *, window_ms: int
) -> tuple[list[Seq], bool]:
    """Enqueue with `put`, unless a batch was enqueued with this key within its window; its seqs then, and whether it
    was so.

    `db` is a connection with a transaction of its own: whoever comes with the same key waits for its end. Four round
    trips, where a batch without a key takes one.
    """
    await db.execute(_LOCK_KEY, topic.id, key)
    known: list[Seq] | None = await db.fetchval(_FIND_KEY, topic.name, topic.id, key)
    if known is not None:
        return known, True
    seqs = await put(db)
    if window_ms > 0:
        await db.execute(_KEEP_KEY, topic.name, topic.id, key, seqs, window_ms)
    return seqs, False
