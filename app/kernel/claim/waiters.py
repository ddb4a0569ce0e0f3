"""Callers that wait for work, and what wakes them. docs/semantics.md, section 15.

Waiting costs the database nothing per caller. A job of this process's own wakes just enough of them at once. For
delays, leases that end and other processes' jobs, one statement looks every POLL_SECONDS, for all topics together.
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
QUIET_SECONDS: Final = 0.8  # what the last look found holds a little longer than until the next
MOST_MARKS: Final = 50_000
MOST_TAGS: Final = 1_000  # of a topic, that callers have named

log = logging.getLogger(__name__)


class _Filter(NamedTuple):
    """A caller that waits for jobs of some tenants, or with some tags; None: of all, with any."""

    tenants: Collection[str] | None
    tags: Collection[str] | None
    node: str

    def wants(self, tenants: Collection[str] | None, tags: Collection[str] | None) -> bool:
        """Whether to look again for jobs of these tenants, with these tags; None: unknown ones."""
        if self.tags is not None:
            return tenants != () and (tags is None or not set(self.tags).isdisjoint(tags))
        return tenants is None or not set(self.tenants or ()).isdisjoint(tenants)


class _TopicWaiters:
    """The callers that wait for one topic."""

    def __init__(self, topic: Topic) -> None:
        self.topic = topic
        # For any job: (future, jobs wanted, node), first come first served.
        self.parked: deque[tuple[asyncio.Future[bool], int, str]] = deque()
        # For jobs of some tenants, or with some tags: all that match are woken.
        self.named: dict[asyncio.Future[bool], _Filter] = {}
        self.timer: asyncio.TimerHandle | None = None  # of the next look for this topic alone
        self.even = False  # its jobs are shared by all callers, so all of them are woken

    def nodes(self) -> list[str]:
        """The nodes of all callers that wait, once for each call."""
        calls = [(future, node) for future, _, node in self.parked]
        calls += [(future, named.node) for future, named in self.named.items()]
        return [node for future, node in calls if not future.done()]


class Waiters:
    """Parks callers that found nothing, by topic."""

    def __init__(self, pools: Pools, marks: Marks) -> None:
        self._pools = pools
        self._marks = marks
        self._topics: dict[int, _TopicWaiters] = {}
        self._clock = itertools.count(1)
        # When something last became claimable, by topic; _base for one that is not listed.
        self._changes: dict[int, int] = {}
        # The same by topic and tenant; None: of unknown tenants.
        self._by_tenant: dict[tuple[int, str | None], int] = {}
        # The same by topic and tag, where callers have named tags; None: with unknown tags.
        self._by_tag: dict[int, dict[str | None, int]] = {}
        self._base = 0
        self._quiet: dict[int, tuple[int, float]] = {}  # at which mark, and when, a look found nothing
        self._loop = Loop("look for work", self._poll, POLL_SECONDS, first=POLL_SECONDS)
        self._looks: set[asyncio.Task[None]] = set()
        self.made: Signal[int, int] = Signal()  # topic id, and how many jobs this process has made claimable
        self.claimable: Signal[int, Collection[str] | None] = Signal()  # topic id, and tenants; None: unknown ones

    def mark(self, topic_id: int, tenants: Collection[str] | None = None, tags: Collection[str] | None = None) -> int:
        """What to hand to `park` after a claim that found nothing: taken before that claim was made."""
        if tags is not None:
            changes = self._by_tag.setdefault(topic_id, {})
            if len(changes) > MOST_TAGS:
                changes.clear()
            return max(changes.setdefault(tag, self._base) for tag in (None, *tags))
        if tenants is None:
            return self._changes.get(topic_id, self._base)
        return max(self._by_tenant.get((topic_id, name), self._base) for name in (None, *tenants))

    def found_nothing(self, topic_id: int, mark: int) -> None:
        """A look found nothing to claim. `mark` was taken before it."""
        self._quiet[topic_id] = (mark, time.monotonic())

    def is_quiet(self, topic_id: int) -> bool:
        """Whether a look has just found nothing, and nothing came since: a caller that waits anyway need not ask."""
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
        """Wait until there may be work, of these tenants or with these tags if any are named. False: `seconds` have
        passed.

        even: wake all callers that wait for this topic together, to form one cohort.
        """
        if mark != self.mark(topic.id, tenants, tags):
            return True  # something came between the claim and now
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
                self.wake(topic.id, wanted)  # the next in line gets what this one was woken for
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
        """This process has made so many more jobs claimable, of these tenants and with these tags where that is known:
        wake callers that want them, here and in other processes."""
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
        """There are `jobs` more to claim, of these tenants and with these tags where that is known. Wake as many
        callers as they suffice for, and all that wait for one of the tenants or tags."""
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
        """Let all callers look again, for instance to find that the service is stopping."""
        for topic_id, waited in self._topics.items():
            self.wake(topic_id, sum(wanted for _, wanted, _ in waited.parked))

    def due_in(self, topic_id: int, seconds: float) -> None:
        """A job comes due in so many seconds. The poll finds those that are later than it."""
        waited = self._topics.get(topic_id)
        if waited is not None and seconds <= POLL_SECONDS:
            self._look_in(waited, seconds)

    def waits_for(self, topic_id: int) -> bool:
        """Whether a caller waits, or has just waited, for this topic."""
        return topic_id in self._topics

    def nodes(self, topic: str) -> list[str]:
        """The nodes that wait for work on a topic, once for each call."""
        return [node for waited in self._topics.values() if waited.topic.name == topic for node in waited.nodes()]

    def count(self, topic: str | None = None) -> int:
        """How many callers wait for work on a topic, or on any."""
        return sum(len(one.nodes()) for one in self._topics.values() if topic is None or one.topic.name == topic)

    async def close(self) -> None:
        """Stop looking."""
        await asyncio.gather(self._loop.stop(), end_tasks(*self._looks))
        for waited in self._topics.values():
            if waited.timer is not None:
                waited.timer.cancel()

    def _forget_marks(self) -> None:
        self._changes.clear()
        self._by_tenant.clear()
        self._by_tag.clear()
        self._quiet.clear()
        self._base = next(self._clock)  # a mark taken before is not taken for unchanged

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
            log.warning("can't look for work at the moment: %r", error)
            return
        except Exception:
            log.exception("can't look for work")  # and goes on: whoever waits must not wait for ever
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
