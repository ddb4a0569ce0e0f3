"""Which lanes a topic has, and in which order their jobs are claimed. docs/semantics.md, section 4; docs/adr/0031. A
topic with the default order pays only for the list of lanes."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from itertools import chain, islice
from typing import Final

import msgspec
from msgspec.structs import replace

from app.base.db import sql
from app.base.fresh import Fresh
from app.kernel.counts import inspector
from app.kernel.counts.inspector import LaneHead
from app.kernel.enqueue import producer
from app.kernel.model import Batch, Connection, Job, Lane, Reach, Seq, Topic
from app.kernel.topics.policy import FREE, Control, Policy
from app.kernel.topics.settings import Config

_LANES = sql.load(__package__, "lanes")
_SQL: Final = sql.load_all(__package__)
_TURNS = _SQL["turns"]

TTL_SECONDS: Final = 0.5  # a new lane of another process is found within a second
LOOK_SECONDS: Final = 0.1  # least time between two reads of the lanes' ages
LOOK_SHARE: Final = 0.1  # most of the time that these reads can take
BEFORE_US: Final = 2  # times pass through a float
OVERTAKE_SHARE: Final = 4  # one in so many jobs can be a job that overtakes


async def read_lanes(db: Connection, topic: Topic, known: Sequence[Lane] = ()) -> Sequence[Lane]:
    """The topic's lanes in claim order. Returns `known` itself if there are no more lanes."""
    rows = await db.fetch(_LANES, topic.name, len(known))
    return [Lane(row["tenant"], row["priority"]) for row in rows] or known


class Lanes:
    """Lanes by topic id. A new lane of this process is known at once, a lane of another process within TTL_SECONDS."""

    def __init__(self) -> None:
        self._fresh: Fresh[int, Sequence[Lane]] = Fresh(TTL_SECONDS)
        self._last: dict[int, Sequence[Lane]] = {}  # as last read
        self._running: dict[int, tuple[Sequence[Lane], Control, str, Sequence[Lane]]] = {}
        self._written: dict[int, set[Lane]] = {}

    async def of(self, db: Connection, topic: Topic) -> Sequence[Lane]:
        """The topic's lanes in claim order. Returns the same list as long as there are no new lanes."""
        known = self._fresh.peek(topic.id)
        if known:
            return known
        lanes = await self._fresh.get(topic.id, partial(self._read, db, topic))
        if not lanes:  # the first job may come at any time
            self._fresh.forget(topic.id)
        return lanes

    async def _read(self, db: Connection, topic: Topic) -> Sequence[Lane]:
        lanes = self._last[topic.id] = await read_lanes(db, topic, self._last.get(topic.id, ()))
        return lanes

    def running(self, policy: Policy, lanes: Sequence[Lane]) -> Sequence[Lane]:
        """The lanes that are not paused, in the order of the topic's settings. Returns the same list as long as nothing
        has changed."""
        control, order = policy.control, policy.config.priority_order
        if control == FREE and order == "highest_first":
            return lanes
        before = self._running.get(policy.topic.id)
        if before is not None and before[0] is lanes and before[1:3] == (control, order):
            return before[3]
        running: Sequence[Lane] = []
        if not control.paused:
            running = [lane for lane in lanes if lane.tenant not in control.paused_tenants]
        running = by_priority(running, policy.config)
        self._running[policy.topic.id] = (lanes, control, order, running)
        return running

    async def ensure(self, db: Connection, topic: Topic, batch: Batch) -> None:
        """Make the batch's lanes known to every process. Call this before its jobs are written."""
        written = self._written.setdefault(topic.id, set())
        new = batch.lanes() - written
        if new:
            await producer.add_lanes(db, topic, sorted(new, key=lambda lane: (lane.tenant, lane.priority)))
            written |= new
            self.forget(topic.id)

    def forget(self, topic_id: int) -> None:
        """Read the lanes again before the next claim. A read that is under way does not count."""
        self._fresh.forget(topic_id)

    def drop(self, topic_id: int) -> None:
        """Forget a deleted topic."""
        self._fresh.forget(topic_id)
        for remembered in (self._last, self._running, self._written):
            remembered.pop(topic_id, None)


def by_priority(lanes: Sequence[Lane], config: Config) -> Sequence[Lane]:
    """Lanes in claim order. They are given by descending priority."""
    return lanes if config.priority_order == "highest_first" else sorted(lanes, key=lambda lane: lane.priority)


class Overtaking(msgspec.Struct):
    """The lanes of one tenant that have overtaken other lanes of it, with where their jobs begin; they take turns.
    `credit` is in jobs of the tenant. The first job that overtakes does not have to wait for credit."""

    reaches: deque[Reach] = msgspec.field(default_factory=deque)
    credit: int = OVERTAKE_SHARE - 1

    def seats(self, jobs: int) -> int:
        """How many jobs can overtake if the tenant gets `jobs` in all."""
        return (self.credit + jobs) // OVERTAKE_SHARE

    def take(self, seats: int) -> Reach:
        """Pay for so many jobs that overtake. Returns the reach to claim them from."""
        self.credit -= seats * OVERTAKE_SHARE
        self.reaches.rotate(-1)
        return self.reaches[-1]

    def refund(self, seats: int) -> None:
        """Pay back slots that found no job."""
        self.credit = min(self.credit + seats * OVERTAKE_SHARE, OVERTAKE_SHARE - 1)

    def earn(self, jobs: int) -> None:
        """The tenant got so many jobs, including jobs that overtook."""
        self.credit = min(max(self.credit + jobs, 0), OVERTAKE_SHARE - 1)


