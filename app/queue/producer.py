"""Putting jobs into a queue."""

from __future__ import annotations

from app.db import sql
from app.queue.model import Batch, Connection, Lane, Seq, Topic

_ENQUEUE = sql.load(__package__, "enqueue")
_ADD_LANES = sql.load(__package__, "add_lanes")


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
