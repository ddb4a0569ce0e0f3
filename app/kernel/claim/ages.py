"""Which lanes of a topic have overtaken others by their age."""

from __future__ import annotations

from collections import Counter, deque
from collections.abc import Iterable
from typing import Final

import msgspec

from app.kernel.model import Job, Reach

OVERTAKE_SHARE: Final = 4  # one in so many jobs handed out may be one that overtakes


class Overtaking(msgspec.Struct):
    """The lanes of one tenant that have overtaken others of it, each with where its jobs begin, in turn. `credit` is in
    jobs of the tenant; the first that overtakes is not kept waiting."""

    reaches: deque[Reach] = msgspec.field(default_factory=deque)
    credit: int = OVERTAKE_SHARE - 1

    def seats(self, jobs: int) -> int:
        """For how many jobs it may overtake, where the tenant is given so many."""
        return (self.credit + jobs) // OVERTAKE_SHARE

    def take(self, seats: int) -> Reach:
        """Overtake for so many jobs: where from."""
        self.credit -= seats * OVERTAKE_SHARE
        self.reaches.rotate(-1)
        return self.reaches[-1]

    def spare(self, seats: int) -> None:
        """So many of those were not there."""
        self.credit = min(self.credit + seats * OVERTAKE_SHARE, OVERTAKE_SHARE - 1)

    def given(self, jobs: int) -> None:
        """The tenant was given so many jobs, with those."""
        self.credit = min(max(self.credit + jobs, 0), OVERTAKE_SHARE - 1)


class Ages(msgspec.Struct):
    """What is known of the ages of one topic's jobs. Tenants come before priorities: a job overtakes those of its own
    tenant, and no others."""

    overtaking: dict[str, Overtaking] = msgspec.field(default_factory=dict)  # by tenant
    look_at: float = 0.0
    took: float = 0.0  # seconds, the last look

    def given(self, jobs: Iterable[Job]) -> None:
        """A claim was given these."""
        if self.overtaking:
            for tenant, count in Counter(job.tenant for job in jobs).items():
                if tenant in self.overtaking:
                    self.overtaking[tenant].given(count)
