"""Putting jobs into a queue."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

from app.db import sql
from app.queue.model import Batch, Connection, Lane, Seq, Topic

_ENQUEUE = sql.load(__package__, "enqueue")
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


async def add_lanes(db: Connection, topic: Topic, lanes: list[Lane]) -> None:
    """Record that these lanes exist, before the first job in them does."""
    tenants, priorities = [lane.tenant for lane in lanes], [lane.priority for lane in lanes]
    await db.execute(_ADD_LANES, topic.name, topic.id, tenants, priorities)


async def enqueue_once(
    db: Connection, topic: Topic, key: str, put: Callable[[Connection], Awaitable[list[Seq]]], *, window_ms: int
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
