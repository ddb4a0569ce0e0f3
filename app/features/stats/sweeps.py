"""Sweeps that count each topic's jobs per minute from the ledger (ADR 0038), and sample the depths of queues.

A minute without a sample is a gap in the depth chart.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from app.base.db import sql
from app.base.pace import Pace
from app.kernel.counts.levels import Levels
from app.kernel.topics import store

if TYPE_CHECKING:
    from app.base.db.pool import Pools
    from app.kernel.engine import Engine
    from app.kernel.model import Connection
    from app.kernel.topics.policy import Policy

MINUTE: Final = timedelta(minutes=1)
DAY: Final = timedelta(days=1)  # the longest step, over time without events
QUICK_SECONDS: Final = 0.05  # after a faster step, the next one is twice as long
GUESS_AFTER: Final = timedelta(minutes=5)  # a minute that a transaction keeps open for longer is counted early
KEPT: Final = timedelta(days=31)
BATCH: Final = 1_000
PAGE: Final = 500  # topics at a time

_SQL: Final = sql.load_all(__package__)
_PLACE = _SQL["stats_place"]
_FILL = _SQL["stats_fill"]
_MARK = _SQL["stats_mark"]
_SWEEP = _SQL["stats_sweep"]
_DEPTHS_SWEEP = _SQL["depths_sweep"]
_LOOKS_SWEEP = _SQL["looks_sweep"]
_UNSTAGE = _SQL["stats_unstage"]
_WRITE_DEPTHS = _SQL["depths_write"]
_LOOKED = _SQL["depths_looked"]


class _Walk:
    """Walks through the minutes: one at a time if they have events, else in longer steps."""

    def __init__(self, pools: Pools) -> None:
        self.at_end = False
        self._pools = pools
        self._span = MINUTE

    async def step(self) -> int:
        """Count the next minutes. Returns how many rows were written."""
        async with self._pools.rest.acquire() as db, db.transaction():
            place = await db.fetchrow(_PLACE, GUESS_AFTER)
            if place is None:
                self.at_end = True
                return 0
            closed: datetime | None = place["closed_to"]
            if closed is not None:
                since, end = place["filled_to"], closed
            else:
                since, end = place["guessed_to"], place["guess_to"]
            before = min(end, since + self._span)
            self.at_end = before >= end
            rows = await self._fill(db, since, before) if since < before else 0
            filled = before if closed is not None else place["filled_to"]
            await db.execute(_MARK, filled, max(since, before), closed is not None and self.at_end)
        return rows

    async def _fill(self, db: Connection, since: datetime, before: datetime) -> int:
        began = time.monotonic()
        rows: int = await db.fetchval(_FILL, since, before)
        self._span = min(self._span * 2, DAY) if time.monotonic() - began < QUICK_SECONDS else MINUTE
        return rows


async def fill_minutes(pools: Pools, _engine: Engine, pace: Pace | None = None) -> int:
    """Count the minutes that have closed since an earlier run set its mark. Returns how many rows were written.

    A minute closes when all transactions that could have written to it have ended. A long transaction does not hold up
    the counting: minutes are counted early, and again when it has ended.
    """
    pace = pace or Pace()
    walk = _Walk(pools)
    while not walk.at_end:
        await pace.batch(walk.step)
    return pace.moved


async def write_depths(pools: Pools, engine: Engine, pace: Pace | None = None) -> int:
    """Store the depths of queues that have changed. Returns how many queues."""
    pace = pace or Pace()
    async for queues in store.queues(pools.rest, PAGE, defaults=engine.policies.defaults):
        await pace.batch(partial(_write_some, pools, engine, queues))
    await pools.rest.execute(_LOOKED)
    return pace.moved


async def _write_some(pools: Pools, engine: Engine, queues: Sequence[Policy]) -> int:
    began = time.monotonic()
    found = await engine.core(Levels).depths(queues)
    depths = [found[queue.topic.name] for queue in queues]
    changed: int = await pools.rest.fetchval(
        _WRITE_DEPTHS,
        [queue.topic.id for queue in queues],
        # Counts may be negative until `tallies` corrects them, if the jobs table was written to without the service.
        *(
            [max(getattr(depth, part), 0) for depth in depths]
            for part in ("ready", "in_flight", "scheduled", "blocked")
        ),
        timedelta(seconds=time.monotonic() - began),
    )
    return changed


async def forget(pools: Pools, _engine: Engine, pace: Pace | None = None) -> int:
    """Delete minutes and depths older than KEPT, and rows staged by failed runs of Spark. Returns how many rows."""
    pace = pace or Pace()
    await pace.drain(partial(pools.rest.fetchval, _UNSTAGE, DAY, BATCH), BATCH)
    for old in (_SWEEP, _DEPTHS_SWEEP, _LOOKS_SWEEP):
        await pace.drain(partial(pools.rest.fetchval, old, KEPT, BATCH), BATCH)
    return pace.moved
