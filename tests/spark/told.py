"""What the service's own sweep tells of minutes, without waiting for them to pass."""

from __future__ import annotations

from app.base.db.pool import Pools
from app.features.stats import sweeps as stats
from tests.engine.machines import new_machine


async def tell(pools: Pools, since: str = "5 min") -> None:
    """Everything up to now is told: the minutes from so long ago on, as if two had gone by meanwhile."""
    await pools.rest.execute(
        "UPDATE holdfast.topic_stats_progress SET filled_to = date_trunc('minute', now()) - $1::text::interval, "
        "guessed_to = '-infinity', marked_at = now() + interval '2 min', "
        "mark = pg_snapshot_xmax(pg_current_snapshot())",
        since,
    )
    machine = new_machine(pools)
    await stats.fill_minutes(machine.pools, machine.engine)