class Ages(msgspec.Struct):
    """The ages of one topic's jobs. Tenants come before priorities: a job overtakes only jobs of its own tenant."""

    overtaking: dict[str, Overtaking] = msgspec.field(default_factory=dict)  # by tenant
    look_at: float = 0.0
    took: float = 0.0  # seconds that the last look took

    def earn(self, jobs: Iterable[Job]) -> None:
        if self.overtaking:
            for tenant, count in Counter(job.tenant for job in jobs).items():
                if tenant in self.overtaking:
                    self.overtaking[tenant].earn(count)


async def look_at_ages(
    db: Connection,
    topic: Topic,
    config: Config,
    ages: Ages,
    several: Iterable[Sequence[Lane]],
    *,
    lows_of: Callable[[Sequence[Lane]], Sequence[Reach]],
) -> Mapping[str, Overtaking]:
    """The tenants with lanes that have overtaken others, as last read.

    A lane overtakes once its first job has waited `aging_ms` for each step of priority between it and the best lane of
    its tenant that has jobs.

    several: the lanes of each tenant that may have such lanes.
    lows_of: returns the low marks of lanes.
    """
    now = time.monotonic()
    if now >= ages.look_at:
        ages.look_at = now + LOOK_SECONDS  # concurrent claims use what is known
        tenants = [lanes for lanes in several if len(lanes) > 1]
        reaches = lows_of(list(chain.from_iterable(tenants)))
        heads = await inspector.heads(db, [(topic.name, reach) for reach in reaches]) if reaches else []
        took = time.monotonic() - now
        # The lesser of two, so that a delay from elsewhere does not count.
        ages.look_at = now + max(LOOK_SECONDS, min(took, ages.took) / LOOK_SHARE)
        ages.took = took
        rest = iter(zip(reaches, heads, strict=True))
        found = {lanes[0].tenant: overtaking_lanes(config, list(islice(rest, len(lanes)))) for lanes in tenants}
        ages.overtaking = {
            tenant: _rotate(ages.overtaking.get(tenant, Overtaking()), now) for tenant, now in found.items() if now
        }
    return ages.overtaking


def overtaking_lanes(config: Config, lanes: Sequence[tuple[Reach, LaneHead]]) -> list[Reach]:
    """The lanes of one tenant whose first jobs count at least as much as the best ones, with where each begins."""
    sign = 1 if config.priority_order == "highest_first" else -1
    begun = [
        (sign * reach.lane.priority, head.waited_ms // config.aging_ms, _just_before(head, reach))
        for reach, head in lanes
        if head.waited_ms is not None
    ]
    best = max((rank for rank, _, _ in begun), default=0)
    return [reach for rank, steps, reach in begun if rank < best <= rank + steps]


def _just_before(head: LaneHead, reach: Reach) -> Reach:
    after = reach.after if head.ready is None else head.ready - 1
    due = reach.due if head.due is None else head.due - BEFORE_US
    return Reach(reach.lane, after, due)


def _rotate(one: Overtaking, now: Sequence[Reach]) -> Overtaking:
    """Replace the reaches by `now`. Known lanes keep their turn; new lanes come last."""
    turns = {reach.lane: turn for turn, reach in enumerate(one.reaches)}
    one.reaches = deque(sorted(now, key=lambda reach: turns.get(reach.lane, len(turns))))
    return one


def sort_keys(places: Sequence[tuple[int, bool, int, int, Seq]]) -> dict[Seq, tuple[int, int, int]]:
    """Sort keys by seq, from (lane, due, place, time of enqueueing in µs, seq). Lanes keep their order; within a lane
    the earlier job comes first. Ready jobs keep the order of their places."""
    keys: dict[Seq, tuple[int, int, int]] = {}
    latest: dict[int, int] = {}
    for lane, due, place, at, seq in sorted(places):
        if not due:
            latest[lane] = max(at, latest.get(lane, 0))
        keys[seq] = (lane, place, 0) if due else (lane, latest[lane], place)
    return keys


async def limit_due(db: Connection, topic: Topic, reaches: Sequence[Reach], most: int) -> list[Reach]:
    """Limit the due jobs of each reach to those among the next `most` jobs of all, for a claim that takes due jobs and
    ready jobs by time. Takes no locks: a change before the claim is not seen."""
    if all(reach.due is None for reach in reaches):
        return list(reaches)
    rows = await db.fetch(
        _TURNS,
        topic.name,
        most,
        [reach.lane.tenant for reach in reaches],
        [reach.lane.priority for reach in reaches],
        [reach.after for reach in reaches],
        [reach.due for reach in reaches],
    )
    if sum(row["next"] for row in rows) < most:
        return list(reaches)  # all jobs are next
    limits = dict.fromkeys(range(len(reaches)), 0)
    limits |= {row["ord"] - 1: row["due"] if row["more"] else None for row in rows}
    return [replace(reach, most_due=limits[i]) for i, reach in enumerate(reaches)]
