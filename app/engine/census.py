"""What tenants have, counted at most once a second. docs/semantics.md, section 5."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

from app.queue import tenants
from app.queue.tenants import Stats
from app.topics.config import Policy

if TYPE_CHECKING:
    from app.engine.shared import Shared

FRESH_SECONDS: Final = 1.0
MOST_KEPT: Final = 100


class Census:
    """Counts tenants' jobs, and keeps each answer for FRESH_SECONDS."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared
        self._kept: dict[tuple[int, int, str, int, str | None], tuple[list[Stats], float]] = {}

    async def read(self, policy: Policy, *, begin: str = "", limit: int = 1, only: str | None = None) -> list[Stats]:
        """Up to `limit` tenants by name, from `begin` on; or `only` one."""
        key = (policy.topic.id, policy.version, begin, limit, only)
        kept, now = self._kept.get(key), time.monotonic()
        if kept is not None and now < kept[1]:
            return kept[0]
        found = await tenants.stats(
            self._shared.pools.rest,
            policy.topic,
            policy.budget,
            policy.config.dead_letter,
            self._shared.cursors.lows(policy.topic.id).lanes,
            begin=begin,
            limit=limit,
            only=only,
        )
        if len(self._kept) >= MOST_KEPT:
            self._kept.clear()
        self._kept[key] = (found, now + FRESH_SECONDS)
        return found
