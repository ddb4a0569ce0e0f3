"""Readers that wait for a topic's next record, and what wakes them. docs/semantics.md, sections 15 and 17.

A record wakes all readers of its topic. An append of this process wakes them at once, an append of another process by a
hint. In case hints are lost, and without Redis, one statement reads the heads of all these topics every POLL_SECONDS.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Final

from app.base.loops import REST, Loop
from app.base.signals import Signal
from app.kernel.logs import log as core
from app.kernel.topics.settings import TopicType

if TYPE_CHECKING:
    from app.base.db.pool import Pools
    from app.kernel.logs.log import Ask, Diff
    from app.kernel.topics.policy import Policy

POLL_SECONDS: Final = 0.5
MOST_MARKS: Final = 50_000

log = logging.getLogger(__name__)


class Read:
    """A read that several readers share. `mark` is from when its statement was sent. `shown` is its form for clients,
    and `alone` the form for clients that watch nothing else: the first one to need them fills them in."""

    __slots__ = ("alone", "diff", "mark", "policy", "shown")

    def __init__(self, diff: Diff, policy: Policy, mark: int) -> None:
        self.diff = diff
        self.policy = policy
        self.mark = mark
        self.shown: bytes | None = None
        self.alone: bytes | None = None


class ParkedReader:
    """A waiting reader.

    `seen`: the last seq it has, by topic.
    `asks`: reads, by topic, that it is to get when it is woken. A change of another topic wakes it at once.
    `takes`: called with a read; returns whether the reader has taken it without being woken.
    `changed` and `reads`: the topics, and the reads, for which it was woken.
    """

    __slots__ = ("asks", "changed", "reads", "seen", "takes", "woken")

    def __init__(
        self, seen: Mapping[int, int], asks: Mapping[int, Ask], takes: Callable[[Read], bool] = lambda _read: False
    ) -> None:
        self.seen = seen
        self.asks = asks
        self.takes = takes
        self.woken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.changed: set[int] = set()
        self.reads: dict[int, Read] = {}

    def hand(self, topic_id: int, read: Read | None, *, newest: bool) -> None:
        """Wake the reader with this read, or with None to read for itself. If the read is the `newest`, the reader may
        take it without being woken."""
        if self.woken.done():
            return
        if read is not None:
            if newest and self.takes(read):
                self.changed.discard(topic_id)
                return
            self.reads[topic_id] = read
        self.woken.set_result(None)


class _Topic:
    """A topic with waiting readers."""

    def __init__(self, policy: Policy) -> None:
        self.policy = policy
        self.parked: set[ParkedReader] = set()


class Readers:
    """Parks readers that have read all records, by topic."""

    def __init__(self, pools: Pools) -> None:
        self._pools = pools
        self._topics: dict[int, _Topic] = {}
        self._clock = itertools.count(1)
        self._now = 0
        self._changes: dict[int, int] = {}  # when a topic last changed; _base for topics that are not listed
        self._base = 0
        self._poll = Loop("look for records", self._look, POLL_SECONDS, first=POLL_SECONDS)
        self._stopping = False
        self.grown: Signal[int, int] = Signal()  # topic id, number of records that this process has appended
        # A topic that has changed, and its parked readers by the read they want.
        self.wanted: Signal[Policy, Mapping[Ask, Sequence[ParkedReader]]] = Signal()

    def mark(self) -> int:
        """A mark for `wait`. Take it before a read that may find nothing."""
        return self._now

    def has_news(self, topic_id: int, mark: int) -> bool:
        """Whether the topic is known to have changed since the mark."""
        return self._changes.get(topic_id, self._base) > mark

    async def wait(
        self, seen: Mapping[int, int], policies: Mapping[int, Policy], mark: int, seconds: float
    ) -> set[int]:
        """Wait until some of the topics may have more than the seqs in `seen`. Returns these topics; none after
        `seconds`.

        Both maps are by topic id. A deleted topic counts as changed: a read finds out.
        """
        return (await self.park(ParkedReader(seen, {}), policies, mark, seconds)).changed

    async def park(
        self, reader: ParkedReader, policies: Mapping[int, Policy], mark: int, seconds: float
    ) -> ParkedReader:
        """As `wait`, for a reader that may get reads. Returns it when it was woken or the time is over."""
        seen = reader.seen
        if self._stopping:
            return reader
        reader.changed.update([topic_id for topic_id in seen if self.has_news(topic_id, mark)])
        if reader.changed:
            return reader
        for topic_id in seen:
            waited = self._topics.get(topic_id)
            if waited is None:
                waited = self._topics[topic_id] = _Topic(policies[topic_id])
            waited.policy = policies[topic_id]
            waited.parked.add(reader)
        self._poll.start()
        timer = asyncio.get_running_loop().call_later(seconds, _end, reader.woken)
        try:
            await reader.woken
            return reader
        finally:
            timer.cancel()
            for topic_id in seen:
                waited = self._topics[topic_id]
                waited.parked.discard(reader)
                if not waited.parked:
                    del self._topics[topic_id]

    def note_append(self, topic_id: int, records: int) -> None:
        """This process has appended so many records. Wakes readers here and in other processes."""
        self.wake(topic_id)
        self.grown.emit(topic_id, records)

    def wake(self, topic_id: int) -> None:
        """The topic has more records, or was deleted. Wakes all its readers."""
        if len(self._changes) >= MOST_MARKS:
            self._changes.clear()
            self._base = next(self._clock)
        self._now = self._changes[topic_id] = next(self._clock)
        waited = self._topics.get(topic_id)
        if waited is not None:
            wanted: dict[Ask, list[ParkedReader]] = {}
            for reader in waited.parked:
                reader.changed.add(topic_id)
                ask = reader.asks.get(topic_id)
                if ask is None:
                    _end(reader.woken)
                else:
                    wanted.setdefault(ask, []).append(reader)
            if wanted:
                self.wanted.emit(waited.policy, wanted)

    def waiting_for(self, topic: str) -> int:
        """How many readers wait for a topic."""
        return sum(len(waited.parked) for waited in self._topics.values() if waited.policy.topic.name == topic)

    def stop(self) -> None:
        """Answer all waiting readers. Later ones don't wait."""
        self._stopping = True
        for waited in self._topics.values():
            for reader in waited.parked:
                _end(reader.woken)

    async def close(self) -> None:
        await self._poll.stop()

    async def _look(self) -> float | None:
        if not self._topics:
            return REST
        waited = dict(self._topics)
        kinds: dict[TopicType, list[Policy]] = {kind: [] for kind in TopicType}
        for one in waited.values():
            kinds[one.policy.config.type].append(one.policy)
        newest = await core.newest(
            self._pools.hot,
            [policy.topic for policy in kinds[TopicType.LOG]],
            [policy.topic for policy in kinds[TopicType.QUEUE]],
        )
        for topic_id, one in waited.items():
            seq = newest.get(topic_id)
            # Any other seq counts, not only a higher one: after a crash that lost commits, the head can be lower.
            behind = [reader for reader in one.parked if seq != reader.seen[topic_id]]
            if behind:
                self._changes[topic_id] = self._now = next(self._clock)  # earlier reads are outdated
            for reader in behind:
                reader.changed.add(topic_id)
                _end(reader.woken)
        return None


def _end(woken: asyncio.Future[None]) -> None:
    if not woken.done():
        woken.set_result(None)
