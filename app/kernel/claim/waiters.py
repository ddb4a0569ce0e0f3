"""Callers that wait for jobs, and what wakes them. docs/semantics.md, section 15.

Waiting callers cost the database nothing. New jobs of this process wake just enough callers at once. Delayed jobs,
leases that end and jobs of other processes are found by one statement for all topics, every POLL_SECONDS.
"""

from __future__ import annotations

import asyncio
import itertools
import logging
import time
from collections import deque
from collections.abc import Collection
from typing import Final, NamedTuple

from app.base.db.pool import Pools
from app.base.loops import REST, Loop, end_tasks
from app.base.outages import UNREACHABLE
from app.base.signals import Signal
from app.kernel.claim.marks import Marks
from app.kernel.counts import inspector
from app.kernel.model import Topic

POLL_SECONDS: Final = 0.5
QUIET_SECONDS: Final = 0.8  # how long a poll without jobs counts: a little longer than until the next poll
MOST_MARKS: Final = 50_000
MOST_TAGS: Final = 1_000  # tags that callers have named, for each topic

log = logging.getLogger(__name__)


class _Filter(NamedTuple):
    """A caller that waits for jobs of some tenants or with some tags; None: of all tenants, with any tags."""

    tenants: Collection[str] | None
    tags: Collection[str] | None
    node: str

    def wants(self, tenants: Collection[str] | None, tags: Collection[str] | None) -> bool:
        """Whether to look for jobs of these tenants, with these tags; None: unknown ones."""
        if self.tags is not None:
            return tenants != () and (tags is None or not set(self.tags).isdisjoint(tags))
        return tenants is None or not set(self.tenants or ()).isdisjoint(tenants)


class _TopicWaiters:
    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        # Callers that want any job: (future, jobs wanted, node). First come, first served.
        self.parked: deque[tuple[asyncio.Future[bool], int, str]] = deque()
        # Callers that want jobs of some tenants or with some tags. All that match are woken.
        self.named: dict[asyncio.Future[bool], _Filter] = {}
        self.timer: asyncio.TimerHandle | None = None  # of the next probe of this topic alone
        self.even = False  # whether callers share the jobs evenly, so that all of them are woken

    def nodes(self) -> list[str]:
        """The nodes of the waiting callers, one entry per call."""
        calls = [(future, node) for future, _, node in self.parked]
        calls += [(future, named.node) for future, named in self.named.items()]
        return [node for future, node in calls if not future.done()]


