"""What topics hold, for metrics and pages: read for all callers together, every few seconds."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import asyncpg
import msgspec

from app.base.db import health
from app.base.fresh import Fresh
from app.base.metrics import catalogue
from app.base.metrics.catalogue import MetricType
from app.base.outages import UNREACHABLE
from app.errors import HoldfastError, TopicNotFound
from app.kernel.counts import holders, inspector, triage
from app.kernel.counts.holders import LongLeases, StuckGroups
from app.kernel.counts.triage import TopicLevels
from app.kernel.engine import Core
from app.kernel.logs import log as records
from app.kernel.topics import store
from app.kernel.topics.policy import Policy
from app.kernel.topics.settings import TopicType

if TYPE_CHECKING:
    from app.base.db.health import Sample
    from app.base.metrics import MergedNumbers
    from app.kernel.counts.inspector import Depth, Sight
    from app.kernel.engine import Engine
    from app.kernel.logs.log import LogState

BOUND: Final = 10_001  # due jobs of a topic that are counted
FRESH_SECONDS: Final = 5.0
SHARE: Final = 20  # after a read that took s seconds, the next one starts SHARE * s seconds later at the earliest
PATIENCE_SECONDS: Final = 2.0  # how long a scrape waits for a read
RETRY_SECONDS: Final = 1.0
MOST_GROUPS: Final = 20_000  # groups with waiting jobs of all topics that are read
MOST_DEEP: Final = 50  # topics whose jobs are counted beyond BOUND

log = logging.getLogger(__name__)


class Levels(Core):
    """What topics hold, as last read. Concurrent callers share a read."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._pools = engine.pools
        self._defaults = engine.policies.defaults
        self._marks = engine.marks
        self._counters = engine.counters
        self._metrics = engine.metrics
        self._most_topics = engine.most_topics
        self._to_files = engine.to_files
        self._unarchived: dict[str, int] = {}
        self._server: list[Sample] = []
        self._census: dict[tuple[str, str], int] = {}
        self._policies: list[Policy] = []
        self._depths: dict[str, Depth] = {}
        self._sights: dict[str, Sight] = {}
        self._takers: frozenset[str | None] = frozenset()
        self._stuck: dict[str, StuckGroups] = {}
        self._rounds: dict[str, StuckGroups] = {}  # unfinished rounds, of topics with more groups than one read covers
        self._long: dict[str, LongLeases] = {}
        self._logs: dict[str, LogState] = {}
        self._looked = 0.0  # when the depths were read; 0: never
        self.looks = 0  # reads that have ended, with or without success
        self._up = False
        # A read returns until when it is valid, which is soon after a failure.
        self._look: Fresh[None, float] = Fresh(FRESH_SECONDS, until=lambda until: until)

    async def refresh(self) -> None:
        """Read again if it is time. Waits at most PATIENCE_SECONDS. Raises nothing: old values stay."""
        await self._look.within(None, self._refresh, PATIENCE_SECONDS)

    def forget(self) -> None:
        """Read again for the next caller."""
        self._look.forget(None)

    async def drain(self) -> None:
        await self._look.stop()

    def names(self) -> frozenset[str]:
        """The topics that have metrics of their own: those last read, and those used since."""
        return frozenset([policy.topic.name for policy in self._policies] + self._metrics.topics())

    @property
    def up(self) -> bool:
        """Whether the database answered the last time."""
        return self._up

    def latest(self) -> tuple[list[tuple[Policy, TopicLevels]], int, float | None]:
        """The topics as last read, by name; how many there are in all; when they were read, by the monotonic clock
        (None:
        never)."""
        found = []
        for policy in self._policies:
            name = policy.topic.name
            depth, state = self._depths.get(name), self._logs.get(name)
            if depth is not None:
                found.append((policy, self._levels_of(depth, self._sights.get(name))))
            elif state is not None:
                levels = TopicLevels(
                    False, state.count, state.bytes, head_seq=state.head_seq, earliest_seq=state.earliest_seq
                )
                found.append((policy, levels))
        found.sort(key=lambda one: one[0].topic.name)
        return found, sum(self._census.values()), self._looked or None

    def takes_dead(self, topic: str) -> bool:
        """Whether any queue has this topic as its dead-letter topic, as last read."""
        return topic in self._takers

    async def look_at(self, queue: Policy) -> TopicLevels:
        """What a queue holds now. Raises TopicNotFound, and asyncpg's errors."""
        depths = await self.depths([queue])
        sights = await inspector.survey(self._pools.rest, [(queue.topic, queue.config.dead_letter)])
        if queue.topic.name not in sights:
            raise TopicNotFound(queue.topic.name)
        depth, stuck = depths[queue.topic.name], StuckGroups()
        if depth.blocked:
            goals = [(queue.topic, queue.config.wait_goal_ms)]
            stuck = (await holders.stuck_groups(self._pools.rest, goals, {}))[queue.topic.name]
        return msgspec.structs.replace(self._levels_of(depth, sights[queue.topic.name]), stuck=stuck)

    def _levels_of(self, depth: Depth, sight: Sight | None) -> TopicLevels:
        levels = TopicLevels(
            True,
            depth.count,
            depth.bytes,
            depth.ready,
            depth.in_flight,
            depth.scheduled,
            depth.blocked,
            oldest_ms=depth.oldest_ms,
            exact=depth.looked < BOUND,
            takes_dead=self.takes_dead(depth.topic),
            stuck=self._stuck.get(depth.topic, StuckGroups()),
            long=self._long.get(depth.topic, LongLeases()),
        )
        if sight is None:
            return levels
        earliest_seq = sight.earliest_seq if depth.count or sight.earliest_seq else sight.head_seq + 1
        dead_exact = sight.letters < inspector.DEAD_LOOKED_AT
        return msgspec.structs.replace(
            levels, dead=sight.dead, dead_exact=dead_exact, head_seq=sight.head_seq, earliest_seq=earliest_seq
        )

    async def depths(self, queues: Sequence[Policy]) -> dict[str, Depth]:
        """What queues hold now, by name. Raises asyncpg's errors."""
        depths = await inspector.depths(
            self._pools.rest,
            [(queue.topic, queue.budget, self._marks.lows(queue.topic.id)) for queue in queues],
            BOUND,
        )
        deep = [queue for queue in queues if depths[queue.topic.name].looked >= BOUND][:MOST_DEEP]
        for queue in deep:
            # The same counts as in answers to workers, which are refreshed at their own pace.
            try:
                counts = await self._counters.read(queue)
            except HoldfastError:
                continue
            depth = depths[queue.topic.name]
            depth.ready, depth.in_flight, depth.scheduled = counts.ready, counts.in_flight, counts.scheduled
        return depths

    def add_to(self, merged: MergedNumbers, *, server: bool) -> None:
        """Add the metrics of topics to those of the processes. `server`: also add PostgreSQL's own."""
        merged.level(catalogue.DATABASE_UP, (), int(self._up))
        for labels, topics in self._census.items():
            merged.level(catalogue.TOPICS, labels, topics)
        total = sum(self._census.values())
        merged.level(catalogue.TRUNCATED, (), int(total > self._most_topics or self._metrics.full))
        if self._looked:
            merged.level(catalogue.TOPIC_AGE, (), time.monotonic() - self._looked)
        for table, days in self._unarchived.items():
            merged.level(catalogue.UNARCHIVED, (table,), days)
        for family, of, value in self._server if server else ():
            (merged.total if family.kind is MetricType.COUNTER else merged.level)(family, of, value)
        for policy, held in self.latest()[0]:
            topic = (policy.topic.name,)
            merged.level(catalogue.TOPIC_BYTES, topic, held.bytes)
            if held.earliest_seq is not None:
                merged.level(catalogue.TOPIC_EARLIEST, topic, held.earliest_seq)
            if held.head_seq is not None:
                merged.level(catalogue.TOPIC_HEAD, topic, held.head_seq)
            if not held.is_queue:
                merged.level(catalogue.TOPIC_RECORDS, topic, held.count)
                continue
            merged.level(catalogue.TOPIC_READY, topic, held.ready)
            merged.level(catalogue.TOPIC_IN_FLIGHT, topic, held.in_flight)
            merged.level(catalogue.TOPIC_SCHEDULED, topic, held.scheduled)
            merged.level(catalogue.TOPIC_BLOCKED, topic, held.blocked)
            merged.level(catalogue.TOPIC_OLDEST, topic, max(held.oldest_ms or 0, 0) / 1000)
            merged.level(catalogue.TOPIC_STUCK, topic, held.stuck.groups)
            merged.level(catalogue.TOPIC_WAIT_GOAL, topic, policy.config.wait_goal_ms / 1000)
            if held.head_seq is not None:
                merged.level(catalogue.TOPIC_DEAD_NOW, topic, held.dead)
            if held.takes_dead:
                merged.level(catalogue.TOPIC_TAKES_DEAD, topic, 1)

    async def _refresh(self) -> float:
        began = time.monotonic()
        pause = RETRY_SECONDS
        try:
            await asyncio.wait_for(self._read_topics(), PATIENCE_SECONDS)
            self._up = True
            pause = SHARE * PATIENCE_SECONDS  # if it runs out of time
            await self._read_server()
            await asyncio.wait_for(self._read_depths(), PATIENCE_SECONDS)
            await self._read_held_up()
            pause = max(FRESH_SECONDS, SHARE * (time.monotonic() - began))
        except UNREACHABLE as error:
            if pause == RETRY_SECONDS or not isinstance(error, TimeoutError):
                self._up, pause = False, RETRY_SECONDS
            log.warning("can't read what topics hold: %r", error)
        except Exception:
            log.exception("can't read what topics hold")
        self.looks += 1
        return time.monotonic() + pause

    async def _read_topics(self) -> None:
        counted = self._metrics.topics()
        self._census = await store.census(self._pools.rest)
        if self._to_files:
            self._unarchived = await inspector.count_unarchived(self._pools.rest)
        self._policies = await store.some_of(self._pools.rest, counted, self._most_topics, self._defaults)
        there = {policy.topic.name for policy in self._policies}
        # Only topics that were known before the read: one that was created meanwhile is not gone.
        self._metrics.forget(name for name in counted if name not in there)

    async def _read_server(self) -> None:
        try:
            self._server = await asyncio.wait_for(health.read_samples(self._pools.rest), PATIENCE_SECONDS)
        except (asyncpg.PostgresError, TimeoutError) as error:
            # It is slow, or the role lacks the right to call a function. Topics are read nevertheless.
            log.warning("can't read PostgreSQL's own metrics: %r", error)
            self._server = []

    async def _read_held_up(self) -> None:
        """Read stuck groups and long leases. If there is not enough time, old values stay."""
        queues = [policy for policy in self._policies if policy.topic.name in self._depths]
        blocked = [(one.topic, one.config.wait_goal_ms) for one in queues if self._depths[one.topic.name].blocked > 0]
        held = [
            (one.topic, triage.long_ms(one.config.lease_ms, one.config.wait_goal_ms))
            for one in queues
            if self._depths[one.topic.name].in_flight > 0
        ]
        most = min(max(MOST_GROUPS // max(len(blocked), 1), 1), holders.STUCK)
        behind = {name: one.last for name, one in self._rounds.items() if one.last is not None}
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                found = await holders.stuck_groups(self._pools.rest, blocked, behind, most) if blocked else {}
                self._long = await holders.long_leases(self._pools.rest, held) if held else {}
        except (asyncpg.QueryCanceledError, TimeoutError) as error:
            log.warning("can't read stuck groups: %r", error)
            return
        before, self._stuck, rounds = self._stuck, {}, {}
        for name, part in found.items():
            so_far = self._rounds[name].plus(part) if name in self._rounds else part
            if part.last is not None:
                rounds[name] = so_far
            known = before.get(name)
            # The last complete round stays until the next one is complete.
            keeps = part.last is not None and known is not None and known.last is None
            self._stuck[name] = known if known is not None and keeps else so_far
        self._rounds = rounds

    async def _read_depths(self) -> None:
        queues = [policy for policy in self._policies if policy.config.type is TopicType.QUEUE]
        self._depths, self._looked = await self.depths(queues), time.monotonic()
        letters = [(queue.topic, queue.config.dead_letter) for queue in queues]
        self._takers = frozenset(queue.config.dead_letter for queue in queues)
        self._sights = await inspector.survey(self._pools.rest, letters)
        logs = [(p.topic, p.config.ttl_ms) for p in self._policies if p.config.type is TopicType.LOG]
        self._logs = await records.states(self._pools.rest, logs, BOUND)
