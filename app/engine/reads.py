"""Remembers which topics are read, and writes that down now and then: a read costs no write."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from app.queue import reads

if TYPE_CHECKING:
    from app.db.pool import Pools
    from app.queue.model import Topic

MOST: Final = 10_000  # topics that are remembered until they are written down


class Reads:
    """What this process has served since it last wrote down what it had."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._noted: dict[int, int] = {}  # ms since 1970
        self._being_kept: dict[int, int] = {}

    def note(self, topic_id: int) -> None:
        """Somebody reads from a topic, claims from it, or looks at it."""
        if topic_id in self._noted or len(self._noted) < MOST:
            self._noted[topic_id] = _now_ms()

    async def last(self, topic: Topic) -> int | None:
        """When a topic was last read, in ms since 1970: by this process, or by others up to some seconds ago."""
        noted = self._noted.get(topic.id, self._being_kept.get(topic.id))
        kept = await reads.last(self._pools.rest, topic)
        return kept if noted is None else max(kept or 0, noted)

    async def flush(self) -> int:
        """Write down what is new: of how many topics."""
        noted, self._noted = self._noted, {}
        if noted:
            self._being_kept = noted
            try:
                await reads.keep(self._pools.rest, noted, _now_ms())
            except BaseException:
                self._noted = noted | self._noted
                raise
            finally:
                self._being_kept = {}
        return len(noted)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
