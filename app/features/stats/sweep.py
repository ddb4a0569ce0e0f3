"""What became of each topic's jobs, minute by minute, from the ledger; ADR 0038."""

from __future__ import annotations

import time
from datetime import datetime, timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from app.base.db import sql
from app.base.pace import Pace

if TYPE_CHECKING:
    from app.base.db.pool import Pools
    from app.kernel.engine import Engine
    from app.kernel.model import Connection

MINUTE: Final = timedelta(minutes=1)
DAY: Final = timedelta(days=1)  # the longest step, over time in which nothing happened
QUICK_SECONDS: Final = 0.05  # a step that took no longer is followed by one over twice as many minutes
GUESS_AFTER: Final = timedelta(minutes=5)  # a transaction may keep a minute open for so long, until it is told as it is
KEPT: Final = timedelta(days=31)
BATCH: Final = 1_000

_SQL: Final = sql.load_all(__package__)
_PLACE = _SQL["stats_place"]
_FILL = _SQL["stats_fill"]
_MARK = _SQL["stats_mark"]
_SWEEP = _SQL["stats_sweep"]
_DEPTHS_SWEEP = _SQL["depths_sweep"]
_LOOKS_SWEEP = _SQL["looks_sweep"]
_UNSTAGE = _SQL["stats_unstage"]


class _Walk:
    """A way through the minutes: a minute at a time where something happens, in longer steps where nothing does."""

    def __init__(self, pools: Pools) -> None:
        self.at_end = False
        self._pools = pools
        self._span = MINUTE

    async def step(self) -> int:
        """Count the next minutes: how many rows that made."""
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


async def fill(pools: Pools, _engine: Engine, pace: Pace | None = None) -> int:
    """Tell the minutes that have closed since a run before set its mark: how many rows that made.

    A minute closes when every transaction has ended that could have written in it. One that stays open for long does
    not hold up the others: they are told as they are, and once more when it has ended.
    """
    pace = pace or Pace()
    walk = _Walk(pools)
    while not walk.at_end:
        await pace.batch(walk.step)
    return pace.moved


async def forget(pools: Pools, _engine: Engine, pace: Pace | None = None) -> int:
    """Forget minutes that are older than KEPT, what queues held then, and what runs of Spark that died have staged: how
    many rows."""
    pace = pace or Pace()
    await pace.drain(partial(pools.rest.fetchval, _UNSTAGE, DAY, BATCH), BATCH)
    for old in (_SWEEP, _DEPTHS_SWEEP, _LOOKS_SWEEP):
        await pace.drain(partial(pools.rest.fetchval, old, KEPT, BATCH), BATCH)
    return pace.moved
