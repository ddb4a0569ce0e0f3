"""The cursors of all topics, and the ticker that proves their low marks.

The ticker raises low marks (docs/adr/0012). Every TICK_SECONDS, for the topics whose jobs this process moves, it reads
how far their sequences were drawn and what time it is. A later statement reads which transactions may still commit jobs
or tallies. Once all of these have ended, every job at a position or time read then is visible, so the first remaining
job is the new mark. Tallies with ids drawn by then are visible too, and are folded into one.

A look reads all lanes of a topic with one query (docs/adr/0032). It raises the topic's floor and says which lanes have
jobs. Claims ask busy tenants anyway, and this process knows the tenants of its own jobs. A look finds the rest: jobs of
other processes, and jobs that became due, in any lane. It starts at the low marks, so it costs two index reads for each
lane. A claim of many jobs looks first if that is cheap, so that each tenant with jobs gets its share.
"""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import deque
from collections.abc import Hashable, Iterator
from typing import Final

import asyncpg
import msgspec

from app.base.db.pool import Pools
from app.base.loops import REST, Loop
from app.base.outages import TOO_SLOW, UNREACHABLE
from app.kernel.claim.cursors import Cursor
from app.kernel.claim.fairness import Fairness
from app.kernel.counts import inspector
from app.kernel.counts.inspector import Draw, Lows
from app.kernel.model import Topic
from app.kernel.tenants import tenants

TICK_SECONDS: Final = 0.2
IDLE_SECONDS: Final = 2.0  # the ticker skips topics that were not used for so long
LONG_SECONDS: Final = 0.6  # a transaction that lasted so long may have hidden jobs from claims
MOST_PENDING: Final = 64
MOST_RAISED: Final = 1_000  # lanes in one tick; if there are more, they take turns

SOON_MS: Final = 1_000  # a look also reports jobs that become due within this time
LOOK_SHARE: Final = 0.5  # most of the time that looks at one topic can take: enough for 100,000 lanes in a second
CHEAP_SHARE: Final = 0.05  # most of the time for looks before large claims: enough for 100 lanes before each
PATIENCE_SECONDS: Final = 0.1  # how long a large claim waits for a look

log = logging.getLogger(__name__)


class _Pace(msgspec.Struct, frozen=True):
    """When the next look at a topic can begin, when it would be cheap, and how long the last look took; in seconds, by
    the monotonic clock."""

    free: float = 0.0
    cheap: float = 0.0
    took: float = math.inf


class _Tick(msgspec.Struct):
    """The values read at one tick, and the transactions that have to end before they are proven."""

    draws: dict[int, Draw]
    epochs: dict[int, int]  # of the topics' cursors
    writers: set[str]


