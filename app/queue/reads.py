"""When topics were last read: kept for whoever wants to know which are still of use."""

from __future__ import annotations

from collections.abc import Mapping

from app.db import sql
from app.queue.model import Connection, Topic

_KEEP = sql.load(__package__, "keep_reads")
_LAST = sql.load(__package__, "last_read")


async def keep(db: Connection, read_ms: Mapping[int, int], now_ms: int) -> None:
    """Topics, by id, were read at these times: ms since 1970 by the caller's clock, which says `now_ms`."""
    await db.execute(_KEEP, list(read_ms), list(read_ms.values()), now_ms)


async def last(db: Connection, topic: Topic) -> int | None:
    """When a topic was last read, in ms since 1970, as far as that was kept; None: never."""
    read_ms: int | None = await db.fetchval(_LAST, topic.id)
    return read_ms
