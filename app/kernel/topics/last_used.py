"""When topics were last read and written to. A process remembers these times, and stores them now and then."""

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
HALVED_MS: Final = 30_000  # the priority halves after each such time


class UseTimes:
    """When this process last used topics, as far as that is not stored yet; in ms since 1970."""

    def __init__(self) -> None:
        self._noted: dict[int, int] = {}
        self._being_kept: dict[int, int] = {}

    def note(self, topic_id: int) -> None:
        """Remember that this topic is used now."""
        if topic_id in self._noted or len(self._noted) < MOST:
            self._noted[topic_id] = _now_ms()

    def last(self, topic_id: int, kept: int | None) -> int | None:
        """The last use of a topic by this process, or the stored one, `kept`; None: never."""
        noted = self._noted.get(topic_id, self._being_kept.get(topic_id))
        return kept if noted is None else max(kept or 0, noted)

    def take(self) -> dict[int, int]:
        """Take out the times to store. They are remembered until end_keeping()."""
        self._being_kept, self._noted = self._noted, {}
        return self._being_kept

    def end_keeping(self, *, kept: bool) -> None:
        """The times that were taken out were stored, or could not be."""
        if not kept:
            self._noted = self._being_kept | self._noted
        self._being_kept = {}


class Uses:
    """Uses of topics. `reads` are claims, reads and views of a topic. `writes` are jobs added to a queue."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self.reads = UseTimes()
        self.writes = UseTimes()

    async def last(self, topics: Sequence[Topic]) -> dict[int, tuple[int | None, int | None]]:
        """When topics were last read, and queues written to, by their ids, in ms since 1970. Uses by other processes
        are known after some seconds. None: never, or only past the service."""
        kept = await read_uses(self._pools.rest, topics)
        found: dict[int, tuple[int | None, int | None]] = {}
        for topic in topics:
            read_ms, written_ms = kept.get(topic.id, (None, None))
            found[topic.id] = (self.reads.last(topic.id, read_ms), self.writes.last(topic.id, written_ms))
        return found

    async def flush(self) -> int:
        """Store new times. Returns for how many topics."""
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
    """The effective priority of a topic without its own priority, from its last read."""
    if read_ms is None:
        return 0
    times: float = max(_now_ms() - read_ms, 0) / HALVED_MS
    return round(PRIORITY_OF_A_READ * math.exp2(-times))


async def write_uses(db: Connection, read_ms: Mapping[int, int], written_ms: Mapping[int, int], now_ms: int) -> None:
    """Store when topics, by id, were last read and written to, in ms since 1970 by a clock that says `now_ms`."""
    ids = [*{**read_ms, **written_ms}]
    await db.execute(_SQL["keep_uses"], ids, [read_ms.get(i) for i in ids], [written_ms.get(i) for i in ids], now_ms)


async def read_uses(db: Connection, topics: Sequence[Topic]) -> dict[int, tuple[int | None, int | None]]:
    """When topics were last read and written to, by id, in ms since 1970, as far as stored; None: never. Without topics
    that were neither read nor written to."""
    rows = await db.fetch(_SQL["last_uses"], [topic.id for topic in topics])
    return {row["topic_id"]: (row["read_ms"], row["written_ms"]) for row in rows}


def _now_ms() -> int:
    # Rounded as in the statements, so that a use after a write is not before the time in its row.
    return (time.time_ns() + 500_000) // 1_000_000