class Marks:
    """Cursors by topic id, for all claims or for claims with certain tags. `followers` are the marks of claims with
    tags, by tags: they hear of the same events."""

    def __init__(self, pools: Pools, fairness: Fairness) -> None:
        self._pools = pools
        self._fairness = fairness
        self._topics: dict[int, Cursor] = {}
        self.followers: dict[Hashable, Marks] = {}
        self._pending: deque[_Tick] = deque()
        self._first_seen: dict[str, float] = {}
        self._ticker = Loop("raise the low marks of claims", self._tick_active, TICK_SECONDS)
        self._next = 0  # the next lane to raise, if lanes take turns
        self._looks: dict[int, asyncio.Task[None]] = {}  # at most one for each topic
        self._paces: dict[int, _Pace] = {}

    def of(self, topic: Topic) -> Cursor:
        """The topic's cursor, new if there was none."""
        cursor = self._topics.get(topic.id)
        if cursor is None:
            cursor = self._topics[topic.id] = Cursor(topic)
        return cursor

    def lows(self, topic_id: int) -> Lows:
        """The low marks of a topic; none if it was not used yet."""
        cursor = self._topics.get(topic_id)
        return _NO_LOWS if cursor is None else cursor.lows()

    def last_used(self, topic_id: int) -> float:
        """When this process last moved a job of the topic, by the monotonic clock; 0: never."""
        cursor = self._topics.get(topic_id)
        return 0.0 if cursor is None else cursor.used

    def used_since(self, when: float) -> list[Cursor]:
        """The cursors of topics whose jobs this process has moved since `when`, by the monotonic clock."""
        return [cursor for cursor in self._topics.values() if cursor.used >= when]

    def note_move(self, topic: Topic) -> None:
        """This process has moved jobs of a topic. Starts the ticker."""
        self.of(topic).used = time.monotonic()
        self._ticker.start()

    def look_at_due(self, topic_id: int) -> None:
        for cursor in self._each(topic_id):
            cursor.look_at_due()

    def note_change(self, topic_id: int, began: float) -> None:
        for cursor in self._each(topic_id):
            cursor.note_change(began)

    def saw_clock(self, topic_id: int, at: int) -> None:
        cursor = self._topics.get(topic_id)
        if cursor is not None:
            cursor.saw_clock(at)

    def reset(self) -> None:
        """Forget everything: a connection was lost, and the next one may go to another database."""
        for cursor in self._topics.values():
            cursor.reset()
        for follower in self.followers.values():
            follower.reset()

    def drop(self, topic_id: int) -> None:
        """Forget a deleted topic."""
        self._topics.pop(topic_id, None)
        self._paces.pop(topic_id, None)
        for follower in self.followers.values():
            follower.drop(topic_id)

    async def stop(self) -> None:
        await self._ticker.stop()

    async def drain(self) -> None:
        """Wait for all looks under way."""
        if self._looks:
            await asyncio.wait(list(self._looks.values()))

    def _each(self, topic_id: int) -> Iterator[Cursor]:
        for marks in (self, *self.followers.values()):
            cursor = marks._topics.get(topic_id)
            if cursor is not None:
                yield cursor

    def begin_look(self, topic: Topic) -> asyncio.Task[None]:
        """Begin a look unless one is under way. Returns its task."""
        task = self._looks.get(topic.id)
        if task is None:
            task = self._looks[topic.id] = asyncio.create_task(self._look(topic))
            task.add_done_callback(lambda done: self._end_look(topic, done))
        return task

    def can_look_cheaply(self, topic: Topic) -> bool:
        """Whether a look can begin at once without exceeding CHEAP_SHARE of the time."""
        pace = self._paces.get(topic.id, _NEVER)
        return topic.id not in self._looks and time.monotonic() >= max(pace.free, pace.cheap)

    async def look(self, topic: Topic) -> None:
        """Look, or wait for the look under way. Raises asyncpg's errors."""
        await asyncio.shield(self.begin_look(topic))

    async def look_briefly(self, topic: Topic) -> None:
        """Look, but wait for at most PATIENCE_SECONDS. Errors are logged, not raised."""
        await asyncio.wait([self.begin_look(topic)], timeout=PATIENCE_SECONDS)

    async def _look(self, topic: Topic) -> None:
        before = self._paces.get(topic.id, _NEVER)
        await asyncio.sleep(max(before.free - time.monotonic(), 0))
        cursor, began = self.of(topic), time.monotonic()
        epoch, proven = cursor.epoch, cursor.proven
        try:
            found = await tenants.working(self._pools.hot, topic, cursor.floor, cursor.lows().lanes, SOON_MS)
        finally:
            took = time.monotonic() - began
            # The lesser of two, so that a delay from elsewhere does not count.
            cheap = began + min(took, before.took) / CHEAP_SHARE
            self._paces[topic.id] = _Pace(began + took / LOOK_SHARE, cheap, took)
        if cursor.epoch == epoch:
            cursor.raise_floor(proven, {lane for lane, _ in found})
        for lane in self._fairness.of(topic.id).learn_look(began, [(lane, ms / 1000) for lane, ms in found]):
            cursor.sweep(lane)

    def _end_look(self, topic: Topic, task: asyncio.Task[None]) -> None:
        del self._looks[topic.id]
        if not task.cancelled() and (error := task.exception()) is not None:
            log.warning("can't read which tenants of topic %s have jobs: %r", topic.name, error)

    async def _tick_active(self) -> float | None:
        used = self.used_since(time.monotonic() - IDLE_SECONDS)
        if not used:
            return REST
        try:
            await self.tick(used)
        except UNREACHABLE as error:
            if not isinstance(error, TOO_SLOW):
                self.reset()
            raise
        return None

    async def tick(self, used: list[Cursor]) -> None:
        """Run one tick for these topics."""
        db = self._pools.hot
        draws = await self._draws(used)
        writers = await inspector.writers(db, [cursor.topic for cursor in used])
        for cursor in used:
            draw = draws.get(cursor.topic.id)
            if draw is not None:
                if draw.drawn < cursor.drawn:
                    cursor.reset()  # the database went back: a backup was restored, or a standby took over
                cursor.saw_clock(draw.at)
                cursor.drawn = draw.drawn
        self._sweep_after_long(used, writers)
        if len(self._pending) >= MOST_PENDING:
            del self._pending[1]  # keeps the oldest, which waits for a long transaction
        epochs = {cursor.topic.id: cursor.epoch for cursor in used}
        self._pending.append(_Tick(draws, epochs, set(writers)))
        proven: dict[int, Draw] = {}
        for snapshot in self._pending:
            snapshot.writers &= writers
            if not snapshot.writers:
                proven.update((i, draw) for i, draw in snapshot.draws.items() if snapshot.epochs[i] == epochs.get(i))
        self._pending = deque(snapshot for snapshot in self._pending if snapshot.writers)
        for cursor in used:
            if cursor.topic.id in proven and cursor.epoch == epochs[cursor.topic.id]:
                cursor.raise_proven(proven[cursor.topic.id])
        await self._fold(used, draws, proven, epochs)
        await self._raise([cursor for cursor in used if cursor.topic.id in proven], proven, epochs)

    async def _draws(self, used: list[Cursor]) -> dict[int, Draw]:
        try:
            return await inspector.draws(self._pools.hot, [cursor.topic for cursor in used])
        except asyncpg.InternalServerError:
            # A sequence is missing: another process deleted its topic. Find out which one.
            draws: dict[int, Draw] = {}
            for cursor in used:
                try:
                    draws |= await inspector.draws(self._pools.hot, [cursor.topic])
                except asyncpg.InternalServerError:
                    self.drop(cursor.topic.id)
            return draws

    def _sweep_after_long(self, used: list[Cursor], writers: set[str]) -> None:
        now = time.monotonic()
        if any(now - since > LONG_SECONDS for writer, since in self._first_seen.items() if writer not in writers):
            for cursor in used:
                cursor.sweep_all()
        self._first_seen = {writer: self._first_seen.get(writer, now) for writer in writers}

    async def _raise(self, cursors: list[Cursor], proven: dict[int, Draw], epochs: dict[int, int]) -> None:
        lanes = [(cursor, reach) for cursor in cursors for reach in cursor.lows().lanes]
        if not lanes:
            return
        if len(lanes) > MOST_RAISED:
            begin = self._next % len(lanes)
            self._next = begin + MOST_RAISED
            lanes = [*lanes[begin:], *lanes[:begin]][:MOST_RAISED]
        heads = await inspector.heads(self._pools.hot, [(cursor.topic.name, reach) for cursor, reach in lanes])
        for (cursor, reach), head in zip(lanes, heads, strict=True):
            if cursor.epoch == epochs[cursor.topic.id]:
                cursor.raise_low(reach.lane, proven[cursor.topic.id], head)

    async def _fold(
        self, used: list[Cursor], draws: dict[int, Draw], proven: dict[int, Draw], epochs: dict[int, int]
    ) -> None:
        """Fold the tallies of these topics. Once no transaction can add a tally below, raise the tallies' low mark."""
        upto = max((draw.tally for draw in draws.values()), default=0)
        await inspector.fold(self._pools.hot_async, [(cursor.topic, cursor.tally) for cursor in used], upto)
        for cursor in used:
            seen = proven.get(cursor.topic.id)
            if seen is not None and cursor.epoch == epochs[cursor.topic.id]:
                cursor.tally = max(cursor.tally, seen.tally)


_NEVER: Final = _Pace()
_NO_LOWS: Final = Lows()
