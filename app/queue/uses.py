"""When topics were last read, and queues written to: kept for whoever wants to know which are still of use."""

from __future__ import annotations

from collections.abc import Mapping

from app.db import sql
from app.queue.model import Connection, Topic

_KEEP = sql.load(__package__, "keep_uses")
_LAST = sql.load(__package__, "last_uses")


async def keep(db: Connection, read_ms: Mapping[int, int], written_ms: Mapping[int, int], now_ms: int) -> None:
    """Topics, by id, were read and written to at these times: ms since 1970 by the caller's clock, which says
    `now_ms`."""
    ids = [*{**read_ms, **written_ms}]
    await db.execute(_KEEP, ids, [read_ms.get(i) for i in ids], [written_ms.get(i) for i in ids], now_ms)


async def last(db: Connection, topic: Topic) -> tuple[int | None, int | None]:
    """When a topic was last read, and written to, in ms since 1970, as far as that was kept; None: never."""
    row = await db.fetchrow(_LAST, topic.id)
    return (None, None) if row is None else (row["read_ms"], row["written_ms"])
