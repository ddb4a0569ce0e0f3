"""An operator takes leases back. docs/semantics.md, section 3."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

from app.kernel.claim import consumer, ordering
from app.kernel.claim.consumer import Return
from app.kernel.counts import holders
from app.kernel.engine import Core
from app.kernel.model import Held

if TYPE_CHECKING:
    from app.kernel.engine import Engine
    from app.kernel.topics.policy import Policy

BATCH: Final = 1_000
TAKEN_BACK: Final = "An operator took the lease back."


class Releases(Core):
    """Ends leases as their holders' nacks would: each is named by its id, so nobody else's is ended."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._settlements = engine.settlements

    async def release(
        self, policy: Policy, held: Sequence[Held], *, refund: bool, until_ms: Sequence[int] = ()
    ) -> tuple[set[int], int]:
        """Make jobs claimable at once: the places in `held` whose lease was good, and how many of those jobs ended
        instead, with no delivery left (unless `refund` gives it back), or cancelled.

        `until_ms`, one each: a lease with another deadline by now is left."""
        if until_ms:
            found = await consumer.leases(self._engine.pools.rest, policy.topic, held)
            same = [i for i, lease in found.items() if lease.until_ms == until_ms[i]]
            named = [Held(held[i].seq, found[i].lease, held[i].node) for i in same]
            done, ended = await self.release(policy, named, refund=refund)
            return {same[i] for i in done}, ended
        how = Return(delay_ms=0, error=TAKEN_BACK, refunds=None if refund else 0)
        out: set[int] = set()
        done = await self._settlements.nack(policy, held, [how] * len(held), ended=out)
        return done, len(out)

    async def release_group(
        self, policy: Policy, tenant: str, group: str, node: str | None, *, refund: bool
    ) -> tuple[int, int]:
        """Take back the lease of a group's job, if `node` holds it (None: any worker): how many leases, 0 or 1, and
        how many jobs ended."""
        held = await holders.lease_of_group(self._engine.pools.rest, policy.topic, tenant, group)
        if held is None or node not in {None, held.node}:
            return 0, 0
        done, ended = await self.release(policy, [held], refund=refund)
        return len(done), ended

    async def release_node(self, policy: Policy, node: str, *, refund: bool) -> tuple[int, int]:
        """Take back what a worker holds of a topic at this moment, in batches: how many leases, and how many jobs
        ended."""
        db, count, ends = self._engine.pools.rest, 0, 0
        lanes = await ordering.read_lanes(db, policy.topic)
        async for found in holders.leases_of_node(db, policy.topic, lanes, node):
            for first in range(0, len(found), BATCH):
                done, ended = await self.release(policy, found[first : first + BATCH], refund=refund)
                count, ends = count + len(done), ends + ended
        return count, ends
