"""Claims for some tags: what is remembered for them of a topic's lanes and tenants. docs/semantics.md, section 4.

A claim for some tags leaves the others' jobs where they are, so it says nothing about what claims of all jobs may skip,
nor about whose turn it is there. Each set of tags has marks and turns of its own, for as long as it is in use.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final

from msgspec.structs import replace

from app.kernel.claim.cursors import Cursors
from app.kernel.claim.fairness import Fairness
from app.kernel.claim.looks import Looks
from app.kernel.claim.passes import Passes

if TYPE_CHECKING:
    from app.kernel.settle.exits import Exits
    from app.kernel.shared import Shared

MOST_SETS: Final = 100  # of tags; one more forgets the one that was used least lately


class Tagged:
    """Passes by the tags that they are for."""

    def __init__(self, shared: Shared, exits: Exits) -> None:
        self._shared = shared
        self._exits = exits
        self._sets: OrderedDict[frozenset[str], tuple[Passes, Looks]] = OrderedDict()

    def passes(self, tags: frozenset[str]) -> Passes:
        """Those for jobs with one of these tags."""
        known = self._sets.get(tags)
        if known is None:
            known = self._sets[tags] = self._make(tags)
            while len(self._sets) > MOST_SETS:
                self._forget(next(iter(self._sets)))
        self._sets.move_to_end(tags)
        return known[0]

    async def drain(self) -> None:
        """Wait for the looks that are under way."""
        for _, looks in self._sets.values():
            await looks.drain()

    def _make(self, tags: frozenset[str]) -> tuple[Passes, Looks]:
        cursors, fairness = Cursors(), Fairness()
        looks = Looks(self._shared.pools, cursors, fairness)
        self._shared.cursors.followers[tags] = cursors
        self._shared.fairness.followers[tags] = fairness
        own = replace(self._shared, cursors=cursors, fairness=fairness, looks=looks)
        return Passes(own, self._exits, sorted(tags)), looks

    def _forget(self, tags: frozenset[str]) -> None:
        del self._sets[tags], self._shared.cursors.followers[tags], self._shared.fairness.followers[tags]
