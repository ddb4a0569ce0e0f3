"""How long a storm lasts: its seconds, and on a slow machine until everything that it is about has happened."""

from __future__ import annotations

import asyncio
from typing import Final

from app.base.db.pool import Pools
from app.kernel.topics.policy import Policy

LONGEST_SECONDS: Final = 60.0


class Storm:
    """Blows until `last` returns: loops ask `blows` before each turn."""

    def __init__(self) -> None:
        self.blows = True

    async def last(self, pools: Pools, queue: Policy, seconds: float, wanted: set[str]) -> None:
        """End it after some seconds, once the ledger tells all that is wanted. TimeoutError: it never does."""
        await asyncio.sleep(seconds)
        async with asyncio.timeout(LONGEST_SECONDS):
            while missing := wanted - await told(pools, queue):
                print(f"the storm goes on, for want of {sorted(missing)}")
                await asyncio.sleep(0.5)
        self.blows = False


async def told(pools: Pools, queue: Policy) -> set[str]:
    """Names of the events in the queue's ledger."""
    rows = await pools.rest.fetch(
        "SELECT DISTINCT event::text AS event FROM holdfast.lease_events WHERE topic_id = $1", queue.topic.id
    )
    return {row["event"] for row in rows}
