"""What became of jobs and what queues held, told at once: as if minutes had gone by."""

from __future__ import annotations

from typing import Final

from app.base.db.pool import Pools
from app.features.stats import sweeps
from tests.engine.machines import new_machine

HELD: Final = ("depths", "depth_looks")


async def tell(pools: Pools, since: int = 5) -> None:
    """Count the minutes up to the one after this, from so many ago on."""
    machine = new_machine(pools)
    await pools.rest.execute(
        "UPDATE holdfast.topic_stats_progress SET filled_to = date_trunc('minute', now()) - interval '1 min' * $1, "
        "guessed_to = '-infinity', "
        "marked_at = now() + interval '2 min', mark = pg_snapshot_xmax(pg_current_snapshot())",
        since,
    )
    await sweeps.fill_minutes(machine.pools, machine.engine)


async def look(pools: Pools) -> None:
    """Look at what queues hold, as is done once a minute."""
    machine = new_machine(pools)
    await sweeps.write_depths(machine.pools, machine.engine)


async def looked_before(pools: Pools, by: int = 1) -> None:
    """All looks at what queues hold were so many minutes earlier."""
    for table in HELD:
        # By way of another century, as no two rows may meet.
        for way in (f"- interval '100 years {by} min'", "+ interval '100 years'"):
            await pools.rest.execute(f"UPDATE holdfast.{table} SET minute = minute {way}")
