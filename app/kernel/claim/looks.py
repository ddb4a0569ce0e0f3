"""Looks: which of a topic's many tenants have something, by one read for all of them. docs/adr/0032.

Claims ask those that had something when last asked, and this process's own jobs are known by tenant. What else there
is, other processes' jobs and those whose time has come, a look finds: in whatever lane, whether or not this process
has ever met it. It begins where nothing can be any more (see cursors.py), so it costs two looks into an index a lane.

A claim of many jobs looks first, wherever that is cheap: whoever has something gets its part then.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from typing import TYPE_CHECKING, Final

import msgspec

from app.kernel.tenants import tenants

if TYPE_CHECKING:
    from app.base.db.pool import Pools
    from app.kernel.claim.cursors import Cursors
    from app.kernel.claim.fairness import Fairness
    from app.kernel.model import Topic

SOON_MS: Final = 1_000  # how far ahead it sees jobs come due
SHARE: Final = 0.5  # of the time, that looks at one topic may take: 100,000 lanes are looked at within a second
CHEAP_SHARE: Final = 0.05  # of the time, for looks before large claims: 100 lanes are looked at for each of them
PATIENCE_SECONDS: Final = 0.1  # so long such a claim waits

log = logging.getLogger(__name__)


class _Pace(msgspec.Struct, frozen=True):
    """When the next look at a topic may begin, when the next would be cheap, and how long the last one took: seconds,
    by the monotonic clock."""

    free: float = 0.0
    cheap: float = 0.0
    took: float = math.inf


class Looks:
    """One look at a time for each topic."""

    def __init__(self, pools: Pools, cursors: Cursors, fairness: Fairness) -> None:
        self._pools = pools
        self._cursors = cursors
        self._fairness = fairness
        self._under_way: dict[int, asyncio.Task[None]] = {}
        self._paces: dict[int, _Pace] = {}

    def begin(self, topic: Topic) -> asyncio.Task[None]:
        """Begin a look, unless one is under way, and wait for nothing: the look."""
        task = self._under_way.get(topic.id)
        if task is None:
            task = self._under_way[topic.id] = asyncio.create_task(self._look(topic))
            task.add_done_callback(lambda done: self._landed(topic, done))
        return task

    def cheap(self, topic: Topic) -> bool:
        """Whether a look can be had at once, without looks having more than CHEAP_SHARE of the time."""
        pace = self._paces.get(topic.id, _NEVER)
        return topic.id not in self._under_way and time.monotonic() >= max(pace.free, pace.cheap)

    async def join(self, topic: Topic) -> None:
        """Wait for the look that is under way, or for a new one. Raises what asyncpg raises."""
        await asyncio.shield(self.begin(topic))

    async def glance(self, topic: Topic) -> None:
        """The same where that is no need: not for long, and what it raises is in the log alone."""
        await asyncio.wait([self.begin(topic)], timeout=PATIENCE_SECONDS)

    def drop(self, topic_id: int) -> None:
        """The topic is gone."""
        self._paces.pop(topic_id, None)

    async def drain(self) -> None:
        """Wait for all that are under way."""
        if self._under_way:
            await asyncio.wait(list(self._under_way.values()))

    async def _look(self, topic: Topic) -> None:
        before = self._paces.get(topic.id, _NEVER)
        await asyncio.sleep(max(before.free - time.monotonic(), 0))
        cursor, began = self._cursors.of(topic), time.monotonic()
        epoch, proven = cursor.epoch, cursor.proven
        try:
            found = await tenants.working(self._pools.hot, topic, cursor.floor, cursor.lows().lanes, SOON_MS)
        finally:
            took = time.monotonic() - began
            # One that was held up by something else is not what looks cost.
            cheap = began + min(took, before.took) / CHEAP_SHARE
            self._paces[topic.id] = _Pace(began + took / SHARE, cheap, took)
        if cursor.epoch == epoch:
            cursor.looked(proven, {lane for lane, _ in found})
        for lane in self._fairness.of(topic.id).looked(began, [(lane, ms / 1000) for lane, ms in found]):
            cursor.found(lane)

    def _landed(self, topic: Topic, task: asyncio.Task[None]) -> None:
        del self._under_way[topic.id]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("can't look which tenants of %s have jobs: %r", topic.name, error)


_NEVER: Final = _Pace()
