"""Groups: one job of a group is in flight at a time, in the order of enqueueing. docs/semantics.md, section 6;
docs/adr/0033.

When a job of a group leaves, a trigger of the jobs table writes a note in the same commit, whatever the verb. This
module handles the notes, and makes the next jobs ready.
"""

from __future__ import annotations

import logging
from functools import partial
from typing import TYPE_CHECKING, Final

import msgspec

from app.base.db import sql
from app.base.outages import UNREACHABLE
from app.base.signals import Signal
from app.errors import TopicNotFound
from app.kernel.batching import retry_lost_race
from app.kernel.model import Connection, Topic
from app.kernel.topics.policy import FIFO, Policy

if TYPE_CHECKING:
    from app.base.db.pool import Pools
    from app.kernel.claim.marks import Marks
    from app.kernel.claim.waiters import Waiters
    from app.kernel.counts.counters import Counters
    from app.kernel.topics.cache import Policies

_SQL: Final = sql.load_all(__package__)
_PROMOTE = _SQL["promote"]
_FREED_TOPICS = _SQL["freed_topics"]
_GROUP_TOPICS = _SQL["group_topics"]

BATCH: Final = 1_000
MOST_BATCHES: Final = 20  # of notes that a verb handles before it answers; `sweep` handles the rest
MOST_TOPICS: Final = 100_000
LEARNT: Final = 1_000  # topics with groups that a process reads if it knows none
PAGE: Final = 100

log = logging.getLogger(__name__)


class Promotion(msgspec.Struct, frozen=True):
    """How many notes were handled, and how many jobs became ready or scheduled by that."""

    freed: int
    ready: int
    scheduled: int


async def promote(db: Connection, topic: Topic, limit: int) -> Promotion:
    """Make the next jobs of groups ready, for up to `limit` notes. Raises asyncpg's errors."""
    row = await db.fetchrow(_PROMOTE, topic.name, topic.id, topic.sequence, limit)
    assert row is not None, "the statement always answers one row"
    return Promotion(row["freed"], row["ready"], row["scheduled"])


async def freed_topics(db: Connection, after: int, limit: int) -> list[tuple[str, int]]:
    """Names and ids of up to `limit` topics with notes, whose ids come after `after`."""
    return [(row["name"], row["id"]) for row in await db.fetch(_FREED_TOPICS, after, limit)]


async def group_topics(db: Connection, limit: int) -> list[int]:
    """Ids of up to `limit` topics that have groups with live jobs."""
    return [row["topic_id"] for row in await db.fetch(_GROUP_TOPICS, limit)]


class Groups:
    """The topics with groups that this process knows. After a verb, it handles the notes of such a topic at once.
    `sweep` handles notes of other topics and processes. It runs soon after a job has left a topic that may have
    groups."""

    def __init__(self, pools: Pools, policies: Policies, marks: Marks, counters: Counters, waiters: Waiters) -> None:
        self._pools = pools
        self._policies = policies
        self._marks = marks
        self._counters = counters
        self._waiters = waiters
        self._met: set[int] = set()
        self.departed: Signal[()] = Signal()  # a job has left a topic without known groups

    def note(self, topic_id: int) -> None:
        if topic_id not in self._met:
            if len(self._met) >= MOST_TOPICS:
                self._met.clear()
            self._met.add(topic_id)

    @property
    def any_met(self) -> bool:
        """Whether this process knows any topic with groups."""
        return bool(self._met)

    def drop(self, topic_id: int) -> None:
        self._met.discard(topic_id)

    async def let_next_through(self, policy: Policy) -> None:
        """After jobs have left a topic with groups, make the next ones ready.

        Raises nothing: the verb has done its work, and `sweep` repeats what fails here.
        """
        if policy.topic.id not in self._met and not policy.topic.name.endswith(FIFO):
            self.departed.emit()
            return
        try:
            await self.promote(policy)
        except UNREACHABLE as error:
            log.warning("groups of topic %s wait for the next sweep: %r", policy.topic.name, error)
        except Exception:
            log.exception("groups of topic %s wait for the next sweep", policy.topic.name)

    async def promote(self, policy: Policy) -> int:
        """Make the next jobs ready. Returns how many notes were handled. Raises asyncpg's errors."""
        topic, db = policy.topic, self._pools.verbs(durable=policy.config.durable)
        freed = 0
        for _ in range(MOST_BATCHES):
            done = await retry_lost_race(partial(promote, db, topic, BATCH))
            freed += done.freed
            if done.ready:
                self._marks.note_move(topic)
                self._counters.add(topic.id, ready=done.ready)
                self._waiters.announce(topic.id, done.ready)
            if done.freed < BATCH:
                break
        return freed

    async def sweep(self) -> int:
        """Handle the notes of all topics and processes. Returns how many. A process that knows no topic with groups
        reads them first."""
        if not self._met:
            for topic_id in await group_topics(self._pools.rest, LEARNT):
                self.note(topic_id)
        freed, after = 0, 0
        while found := await freed_topics(self._pools.rest, after, PAGE):
            for name, topic_id in found:
                self.note(topic_id)
                freed += await self._sweep(name)
            after = found[-1][1]
        return freed

    async def _sweep(self, name: str) -> int:
        try:
            return await self.promote(await self._policies.queue(name))
        except UNREACHABLE:
            raise
        except TopicNotFound:
            return 0
        except Exception as error:  # for example, it was just deleted
            self._policies.forget(name)
            log.warning("groups of topic %s wait for the next sweep: %r", name, error)
            return 0
