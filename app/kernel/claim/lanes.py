"""Which lanes a topic has, as a process remembers it."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from app.base.fresh import Fresh
from app.kernel.claim import consumer, ordering
from app.kernel.enqueue import producer
from app.kernel.model import Batch, Connection, Lane
from app.kernel.topics.policy import FREE, Control

if TYPE_CHECKING:
    from app.kernel.model import Topic
    from app.kernel.topics.policy import Policy

TTL_SECONDS: Final = 0.5  # another process's new lane is found within a second


class Lanes:
    """Lanes by topic id. A new lane of this process's own is known at once, another's within TTL_SECONDS."""

    def __init__(self) -> None:
        self._fresh: Fresh[int, Sequence[Lane]] = Fresh(TTL_SECONDS)
        self._last: dict[int, Sequence[Lane]] = {}  # as they were read last
        self._asked: dict[int, tuple[Sequence[Lane], Control, str, Sequence[Lane]]] = {}
        self._written: dict[int, set[Lane]] = {}

    async def of(self, db: Connection, topic: Topic) -> Sequence[Lane]:
        """The topic's lanes, in claim order: the same list for as long as there are no others."""
        known = self._fresh.known(topic.id)
        if known:
            return known
        lanes = await self._fresh.get(topic.id, partial(self._read, db, topic))
        if not lanes:  # the first job may come at any moment
            self._fresh.forget(topic.id)
        return lanes

    async def _read(self, db: Connection, topic: Topic) -> Sequence[Lane]:
        lanes = self._last[topic.id] = await consumer.lanes(db, topic, self._last.get(topic.id, ()))
        return lanes

    def asked(self, policy: Policy, lanes: Sequence[Lane]) -> Sequence[Lane]:
        """Those of a topic's lanes that are not paused, in the order in which its settings want them asked: the same
        list for as long as nothing has changed."""
        control, order = policy.control, policy.config.priority_order
        if control == FREE and order == "highest_first":
            return lanes
        before = self._asked.get(policy.topic.id)
        if before is not None and before[0] is lanes and before[1:3] == (control, order):
            return before[3]
        running = [] if control.paused else [lane for lane in lanes if lane.tenant not in control.paused_tenants]
        asked = ordering.arranged(running, policy.config)
        self._asked[policy.topic.id] = (lanes, control, order, asked)
        return asked

    async def ensure(self, db: Connection, topic: Topic, batch: Batch) -> None:
        """Make the batch's lanes known to every process, before their first job is."""
        written = self._written.setdefault(topic.id, set())
        new = batch.lanes() - written
        if new:
            await producer.add_lanes(db, topic, sorted(new, key=lambda lane: (lane.tenant, lane.priority)))
            written |= new
            self.forget(topic.id)

    def forget(self, topic_id: int) -> None:
        """Ask again before the next claim. What is being read at this moment does not count."""
        self._fresh.forget(topic_id)

    def drop(self, topic_id: int) -> None:
        """The topic is gone."""
        self._fresh.forget(topic_id)
        for remembered in (self._last, self._asked, self._written):
            remembered.pop(topic_id, None)
