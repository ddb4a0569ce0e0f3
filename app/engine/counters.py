"""How many jobs are ready and in flight. docs/semantics.md, section 14.

Exact for a topic of up to BOUND jobs; above, counted in the background, so that no answer waits for a scan.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from app.db.pool import UNREACHABLE
from app.engine.group import GroupCommit
from app.queue import inspector
from app.queue.inspector import Counts

if TYPE_CHECKING:
    from app.db.pool import Pools
    from app.queue.model import Topic

BOUND: Final = 10_001
FRESH_SECONDS: Final = 0.8
SHARE: Final = 20  # a count that takes s seconds is repeated no sooner than SHARE * s later


@dataclass(slots=True)
class _Deep:
    """A topic with too many jobs to count for every answer."""

    counts: Counts
    next_count: float
    counting: asyncio.Task[None] | None = None


class Counters:
    """Counts by topic. Callers that ask at the same time share a count that starts after they asked."""

    def __init__(self, pools: Pools, *, max_waiting: int) -> None:
        self._pools = pools
        self._deep: dict[int, _Deep] = {}
        self._group: GroupCommit[Topic, Counts] = GroupCommit(self._count, max_waiting=max_waiting, most=max_waiting)

    async def read(self, topic: Topic) -> Counts:
        """The topic's counts. Raises Unavailable."""
        deep = self._deep.get(topic.id)
        if deep is None:
            return await self._group.submit(topic.id, topic)
        if deep.counting is None and time.monotonic() >= deep.next_count:
            deep.counting = asyncio.create_task(self._recount(topic, deep))
        return deep.counts

    def drop(self, topic_id: int) -> None:
        """The topic is gone."""
        self._deep.pop(topic_id, None)

    async def _count(self, topics: Sequence[Topic]) -> list[Counts | BaseException]:
        topic = topics[-1]
        counts = await inspector.count(self._pools.hot, topic.name, BOUND)
        if not counts.exact:
            deep = self._deep[topic.id] = _Deep(counts, 0)
            # The first answer waits a little for a count of the whole; later ones never do.
            deep.counting = asyncio.create_task(self._recount(topic, deep))
            await asyncio.wait([deep.counting], timeout=FRESH_SECONDS)
            counts = deep.counts
        return [counts] * len(topics)

    async def _recount(self, topic: Topic, deep: _Deep) -> None:
        started = time.monotonic()
        try:
            deep.counts = await inspector.count(self._pools.rest, topic.name, None)
        except UNREACHABLE as error:
            log.warning("can't count topic %s at the moment: %r", topic.name, error)
        finally:
            now = time.monotonic()
            deep.next_count = max(started + FRESH_SECONDS, now + SHARE * (now - started))
            deep.counting = None
        if deep.counts.ready + deep.counts.in_flight < BOUND // 2:
            self._deep.pop(topic.id, None)  # shallow again: count exactly


log = logging.getLogger(__name__)
