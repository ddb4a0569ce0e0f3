"""The counts of ready jobs and jobs in flight that answers to workers contain. docs/semantics.md, section 14.

The counts of an answer are read after its own change: the sums of the tallies, and the changes by time alone. A topic
with more than BOUND due jobs or MOST_LANES lanes is counted at most every FRESH_SECONDS, and less often if that takes
long. In between, this process adds its own changes.
"""

from __future__ import annotations

import contextlib
import logging
import sys
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec
from msgspec.structs import replace

from app.base.fresh import Fresh
from app.base.outages import UNREACHABLE
from app.kernel.batching import GroupCommit
from app.kernel.counts import inspector
from app.kernel.counts.inspector import Counts
from app.kernel.topics.policy import Policy

if TYPE_CHECKING:
    from app.base.db.pool import Pools
    from app.kernel.claim.marks import Marks

BOUND: Final = 10_001
MOST_LANES: Final = 1_000  # lanes that are read for every answer
FRESH_SECONDS: Final = 0.8
SHARE: Final = 5  # after a count that took s seconds, the next one starts SHARE * s seconds later at the earliest
PATIENCE_SECONDS: Final = 0.02  # how long an answer waits for a new count

log = logging.getLogger(__name__)


class _Deep(msgspec.Struct):
    """A topic with too many due jobs to count for every answer."""

    last: Counts
    ready: int = 0  # what this process has added since
    in_flight: int = 0

    def counts(self) -> Counts:
        """The last count, with the changes of this process since."""
        ready, in_flight = max(self.last.ready + self.ready, 0), max(self.last.in_flight + self.in_flight, 0)
        more = ready - self.last.ready + in_flight - self.last.in_flight
        return replace(self.last, ready=ready, in_flight=in_flight, count=self.last.count + more)


class Counters:
    """Counts by topic. Concurrent callers share a count that starts after their calls."""

    def __init__(self, pools: Pools, marks: Marks) -> None:
        self._pools = pools
        self._marks = marks
        self._deep: dict[int, _Deep] = {}
        self._whole: Fresh[int, None] = Fresh(FRESH_SECONDS, share=SHARE, retry=FRESH_SECONDS)
        # Not bounded: most callers have just changed something, and an error would suggest that they have not.
        self._group: GroupCommit[Policy, Counts] = GroupCommit(self._count, max_waiting=sys.maxsize, most=sys.maxsize)

    async def read(self, policy: Policy) -> Counts:
        """The topic's counts. Raises Unavailable."""
        topic_id = policy.topic.id
        deep = self._deep.get(topic_id)
        if deep is None:
            return await self._group.submit(topic_id, policy)
        await self._recount_within(policy, deep, PATIENCE_SECONDS)
        return deep.counts()

    def add(self, topic_id: int, *, ready: int = 0, in_flight: int = 0) -> None:
        deep = self._deep.get(topic_id)
        if deep is not None:
            deep.ready += ready
            deep.in_flight += in_flight

    def drop(self, topic_id: int) -> None:
        self._deep.pop(topic_id, None)
        self._whole.forget(topic_id)

    async def _count(self, policies: Sequence[Policy]) -> list[Counts | BaseException]:
        policy = policies[-1]
        lows = self._marks.lows(policy.topic.id)
        counts = await inspector.count(self._pools.hot, policy.topic, policy.budget, BOUND, lows)
        if counts.looked >= BOUND or lows.known > MOST_LANES:
            deep = self._deep[policy.topic.id] = _Deep(counts)
            # The first answer waits longer for a whole count.
            await self._recount_within(policy, deep, FRESH_SECONDS)
            counts = deep.counts()
        return [counts] * len(policies)

    async def _recount_within(self, policy: Policy, deep: _Deep, patience: float) -> None:
        with contextlib.suppress(*UNREACHABLE):  # _recount has logged it
            await self._whole.within(policy.topic.id, partial(self._recount, policy, deep), patience)

    async def _recount(self, policy: Policy, deep: _Deep) -> None:
        lows = self._marks.lows(policy.topic.id)
        try:
            deep.last = await inspector.count(self._pools.rest, policy.topic, policy.budget, None, lows)
        except UNREACHABLE as error:
            log.warning("can't count the jobs of topic %s: %r", policy.topic.name, error)
            raise
        deep.ready = deep.in_flight = 0
        if deep.last.looked < BOUND and lows.known <= MOST_LANES:
            self.drop(policy.topic.id)  # few enough to count for every answer again
