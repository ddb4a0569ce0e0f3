"""Background work: deletes old ended jobs, and continues operations of dead processes."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Final

from app.base.pace import Pace
from app.features.inbox import inbox
from app.features.jobs import operations, requeues
from app.features.jobs.redrives import Redrives
from app.kernel.settle import exit_rows as exits
from app.kernel.settle.exits import BATCH
from app.kernel.topics import store

if TYPE_CHECKING:
    from app.base.db.pool import Pools
    from app.kernel.engine import Engine

REJECTED_KEPT: Final = timedelta(days=14)
WRITES_KEPT: Final = timedelta(days=366)
OPERATIONS_KEPT: Final = timedelta(days=14)
DELETED_AT_ONCE: Final = 500  # jobs in one transaction; claims may have to wait for it
PAGE: Final = 500


async def delete_ended(pools: Pools, engine: Engine, pace: Pace | None = None) -> int:
    """Delete ended jobs after their topic's dead_ttl_ms, and old rows of the inbox. Returns how many.

    Ended jobs are failed and expired jobs and dead letters. The inbox's old rows are rejected rows, staged rows of
    unfinished writes, and notes of writes.
    """
    pace = pace or Pace()
    await pace.drain(partial(inbox.forget, pools.rest, REJECTED_KEPT, BATCH), BATCH)
    await pace.drain(partial(inbox.drop_staged, pools.rest, BATCH), BATCH)
    await pace.drain(partial(inbox.forget_writes, pools.rest, WRITES_KEPT, BATCH), BATCH)
    async for queues in store.queues(pools.rest, PAGE, defaults=engine.policies.defaults):
        for policy in queues:
            keep = timedelta(milliseconds=policy.config.dead_ttl_ms)
            for sweep in (exits.sweep_finished, requeues.sweep) if keep else ():
                move = partial(sweep, pools.rest, policy.topic.name, keep, DELETED_AT_ONCE)
                await pace.drain(move, DELETED_AT_ONCE)
    return pace.moved


async def continue_operations(pools: Pools, engine: Engine, pace: Pace | None = None) -> int:
    """Continue operations whose process has died, and delete old ended ones. Returns how many."""
    pace = pace or Pace()
    await pace.batch(engine.core(Redrives).adopt)
    await pace.drain(partial(operations.sweep, pools.rest, OPERATIONS_KEPT, BATCH), BATCH)
    return pace.moved
