"""What became of jobs, told at once: as if two minutes had gone by."""

from __future__ import annotations

from app.db.pool import Pools
from app.reapers import stats
from tests.engine.machines import new_machine


async def tell(pools: Pools) -> None:
    """Count the minutes up to the one after this."""
    machine = new_machine(pools)
    await pools.rest.execute(
        "UPDATE holdfast.topic_stats_progress SET filled_to = date_trunc('minute', now()) - interval '5 min', "
        "guessed_to = '-infinity', marked_at = now() + interval '2 min', mark = pg_snapshot_xmax(pg_current_snapshot())"
    )
    await stats.fill(machine.pools, machine.engine)
