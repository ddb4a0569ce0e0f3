"""An operator takes leases back. docs/semantics.md, section 3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from app.queue import consumer, holders
from app.queue.consumer import Return

if TYPE_CHECKING:
    from app.engine.settlements import Settlements
    from app.engine.shared import Shared
    from app.queue.model import Held
    from app.topics.config import Policy

BATCH: Final = 1_000
TAKEN_BACK: Final = "An operator took the lease back."


class Releases:
    """Ends leases as their holders' nacks would: each is named by its id, so nobody else's is ended."""

    def __init__(self, shared: Shared, settlements: Settlements) -> None:
        self._shared = shared
        self._settlements = settlements

    async def release(self, policy: Policy, held: Sequence[Held], *, refund: bool) -> set[int]:
        """Make jobs claimable at once: the places in `held` whose lease was good. A job with no delivery left goes out,
        unless `refund` gives the delivery back; one that was cancelled ends."""
        how = Return(delay_ms=0, error=TAKEN_BACK, refunds=None if refund else 0)
        return await self._settlements.nack(policy, held, [how] * len(held))

    async def release_group(self, policy: Policy, tenant: str, group: str, node: str | None, *, refund: bool) -> int:
        """Take back the lease of a group's job, if `node` holds it (None: any worker): how many, 0 or 1."""
        held = await holders.lease_of_group(self._shared.pools.rest, policy.topic, tenant, group)
        if held is None or node not in {None, held.node}:
            return 0
        return len(await self.release(policy, [held], refund=refund))

    async def release_node(self, policy: Policy, node: str, *, refund: bool) -> int:
        """Take back what a worker holds of a topic at this moment, in batches: how many leases."""
        db, count = self._shared.pools.rest, 0
        lanes = await consumer.lanes(db, policy.topic)
        async for found in holders.leases_of_node(db, policy.topic, lanes, node):
            for first in range(0, len(found), BATCH):
                count += len(await self.release(policy, found[first : first + BATCH], refund=refund))
        return count
