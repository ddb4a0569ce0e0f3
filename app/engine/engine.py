"""The engine of one process: its parts, made and stopped together."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from app.base.fresh import Fresh
from app.engine.census import Census
from app.engine.changes import Changes
from app.engine.claimers import MAX_CLAIM
from app.engine.claims import Claims
from app.engine.counters import Counters
from app.engine.cursors import Cursors
from app.engine.diffs import Diffs
from app.engine.drains import Drains
from app.engine.enqueues import Enqueues
from app.engine.exits import Exits
from app.engine.explain import Explain
from app.engine.failures import Failures
from app.engine.fairness import Fairness
from app.engine.groups import Groups
from app.engine.lanes import Lanes
from app.engine.levels import Levels
from app.engine.logs import Logs
from app.engine.looks import Looks
from app.engine.marks import Marks
from app.engine.outcomes import Outcomes
from app.engine.overview import Overview
from app.engine.pasts import Pasts
from app.engine.purges import Purges
from app.engine.readers import Readers
from app.engine.redrives import Redrives
from app.engine.releases import Releases
from app.engine.replays import Replays
from app.engine.room import Room
from app.engine.screens import MOST_STREAMS, Screens
from app.engine.settlements import Settlements
from app.engine.shared import Shared
from app.engine.streams import Streams
from app.engine.throttle import Buckets, Throttle
from app.engine.users import Users
from app.engine.uses import Uses
from app.engine.waiters import Waiters
from app.engine.watches import Watches
from app.errors import TopicNotFound
from app.metrics import catalogue
from app.metrics.catalogue import Family
from app.metrics.numbers import MOST_TOPICS, Labels
from app.metrics.slots import Metrics
from app.queue.log import Match
from app.queue.shown import Status
from app.topics import store
from app.topics.checks import Checks
from app.topics.settings import TopicType

if TYPE_CHECKING:
    from app.audit.trail import Actor
    from app.db.pool import Pools
    from app.queue.model import Topic
    from app.topics.cache import Policies
    from app.topics.config import Policy


KEPT_SECONDS: Final = 30.0


class Engine:
    """What the edges call. Each part documents its own verbs."""

    def __init__(
        self,
        pools: Pools,
        policies: Policies,
        *,
        max_waiting: int,
        metrics: Metrics | None = None,
        most_topics: int = MOST_TOPICS,
        max_total_bytes: int = 0,
        signs: bool = False,
        to_files: bool = False,
        processes: int = 1,
        buckets: Buckets | None = None,
    ) -> None:
        self._pools = pools
        self.metrics = metrics or Metrics(most_topics=most_topics)
        self.policies = policies
        self.to_files = to_files  # days of events, results and the archive stay until they are kept as files
        self.lanes = Lanes()
        self.cursors = Cursors()
        self.marks = Marks(pools, self.cursors)
        self.counters = Counters(pools, self.cursors)
        self.fairness = Fairness()
        self.looks = Looks(pools, self.cursors, self.fairness)
        self.waiters = Waiters(pools, self.cursors)
        self.waiters.claimable.subscribe(self.fairness.heard)
        self.readers = Readers(pools)
        self.throttle = Throttle(pools, self.waiters.wake, buckets)
        self.groups = Groups(pools, policies, self.marks, self.counters, self.waiters)
        self.checks = Checks(pools.rest, policies, self.metrics)
        self.users = Users(pools, self.metrics, max_waiting)
        self.uses = Uses(pools)
        self.reads = self.uses.reads
        self.shared = shared = Shared(
            pools,
            policies,
            self.lanes,
            self.cursors,
            self.marks,
            self.counters,
            self.waiters,
            self.readers,
            self.throttle,
            max_waiting,
            self.metrics,
            Room(pools, max_total_bytes),
            self.checks,
            self.groups,
            self.users,
            self.fairness,
            self.looks,
            self.uses.writes,
            signs,
        )
        self.exits = Exits(shared)
        self.enqueues = Enqueues(shared)
        self.logs = Logs(shared)
        self.replays = Replays(shared)
        self.purges = Purges(shared)
        self.changes = Changes(shared)
        self.failures = Failures(shared)
        self.explain = Explain(shared)
        self.drains = Drains(shared)
        self.pasts = Pasts(pools.rest)
        self.census = Census(shared)
        self.redrives = Redrives(shared)
        self.diffs = Diffs(shared)
        self.watches = Watches(shared, self.diffs)
        self.settlements = Settlements(shared, self.exits)
        self.releases = Releases(shared, self.settlements)
        self.outcomes = Outcomes(shared, self.settlements)
        self.claims = Claims(shared, self.exits, self.settlements)
        self.streams = Streams(shared, self.claims, self.settlements)
        self.levels = Levels(
            pools, policies, self.cursors, self.counters, self.metrics, most_topics=most_topics, to_files=to_files
        )
        self.overview = Overview(pools, self.levels)
        # What one page has asked for, others show too, for half a minute.
        self.kept: Fresh[Hashable, Any] = Fresh(KEPT_SECONDS, most=100, at_once=2)
        self.screens = Screens(max(1, MOST_STREAMS // processes))  # whose sessions are the same
        self.metrics.levels.append(self._levels)

    def moved(self, topic_id: int) -> tuple[int, float]:
        """What this process knows of a topic's motion: other than before once its jobs have moved here, or others have
        said that there are more. Costs two looks into memory."""
        return self.waiters.mark(topic_id), self.cursors.used(topic_id)

    def heard_of_work(self, topic_id: int, jobs: int) -> None:
        """Another process has made so many jobs claimable, perhaps in a lane that is new; or has appended records."""
        self.readers.wake(topic_id)
        if self.waiters.wanted(topic_id):
            self.lanes.forget(topic_id)
        self.fairness.heard(topic_id)
        self.waiters.wake(topic_id, jobs)

    def resumed(self, topic_id: int) -> None:
        """A topic is held up no longer: whoever waits for its jobs looks again."""
        self.fairness.heard(topic_id)
        self.waiters.wake(topic_id, MAX_CLAIM * self.waiters.count())

    async def delete(self, policy: Policy, *, if_empty: bool, by: Actor) -> bool:
        """Delete a topic and all that it holds, for good; whether it was there.

        What it holds goes first, in batches: the transaction that takes out the topic and what came meanwhile is short
        then, and that one alone is what others wait for. A deletion that breaks off has done a part. With `if_empty`
        there are no batches. Raises TopicNotEmpty.
        """
        gone = 0
        if not if_empty:
            with suppress(TopicNotFound):
                if policy.config.type is TopicType.LOG:
                    await self.logs.delete(policy, None, Match())
                else:
                    gone = await self.purges.purge(policy, tuple(Status))
        deleted = await store.delete(self._pools.rest, policy.topic.name, if_empty=if_empty, by=by, gone=gone)
        self.policies.changed(policy.topic.name)
        self.drop(policy.topic)
        return deleted

    def drop(self, topic: Topic) -> None:
        """A topic was deleted: forget what was known of it, and close its streams."""
        self.streams.lost(topic.name)
        self.lanes.drop(topic.id)
        self.cursors.drop(topic.id)
        self.fairness.drop(topic.id)
        self.looks.drop(topic.id)
        self.counters.drop(topic.id)
        self.throttle.drop(topic.id)
        self.groups.drop(topic.id)
        self.metrics.forget([topic.name])
        self.diffs.drop(topic.id)
        self.readers.wake(topic.id)

    def stop(self) -> None:
        """The service is stopping: close the streams, and send those who wait away empty-handed."""
        self.streams.stop()
        self.watches.stop()
        self.screens.stop()
        self.users.stop()
        self.readers.stop()
        self.outcomes.stop()
        self.replays.stop()
        self.redrives.stop()
        self.claims.stop()

    async def drain(self) -> None:
        """Wait for every statement under way; afterwards nothing runs any more."""
        await self.waiters.close()
        self.throttle.close()
        await self.marks.close()
        await self.readers.close()
        await self.outcomes.close()
        await self.watches.close()
        await self.screens.drain()
        await self.overview.close()
        await self.levels.close()
        await self.kept.stop()
        await self.redrives.drain()
        await self.enqueues.drain()
        await self.logs.group.drain()
        await self.claims.drain()
        await self.looks.drain()
        await self.settlements.drain()
        await self.users.drain()

    def _levels(self) -> Iterable[tuple[Family, Labels, float]]:
        yield catalogue.PARKED, (), self.waiters.count()
        yield catalogue.STREAMS, (), self.streams.count()
        yield catalogue.WATCHES, (), self.watches.count()
        yield catalogue.USER_STREAMS, (), self.users.count()
        yield catalogue.PAGE_STREAMS, (), self.screens.count()
        groups = {**self.claims.groups(), **self.settlements.groups(), **self.enqueues.groups()}
        groups["append"] = [self.logs.group]
        for verb, some in groups.items():
            yield catalogue.GROUP_WAITING, (verb,), sum(group.waiting() for group in some)
