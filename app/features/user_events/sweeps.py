"""Background work on events for users."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from app.base.pace import Pace
from app.kernel.user_events import users as events

if TYPE_CHECKING:
    from app.base.db.pool import Pools
    from app.kernel.engine import Engine

KEPT: Final = timedelta(minutes=5)
MOST: Final = 100_000  # of all users
BATCH: Final = 1_000


async def forget(pools: Pools, _engine: Engine, pace: Pace | None = None) -> int:
    """Forget events for users that are old, or too many. Returns how many."""
    pace = pace or Pace()
    await pace.drain(partial(events.sweep_events, pools.rest, KEPT, MOST, BATCH), BATCH)
    return pace.moved
