"""When topics were last read, and queues written to: kept for whoever wants to know which are still of use."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Final

from app.base.db import sql
from app.kernel.model import Connection, Topic

_SQL: Final = sql.load_all(__package__)
_KEEP = _SQL["keep_uses"]
_LAST = _SQL["last_uses"]


async def keep(db: Connection, read_ms: Mapping[int, int], written_ms: Mapping[int, int], now_ms: int) -> None:
    """Topics, by id, were read and written to at these times: ms since 1970 by the caller's clock, which says
    `now_ms`."""
    ids = [*{**read_ms, **written_ms}]
    await db.execute(_KEEP, ids, [read_ms.get(i) for i in ids], [written_ms.get(i) for i in ids], now_ms)


async def last(db: Connection, topics: Sequence[Topic]) -> dict[int, tuple[int | None, int | None]]:
    """When topics were last read, and written to, by their ids, in ms since 1970, as far as that was kept; None: never.
    Those that were neither are left out."""
    rows = await db.fetch(_LAST, [topic.id for topic in topics])
    return {row["topic_id"]: (row["read_ms"], row["written_ms"]) for row in rows}
