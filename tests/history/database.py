"""The ledger as a history has it."""

from __future__ import annotations

from app.base.db.pool import Pool
from app.kernel.model import Connection
from tools.history.history import Event

_LEDGER = """
    SELECT topic, seq, (extract(epoch FROM at) * 1000)::float8, event::text, deliveries,
           replace(lease_id::text, '-', ''), node, (extract(epoch FROM until) * 1000)::float8, detail
    FROM holdfast.lease_events WHERE topic_id = coalesce($1, topic_id) ORDER BY at
"""


async def ledger(db: Connection | Pool, topic_id: int | None = None) -> list[Event]:
    """What was written down of a topic's jobs, or of all, in order."""
    return [Event(*row) for row in await db.fetch(_LEDGER, topic_id)]
