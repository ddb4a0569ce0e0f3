"""What a process knows of its topics, so that a verb does not ask PostgreSQL for a configuration first."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, Final, TypeVar

from app.audit import trail
from app.audit.trail import Actor
from app.errors import NotAQueue, TopicNotFound
from app.topics import store
from app.topics.config import DEFAULTS, Defaults, Policy, TopicType, of_messages

if TYPE_CHECKING:
    from app.db.pool import Pool

T = TypeVar("T")

TTL_SECONDS: Final = 30.0
MOST: Final = 10_000


class Policies:
    """Policies by name. A hit is at most TTL_SECONDS old; a miss is never kept: a 404 is always PostgreSQL's word.

    A load is stored only if nobody changed the topic while it ran, so that an old row never covers a newer one.
    """

    def __init__(self, pool: Pool, defaults: Defaults = DEFAULTS) -> None:
        self._pool = pool
        self.defaults = defaults  # what topics get that were left to the service
        # Told of a topic that this process has changed: other processes' caches want to know.
        self.on_changed: Callable[[str], None] = lambda _name: None
        self._known: dict[str, tuple[Policy, float]] = {}
        self._loads: dict[str, asyncio.Task[Policy | None]] = {}

    async def get(self, name: str) -> Policy:
        """The topic's policy. Raises TopicNotFound, and asyncpg's errors."""
        known = self._known.get(name)
        if known is not None and time.monotonic() < known[1]:
            return known[0]
        load = self._loads.get(name)
        if load is None:
            load = asyncio.create_task(self._load(name))
            self._loads[name] = load
        policy = await asyncio.shield(load)
        if policy is None:
            raise TopicNotFound(name)
        return policy

    async def confirmed(self, name: str, verb: Callable[[Policy], Awaitable[T]]) -> T:
        """What a verb answers with the topic's policy; where it finds the topic gone, once more with one that was made
        anew elsewhere. Raises TopicNotFound, which is PostgreSQL's word then, and what the verb raises."""
        policy = await self.get(name)
        try:
            return await verb(policy)
        except TopicNotFound:
            self.forget(name)
            fresh = await self.get(name)
            if fresh.topic.id == policy.topic.id:
                raise
            return await verb(fresh)

    async def queue(self, name: str) -> Policy:
        """The policy of a topic that must be a queue. Raises NotAQueue as well."""
        policy = await self.get(name)
        if policy.config.type is not TopicType.QUEUE:
            # It may have been made anew elsewhere: that it is none is PostgreSQL's word, too.
            self.forget(name)
            policy = await self.get(name)
            if policy.config.type is not TopicType.QUEUE:
                raise NotAQueue(name)
        return policy

    async def queue_or_new(self, name: str, by: Actor = trail.SERVICE) -> Policy:
        """The policy of a queue, which is made as the messages dialect makes one if there is no such topic; of any
        number that come at once, one makes it. Raises NotAQueue, and InvalidRequest for a name that it can't have."""
        while True:
            try:
                return await self.queue(name)
            except TopicNotFound:
                chosen = of_messages(name)
            if await store.create(self._pool, name, chosen, by):
                self.changed(name)

    def changed(self, name: str) -> None:
        """This process has changed the topic: forget it, here and elsewhere."""
        self.forget(name)
        self.on_changed(name)

    def forget(self, name: str) -> None:
        """Ask PostgreSQL the next time: the topic was changed. A load under way does not count any more."""
        self._known.pop(name, None)
        self._loads.pop(name, None)

    def forget_all(self) -> None:
        """The same for every topic: changes may have been missed."""
        self._known.clear()
        self._loads.clear()

    async def _load(self, name: str) -> Policy | None:
        this = asyncio.current_task()
        try:
            policy = await store.get(self._pool, name, self.defaults)
        except BaseException:
            if self._loads.get(name) is this:
                del self._loads[name]
            raise
        if self._loads.get(name) is this:
            del self._loads[name]
            if policy is not None:
                if len(self._known) >= MOST:
                    self._known.clear()
                self._known[name] = (policy, time.monotonic() + TTL_SECONDS)
        return policy
