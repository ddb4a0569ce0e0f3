"""Taking jobs out that have had their last delivery, or outlived their time. docs/semantics.md, sections 2 and 10."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Final

import asyncpg

from app.errors import TopicNotFound
from app.queue import exits
from app.queue.exits import Spent
from app.topics import store
from app.topics.config import Config, OnExhausted, Policy, TopicType

if TYPE_CHECKING:
    from app.db.pool import Pools
    from app.engine.lanes import Lanes
    from app.engine.waiters import Waiters
    from app.topics.cache import Policies

EXPIRE_BATCH: Final = 1_000


class Exits:
    """Knows where a topic's spent jobs go."""

    def __init__(self, pools: Pools, policies: Policies, lanes: Lanes, waiters: Waiters) -> None:
        self._pools = pools
        self._policies = policies
        self._lanes = lanes
        self._waiters = waiters

    async def retire(self, policy: Policy, spent: Sequence[Spent]) -> set[int]:
        """Take out jobs that have no delivery left: the places in `spent` (ascending by seq) that went.

        To the dead-letter topic, which is created when it is absent; where it is a log, or none is named, they stay
        as failed.
        """
        pool = self._pools.verbs(durable=policy.config.durable)
        target = await self._dead_letter(policy)
        if target is None:
            return await exits.fail(pool, policy.topic, policy.budget, spent)
        try:
            done = await exits.bury(pool, policy.topic, policy.budget, spent, target.topic)
        except asyncpg.InternalServerError:
            self._policies.forget(target.topic.name)  # deleted through another process: the next try makes it anew
            raise
        self._lanes.forget(target.topic.id)
        self._waiters.added(target.topic.id, len(done))
        return done

    async def expire(self, policy: Policy) -> int:
        """Mark a batch of jobs whose time to live has passed: how many."""
        pool = self._pools.verbs(durable=policy.config.durable)
        return await exits.expire(pool, policy.topic.name, EXPIRE_BATCH)

    async def _dead_letter(self, policy: Policy) -> Policy | None:
        if policy.config.on_exhausted is not OnExhausted.DEAD_LETTER or policy.config.dead_letter is None:
            return None
        name = policy.config.dead_letter
        while True:
            try:
                target = await self._policies.get(name)
            except TopicNotFound:
                config = Config(type=TopicType.QUEUE, durability=policy.config.durability)
                await store.put(self._pools.rest, name, config)
                self._policies.changed(name)
                continue
            return target if target.config.type is TopicType.QUEUE else None