class Waiters:
    """Parks callers that found no jobs, by topic."""

    def __init__(self, pools: Pools, marks: Marks) -> None:
        self._pools = pools
        self._marks = marks
        self._topics: dict[int, _TopicWaiters] = {}
        self._clock = itertools.count(1)
        # When a job last became claimable, by topic; _base for topics that are not listed.
        self._changes: dict[int, int] = {}
        # The same by topic and tenant; None: an unknown tenant.
        self._by_tenant: dict[tuple[int, str | None], int] = {}
        # The same by topic and tag, for tags that callers have named; None: unknown tags.
        self._by_tag: dict[int, dict[str | None, int]] = {}
        self._base = 0
        self._quiet: dict[int, tuple[int, float]] = {}  # the mark at which a topic was found empty, and when
        self._loop = Loop("look for claimable jobs", self._poll, POLL_SECONDS, first=POLL_SECONDS)
        self._looks: set[asyncio.Task[None]] = set()
        self.made: Signal[int, int] = Signal()  # topic id, number of jobs that this process made claimable
        self.claimable: Signal[int, Collection[str] | None] = Signal()  # topic id, tenants; None: unknown tenants

    def mark(self, topic_id: int, tenants: Collection[str] | None = None, tags: Collection[str] | None = None) -> int:
        """A mark for `park`. Take it before a claim, and pass it to `park` if the claim found no jobs."""
        if tags is not None:
            changes = self._by_tag.setdefault(topic_id, {})
            if len(changes) > MOST_TAGS:
                changes.clear()
            return max(changes.setdefault(tag, self._base) for tag in (None, *tags))
        if tenants is None:
            return self._changes.get(topic_id, self._base)
        return max(self._by_tenant.get((topic_id, name), self._base) for name in (None, *tenants))

    def found_nothing(self, topic_id: int, mark: int) -> None:
        """The topic was found empty. `mark` was taken before that."""
        self._quiet[topic_id] = (mark, time.monotonic())

    def is_quiet(self, topic_id: int) -> bool:
        """Whether the topic was just found empty and nothing has come since. A caller that waits need not claim."""
        mark, when = self._quiet.get(topic_id, (-1, 0.0))
        return mark == self.mark(topic_id) and time.monotonic() < when + QUIET_SECONDS

    async def park(
        self,
        topic: Topic,
        wanted: int,
        mark: int,
        seconds: float,
        *,
        even: bool = False,
        tenants: Collection[str] | None = None,
        tags: Collection[str] | None = None,
        node: str = "",
    ) -> bool:
        """Wait until there may be jobs, of these tenants or with these tags if there are any. Returns False after
        `seconds`.

        even: wake all callers of the topic together, to form one cohort.
        """
        if mark != self.mark(topic.id, tenants, tags):
            return True  # a job came after the claim
        loop = asyncio.get_running_loop()
        woken: asyncio.Future[bool] = loop.create_future()
        waited = self._topics.get(topic.id)
        if waited is None:
            waited = self._topics[topic.id] = _TopicWaiters(topic)
            self._look(waited)
        waited.even = even
        if tenants is None and tags is None:
            waited.parked.append((woken, wanted, node))
        else:
            waited.named[woken] = _Filter(tenants, tags, node)
        self._loop.start()
        # Not wait_for, which before Python 3.12 loses a cancellation that comes together with the result.
        timer = loop.call_later(seconds, _give_up, woken)
        try:
            return await woken
        except asyncio.CancelledError:
            if tenants is None and tags is None and woken.done() and not woken.cancelled() and woken.result():
                self.wake(topic.id, wanted)  # the next caller in line gets the jobs
            raise
        finally:
            waited.named.pop(woken, None)
            timer.cancel()

    def announce(
        self,
        topic_id: int,
        jobs: int,
        tenants: Collection[str] | None = None,
        tags: Collection[str | None] | None = None,
    ) -> None:
        """This process has made `jobs` claimable, of these tenants and with these tags if known. Wakes callers here and
        in other processes."""
        if jobs:
            self.claimable.emit(topic_id, tenants)
            self.wake(topic_id, jobs, tenants, tags)
            self.made.emit(topic_id, jobs)

    def wake(
        self,
        topic_id: int,
        jobs: int,
        tenants: Collection[str] | None = None,
        tags: Collection[str | None] | None = None,
    ) -> None:
        """There are `jobs` more to claim, of these tenants and with these tags if known. Wakes as many callers as there
        are jobs for, and all callers that wait for one of the tenants or tags."""
        if len(self._changes) + len(self._by_tenant) >= MOST_MARKS:
            self._forget_marks()
        now = self._changes[topic_id] = next(self._clock)
        for name in (None,) if tenants is None else tenants:
            self._by_tenant[topic_id, name] = now
        changes = self._by_tag.get(topic_id)
        names = None
        if changes is not None and tenants != ():
            names = None if tags is None else {tag for tag in tags if tag is not None and tag in changes}
            changes.update(dict.fromkeys((None,) if names is None else names, now))
        waited = self._topics.get(topic_id)
        if waited is None:
            return
        for future, named in waited.named.items():
            if not future.done() and named.wants(tenants, names):
                future.set_result(True)
        while waited.parked and jobs > 0:
            future, wanted, _ = waited.parked.popleft()
            if not future.done():
                future.set_result(True)
                jobs -= 0 if waited.even else wanted

    def wake_all(self) -> None:
        """Let all callers claim again, for instance to find that the service is stopping."""
        for topic_id, waited in self._topics.items():
            self.wake(topic_id, sum(wanted for _, wanted, _ in waited.parked))

    def due_in(self, topic_id: int, seconds: float) -> None:
        """A job becomes due in so many seconds. A later one is found by the poll."""
        waited = self._topics.get(topic_id)
        if waited is not None and seconds <= POLL_SECONDS:
            self._look_in(waited, seconds)

    def waits_for(self, topic_id: int) -> bool:
        """Whether a caller waits for this topic, or has just waited."""
        return topic_id in self._topics

    def nodes(self, topic: str) -> list[str]:
        """The nodes that wait for jobs of a topic, one entry per call."""
        return [node for waited in self._topics.values() if waited.topic.name == topic for node in waited.nodes()]

    def count(self, topic: str | None = None) -> int:
        """How many callers wait for jobs of a topic, or of any topic."""
        return sum(len(one.nodes()) for one in self._topics.values() if topic is None or one.topic.name == topic)

    async def close(self) -> None:
        await asyncio.gather(self._loop.stop(), end_tasks(*self._looks))
        for waited in self._topics.values():
            if waited.timer is not None:
                waited.timer.cancel()

    def _forget_marks(self) -> None:
        self._changes.clear()
        self._by_tenant.clear()
        self._by_tag.clear()
        self._quiet.clear()
        self._base = next(self._clock)  # marks that were taken before count as changed

    def _look_in(self, waited: _TopicWaiters, seconds: float) -> None:
        loop = asyncio.get_running_loop()
        at = loop.time() + max(seconds, 0.001)
        if waited.timer is not None:
            if waited.timer.when() <= at:
                return
            waited.timer.cancel()
        waited.timer = loop.call_at(at, self._look, waited)

    def _look(self, waited: _TopicWaiters) -> None:
        waited.timer = None
        task = asyncio.create_task(self._probe([waited]))
        self._looks.add(task)
        task.add_done_callback(self._looks.discard)

    async def _poll(self) -> float | None:
        for topic_id, waited in list(self._topics.items()):
            while waited.parked and waited.parked[0][0].done():
                waited.parked.popleft()
            if not waited.parked and not waited.named and waited.timer is None:
                del self._topics[topic_id]
        if not self._topics:
            self._forget_marks()
            return REST
        await self._probe(list(self._topics.values()))
        return None

    async def _probe(self, topics: list[_TopicWaiters]) -> None:
        before = {waited.topic.id: self.mark(waited.topic.id) for waited in topics}
        try:
            lows = {waited.topic.name: self._marks.lows(waited.topic.id) for waited in topics}
            found = await inspector.probe(self._pools.hot, lows)
        except UNREACHABLE as error:
            log.warning("can't look for claimable jobs: %r", error)
            return
        except Exception:
            log.exception("can't look for claimable jobs")  # the loop goes on: callers must not wait for ever
            return
        for waited in topics:
            probe = found.get(waited.topic.name)
            if probe is not None:
                self._marks.saw_clock(waited.topic.id, probe.at)
            if probe is not None and probe.claimable:
                self.claimable.emit(waited.topic.id, None)
                self.wake(waited.topic.id, 1)
                continue
            self.found_nothing(waited.topic.id, before[waited.topic.id])
            if probe is not None and probe.wait_ms is not None and probe.wait_ms <= POLL_SECONDS * 1000:
                self._look_in(waited, (probe.wait_ms + 1) / 1000)


def _give_up(woken: asyncio.Future[bool]) -> None:
    if not woken.done():
        woken.set_result(False)
