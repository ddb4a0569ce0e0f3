"""When topics were last read and written to. A process remembers it, and stores it now and then."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Final

from app.base.db import sql

if TYPE_CHECKING:
    from app.base.db.pool import Pools
    from app.kernel.model import Connection, Topic

_SQL: Final = sql.load_all(__package__)

MOST: Final = 10_000  # topics that are remembered until they are stored
PRIORITY_OF_A_READ: Final = 500
HALVED_MS: Final = 30_000  # after each of these it is half as much


class UseTimes:
    """When this process last read topics, or wrote to them, as far as that is not stored; in ms since 1970."""

    def __init__(self) -> None:
        self._noted: dict[int, int] = {}
        self._being_kept: dict[int, int] = {}

    def note(self, topic_id: int) -> None:
        """Remember a use of this topic now."""
        if topic_id in self._noted or len(self._noted) < MOST:
            self._noted[topic_id] = _now_ms()

    def last(self, topic_id: int, kept: int | None) -> int | None:
        """The last use of a topic, by this process or as stored in `kept`; None: never."""
        noted = self._noted.get(topic_id, self._being_kept.get(topic_id))
        return kept if noted is None else max(kept or 0, noted)

    def take(self) -> dict[int, int]:
        """Take out what is to be stored; it is still remembered until end_keeping()."""
        self._being_kept, self._noted = self._noted, {}
        return self._being_kept

    def end_keeping(self, *, kept: bool) -> None:
        """What was taken out was stored, or could not be."""
        if not kept:
            self._noted = self._being_kept | self._noted
        self._being_kept = {}


class Uses:
    """Uses of topics. `reads`: claims, reads, and looks at a topic. `writes`: jobs put into a queue."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self.reads = UseTimes()
        self.writes = UseTimes()

    async def last(self, topics: Sequence[Topic]) -> dict[int, tuple[int | None, int | None]]:
        """When topics were last read, and queues written to, by their ids, in ms since 1970: by this process, or by
        others up to some seconds ago. None: never, or only past the service."""
        kept = await read_uses(self._pools.rest, topics)
        found: dict[int, tuple[int | None, int | None]] = {}
        for topic in topics:
            read_ms, written_ms = kept.get(topic.id, (None, None))
            found[topic.id] = (self.reads.last(topic.id, read_ms), self.writes.last(topic.id, written_ms))
        return found

    async def flush(self) -> int:
        """Store what is new. Returns for how many topics."""
        reads, writes = self.reads.take(), self.writes.take()
        kept = False
        try:
            if reads or writes:
                await write_uses(self._pools.rest, reads, writes, _now_ms())
            kept = True
        finally:
            self.reads.end_keeping(kept=kept)
            self.writes.end_keeping(kept=kept)
        return len(reads | writes)


def priority_of(read_ms: int | None) -> int:
    """The priority that a topic without one of its own has by its last read."""
    if read_ms is None:
        return 0
    times: float = max(_now_ms() - read_ms, 0) / HALVED_MS
    return round(PRIORITY_OF_A_READ * math.exp2(-times))


async def write_uses(db: Connection, read_ms: Mapping[int, int], written_ms: Mapping[int, int], now_ms: int) -> None:
    """Topics, by id, were read and written to at these times: ms since 1970 by the caller's clock, which says
    `now_ms`."""
    ids = [*{**read_ms, **written_ms}]
    await db.execute(_SQL["keep_uses"], ids, [read_ms.get(i) for i in ids], [written_ms.get(i) for i in ids], now_ms)


async def read_uses(db: Connection, topics: Sequence[Topic]) -> dict[int, tuple[int | None, int | None]]:
    """When topics were last read, and written to, by their ids, in ms since 1970, as far as that was kept; None: never.
    Those that were neither are left out."""
    rows = await db.fetch(_SQL["last_uses"], [topic.id for topic in topics])
    return {row["topic_id"]: (row["read_ms"], row["written_ms"]) for row in rows}


def _now_ms() -> int:
    # Rounded as the statements round, so that a use after a write is not before the time in its row.
    return (time.time_ns() + 500_000) // 1_000_000
