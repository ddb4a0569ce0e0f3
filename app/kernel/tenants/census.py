"""Counts of tenants' jobs, read at most once a second. docs/semantics.md, section 5."""

from __future__ import annotations

from collections.abc import Awaitable
from typing import TYPE_CHECKING, Final

from app.base.fresh import Fresh
from app.kernel.engine import Core
from app.kernel.tenants import tenants
from app.kernel.tenants.tenants import Stats
from app.kernel.topics.policy import Policy

if TYPE_CHECKING:
    from app.kernel.engine import Engine

FRESH_SECONDS: Final = 1.0
MOST_KEPT: Final = 100


class Census(Core):
    """Counts tenants' jobs, and caches each answer for FRESH_SECONDS."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._fresh: Fresh[tuple[int, int, str, int, str | None], list[Stats]] = Fresh(FRESH_SECONDS, most=MOST_KEPT)

    async def read(self, policy: Policy, *, begin: str = "", limit: int = 1, only: str | None = None) -> list[Stats]:
        """The counts of up to `limit` tenants by name, from `begin` on, or of `only` one."""

        def count() -> Awaitable[list[Stats]]:
            return tenants.stats(
                self._engine.pools.rest,
                policy.topic,
                policy.budget,
                policy.config.dead_letter,
                self._engine.marks.lows(policy.topic.id).lanes,
                begin=begin,
                limit=limit,
                only=only,
            )

        return await self._fresh.get((policy.topic.id, policy.version, begin, limit, only), count)
