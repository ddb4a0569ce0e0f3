"""When topics were last read: kept for whoever wants to know which are still of use."""

from __future__ import annotations

from collections.abc import Mapping

from app.db import sql
from app.queue.model import Connection, Topic

_KEEP = sql.load(__package__, "keep_reads")
_LAST = sql.load(__package__, "last_read")


async def keep(db: Connection, ages_ms: Mapping[int, int]) -> None:
    """Topics, by id, were read so many ms ago."""
    await db.execute(_KEEP, list(ages_ms), list(ages_ms.values()))


async def last(db: Connection, topic: Topic) -> int | None:
    """When a topic was last read, in ms since 1970, as far as that was kept; None: never."""
    read_ms: int | None = await db.fetchval(_LAST, topic.id)
    return read_ms
