"""Raises the low marks: below them no job can become claimable any more. docs/adr/0012 has the argument.

Every TICK_SECONDS, for the topics that this process moves jobs of: see how far their sequences were drawn and what
time it is; then, in a later statement, which transactions may still commit jobs. Once all of those have ended, every
job at a position or time seen then is visible: the first one that is still there is the new mark. Tallies with ids
drawn by then are visible too, and folded into one.
"""

from __future__ import annotations

import logging
import time
from collections import deque
from typing import TYPE_CHECKING, Final

import asyncpg
import msgspec

from app.base.loops import REST, Loop
from app.base.outages import TOO_SLOW, UNREACHABLE
from app.kernel.claim.cursors import CLOCK_US, Cursor, Cursors
from app.kernel.counts import inspector
from app.kernel.counts.inspector import Draw

if TYPE_CHECKING:
    from app.base.db.pool import Pools
    from app.kernel.model import Topic

TICK_SECONDS: Final = 0.2
IDLE_SECONDS: Final = 2.0  # a topic that nobody has used for so long is left alone
LONG_SECONDS: Final = 0.6  # a transaction that lasted so long may have hidden jobs from claims
MOST_PENDING: Final = 64
MOST_RAISED: Final = 1_000  # lanes at a tick; where there are more, they take turns

log = logging.getLogger(__name__)


class _Sight(msgspec.Struct):
    """What was seen at one tick, and who has to end before it counts."""

    draws: dict[int, Draw]
    epochs: dict[int, int]  # of the topics' cursors
    writers: set[str]


class Marks:
    """The ticker. Runs as long as jobs are moved."""

    def __init__(self, pools: Pools, cursors: Cursors) -> None:
        self._pools = pools
        self._cursors = cursors
        self._pending: deque[_Sight] = deque()
        self._first_seen: dict[str, float] = {}
        self._ticker = Loop("raise marks", self._tick_used, TICK_SECONDS)
        self._next = 0  # lane, where they take turns

    def moved(self, topic: Topic) -> None:
        """This process has moved jobs of a topic: see to it that the ticker runs."""
        self._cursors.of(topic).used = time.monotonic()
        self._ticker.start()

    async def close(self) -> None:
        """Stop it."""
        await self._ticker.stop()

    async def _tick_used(self) -> float | None:
        used = self._cursors.used_since(time.monotonic() - IDLE_SECONDS)
        if not used:
            return REST
        try:
            await self.tick(used)
        except UNREACHABLE as error:
            if not isinstance(error, TOO_SLOW):
                self._cursors.reset()
            raise
        return None

    async def tick(self, used: list[Cursor]) -> None:
        """One round for these topics."""
        db = self._pools.hot
        draws = await self._draws(used)
        writers = await inspector.writers(db, [cursor.topic for cursor in used])
        for cursor in used:
            draw = draws.get(cursor.topic.id)
            if draw is not None:
                if draw.drawn < cursor.drawn:
                    cursor.reset()  # an older state: a backup was restored, or a standby took over
                cursor.saw_clock(draw.at)
                cursor.drawn = draw.drawn
        self._hurry(used, writers)
        if len(self._pending) >= MOST_PENDING:
            del self._pending[1]  # the oldest is what a long transaction holds up; between it and now any will do
        epochs = {cursor.topic.id: cursor.epoch for cursor in used}
        self._pending.append(_Sight(draws, epochs, set(writers)))
        proven: dict[int, Draw] = {}
        for sight in self._pending:
            sight.writers &= writers
            if not sight.writers:
                proven.update((i, draw) for i, draw in sight.draws.items() if sight.epochs[i] == epochs.get(i))
        self._pending = deque(sight for sight in self._pending if sight.writers)
        for cursor in used:
            if cursor.topic.id in proven and cursor.epoch == epochs[cursor.topic.id]:
                draw = proven[cursor.topic.id]
                # A little behind, as the marks.
                cursor.proven = max(cursor.proven[0], draw.drawn), max(cursor.proven[1], draw.at - CLOCK_US)
        await self._fold(used, draws, proven, epochs)
        await self._raise([cursor for cursor in used if cursor.topic.id in proven], proven, epochs)

    async def _draws(self, used: list[Cursor]) -> dict[int, Draw]:
        try:
            return await inspector.draws(self._pools.hot, [cursor.topic for cursor in used])
        except asyncpg.InternalServerError:
            # What a missing sequence raises: a topic was deleted through another process. Find out which.
            draws: dict[int, Draw] = {}
            for cursor in used:
                try:
                    draws |= await inspector.draws(self._pools.hot, [cursor.topic])
                except asyncpg.InternalServerError:
                    self._cursors.drop(cursor.topic.id)
            return draws

    def _hurry(self, used: list[Cursor], writers: set[str]) -> None:
        now = time.monotonic()
        if any(now - since > LONG_SECONDS for writer, since in self._first_seen.items() if writer not in writers):
            for cursor in used:
                cursor.hurry()
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
            mark = cursor.marks.get(reach.lane)
            if mark is None or cursor.epoch != epochs[cursor.topic.id]:
                continue  # reset meanwhile
            seen = proven[cursor.topic.id]
            low = seen.drawn if head.ready is None else min(seen.drawn, head.ready - 1)
            due_low = seen.at if head.due is None else min(seen.at, head.due)
            # A little behind, so that a clock that is set back a little hides nothing.
            mark.low, mark.due_low = max(mark.low, low), max(mark.due_low, due_low - CLOCK_US)
            mark.after, mark.due = max(mark.after, mark.low), max(mark.due, mark.due_low)

    async def _fold(
        self, used: list[Cursor], draws: dict[int, Draw], proven: dict[int, Draw], epochs: dict[int, int]
    ) -> None:
        """Fold the tallies of these topics. Where nobody may still add one below, none is left there afterwards."""
        upto = max((draw.tally for draw in draws.values()), default=0)
        await inspector.fold(self._pools.hot_async, [(cursor.topic, cursor.tally) for cursor in used], upto)
        for cursor in used:
            seen = proven.get(cursor.topic.id)
            if seen is not None and cursor.epoch == epochs[cursor.topic.id]:
                cursor.tally = max(cursor.tally, seen.tally)
