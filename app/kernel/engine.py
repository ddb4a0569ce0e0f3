"""The engine of one process: its parts, created and stopped together."""

from __future__ import annotations

from collections.abc import Hashable, Iterable
from typing import Any, Final, TypeVar, cast

from app.base.db.pool import Pools
from app.base.fresh import Fresh
from app.base.metrics import MOST_TOPICS, Labels, Metrics, catalogue
from app.base.metrics.catalogue import Family
from app.base.signals import Signal
from app.kernel.claim.claims import Claims
from app.kernel.claim.limits import Buckets
from app.kernel.claim.streams import Streams
from app.kernel.claim.walk import MAX_CLAIM
from app.kernel.enqueue.enqueues import Enqueues
from app.kernel.logs.logs import Logs
from app.kernel.model import Topic
from app.kernel.settle.exits import Exits
from app.kernel.settle.settlements import Settlements
from app.kernel.state import EngineState
from app.kernel.topics.cache import Policies

KEPT_SECONDS: Final = 30.0


class Core:
    """A feature's part of one engine. `engine.core` creates it when it is needed, and it stops with the engine."""

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    def stop(self) -> None:
        """Answer waiting callers, and begin nothing more, because the service is stopping."""

    async def drain(self) -> None:
        """Wait for everything under way."""


T = TypeVar("T", bound=Core)


class Engine(EngineState):
    """The verbs for the HTTP dialects. Each part documents its own."""

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
        super().__init__(
            pools,
            policies,
            max_waiting=max_waiting,
            metrics=metrics,
            most_topics=most_topics,
            max_total_bytes=max_total_bytes,
            signs=signs,
            buckets=buckets,
        )
        self.processes = processes
        self.to_files = to_files  # whether days of events, results and the archive stay until they are kept as files
        self.exits = Exits(self)
        self.enqueues = Enqueues(self)
        self.logs = Logs(self)
        self.settlements = Settlements(self, self.exits)
        self.claims = Claims(self, self.exits, self.settlements)
        self.streams = Streams(self, self.claims, self.settlements)
        # Readings that pages share for half a minute.
        self.readings: Fresh[Hashable, Any] = Fresh(KEPT_SECONDS, most=100, at_once=2)
        self._cores: dict[type[Core], Core] = {}
        self.dropped: Signal[int] = Signal()  # the id of a deleted topic
        self.metrics.levels.append(self._levels)

    def core(self, kind: type[T]) -> T:
        """The engine's instance of a Core."""
        core = self._cores.get(kind)
        if core is None:
            core = self._cores[kind] = kind(self)
        return cast(T, core)

    def motion(self, topic_id: int) -> tuple[int, float]:
        """A value that changes when a topic's jobs have moved in this process, or another process has announced jobs.
        Costs two look-ups in memory."""
        return self.waiters.mark(topic_id), self.marks.last_used(topic_id)

    def hear_of_work(self, topic_id: int, jobs: int) -> None:
        """Another process has made jobs claimable, perhaps in a new lane, or has appended records."""
        self.readers.wake(topic_id)
        if self.waiters.waits_for(topic_id):
            self.lanes.forget(topic_id)
        self.fairness.note_claimable(topic_id)
        self.waiters.wake(topic_id, jobs)

    def wake_all_of(self, topic_id: int) -> None:
        """A topic was resumed. All callers that wait for its jobs claim again."""
        self.fairness.note_claimable(topic_id)
        self.waiters.wake(topic_id, MAX_CLAIM * self.waiters.count())

    def drop(self, topic: Topic) -> None:
        """Forget a deleted topic, and close its streams."""
        self.streams.lost(topic.name)
        self.lanes.drop(topic.id)
        self.marks.drop(topic.id)
        self.fairness.drop(topic.id)
        self.counters.drop(topic.id)
        self.throttle.drop(topic.id)
        self.groups.drop(topic.id)
        self.metrics.forget([topic.name])
        self.dropped.emit(topic.id)
        self.readers.wake(topic.id)

    def stop(self) -> None:
        """Close all streams and answer all waiting callers with nothing, because the service is stopping."""
        self.streams.stop()
        self.users.stop()
        self.readers.stop()
        self.claims.stop()
        for core in self._cores.values():
            core.stop()

    async def drain(self) -> None:
        """Wait for every statement under way. Nothing runs after that."""
        await self.waiters.close()
        self.throttle.close()
        await self.marks.stop()
        await self.readers.close()
        await self.readings.stop()
        for core in self._cores.values():
            await core.drain()
        await self.enqueues.drain()
        await self.logs.group.drain()
        await self.claims.drain()
        await self.marks.drain()
        await self.settlements.drain()
        await self.users.drain()

    def _levels(self) -> Iterable[tuple[Family, Labels, float]]:
        yield catalogue.PARKED, (), self.waiters.count()
        yield catalogue.STREAMS, (), self.streams.count()
        yield catalogue.USER_STREAMS, (), self.users.count()
        groups = {**self.claims.groups(), **self.settlements.groups(), **self.enqueues.groups()}
        groups["append"] = [self.logs.group]
        for verb, some in groups.items():
            yield catalogue.GROUP_WAITING, (verb,), sum(group.waiting() for group in some)
