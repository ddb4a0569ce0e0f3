"""What each queue holds, written down where it changes. A minute in which no process looked is a gap in the curve."""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from app.base.db import sql
from app.base.pace import Pace
from app.kernel.counts.levels import Levels
from app.kernel.topics import store

if TYPE_CHECKING:
    from app.base.db.pool import Pools
    from app.kernel.engine import Engine
    from app.kernel.topics.policy import Policy

PAGE: Final = 500  # topics at a time

_SQL: Final = sql.load_all(__package__)
_WRITE = _SQL["depths_write"]
_LOOKED = _SQL["depths_looked"]


async def look(pools: Pools, engine: Engine, pace: Pace | None = None) -> int:
    """Write down what queues hold, of those of which it is not what was written last: how many."""
    pace = pace or Pace()
    async for queues in store.queues(pools.rest, PAGE, defaults=engine.policies.defaults):
        await pace.batch(partial(_write, pools, engine, queues))
    await pools.rest.execute(_LOOKED)
    return pace.moved


async def _write(pools: Pools, engine: Engine, queues: Sequence[Policy]) -> int:
    began = time.monotonic()
    found = await engine.core(Levels).depths(queues)
    depths = [found[queue.topic.name] for queue in queues]
    changed: int = await pools.rest.fetchval(
        _WRITE,
        [queue.topic.id for queue in queues],
        # What somebody has put wrong past the service may be below nothing, until `tallies` sets it right.
        *(
            [max(getattr(depth, part), 0) for depth in depths]
            for part in ("ready", "in_flight", "scheduled", "blocked")
        ),
        timedelta(seconds=time.monotonic() - began),
    )
    return changed
