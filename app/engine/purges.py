"""Purges: jobs deleted by their status, in batches, whoever holds them."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING, Final

from app.engine.group import tried_again
from app.queue import inspector, shown
from app.queue.shown import Status
from app.topics.config import Policy

if TYPE_CHECKING:
    from app.engine.shared import Shared

AT_ONCE: Final = 5_000


class Purges:
    """Knows how much is deleted at a time."""

    def __init__(self, shared: Shared) -> None:
        self._shared = shared

    async def purge(self, policy: Policy, statuses: Sequence[Status]) -> int:
        """Delete the jobs that have these statuses, as of now, for good: how many. A lease on one is lost.

        In batches: other verbs come in between, and a purge that breaks off has done a part.
        """
        topic, db = policy.topic, self._shared.verbs(policy)
        drawn = (await inspector.draws(db, [topic])).get(topic.id)
        if drawn is None:
            return 0
        count = 0
        after: int | None = 0
        # It locks by seq, and those who enqueue jobs with keys lock by key.
        while after is not None and after < drawn.drawn:
            done = await tried_again(
                partial(shown.purge, db, topic, statuses, after=after, upto=drawn.drawn, limit=AT_ONCE)
            )
            self._shared.moved(topic, ready=-done.ready, in_flight=-done.in_flight)
            count, after = count + done.count, done.last_seq
        await self._shared.groups.left(policy)
        return count
