"""The sweep of logs."""

from __future__ import annotations

import contextlib
from functools import partial
from typing import TYPE_CHECKING, Final

from app.base.pace import Pace
from app.kernel.logs import log as records
from app.kernel.topics import store

if TYPE_CHECKING:
    from app.base.db.pool import Pools
    from app.kernel.engine import Engine

RECORDS_AT_ONCE: Final = 5_000  # records per transaction; appends to the log wait for it
PASSES: Final = 200
PAGE: Final = 500


async def trim(pools: Pools, _engine: Engine, pace: Pace | None = None) -> int:
    """Delete records that are too old or over a lowered cap. Returns how many."""
    pace = pace or Pace()
    for _ in range(PASSES):
        overdue = await store.overdue_logs(pools.rest, PAGE)
        for policy in overdue:
            with contextlib.suppress(records.Gone):
                await pace.batch(partial(records.trim, pools.rest, policy.topic, policy.log_limits, RECORDS_AT_ONCE))
        if not overdue:
            break
    return pace.moved
