"""The policies of topics in a process's memory, so that a verb need not read a configuration from PostgreSQL first.
Behind the memory are copies in Redis, if there is one, and then PostgreSQL. docs/adr/0021."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final, NamedTuple, Protocol, TypeVar

from app.base.db import sql
from app.base.fresh import Fresh
from app.base.metrics import Numbers, catalogue
from app.base.signals import Signal
from app.errors import NotAQueue, TopicNotFound
from app.kernel.audit import trail
from app.kernel.audit.trail import Actor
from app.kernel.topics import store
from app.kernel.topics.policy import DEFAULTS, Defaults, Policy, of_messages
from app.kernel.topics.settings import TopicType

if TYPE_CHECKING:
    from app.base.db.pool import Pool
    from app.kernel.model import Topic

T = TypeVar("T")

_SQL: Final = sql.load_all(__package__)
_NAMES_OF = _SQL["names_of"]

TTL_SECONDS: Final = 30.0
MOST: Final = 10_000
BEFORE_AUTH_AT_ONCE: Final = 2


class CachedPolicy(NamedTuple):
    """The answer of the second tier: a policy with its end by time.monotonic(), or a lease to store one, or neither."""

    policy: Policy | None = None
    until: float = 0.0
    lease: str | None = None


NOTHING: Final = CachedPolicy()


class SecondTier(Protocol):
    """Policies that processes share (tier.py). Its methods neither wait for long nor raise."""

    async def read(self, name: str) -> CachedPolicy: ...
    def store(self, name: str, lease: str, policy: Policy) -> None: ...
    def doubt(self, name: str) -> None: ...


class Policies:
    """Policies by name. A cached policy is at most TTL_SECONDS old, in either tier, from before its row was read.
    Misses are not cached, so a 404 always comes from PostgreSQL.

    A load is stored only if the topic was not changed while it ran, so an old row never replaces a newer one. After a
    change, the next load reads PostgreSQL and skips the second tier.
    """

    def __init__(
        self,
        pool: Pool,
        defaults: Defaults = DEFAULTS,
        numbers: Numbers | None = None,
        second: SecondTier | None = None,
    ) -> None:
        counted = numbers or Numbers()
        self._hits, self._misses, self._loaded, self._absent = (
            counted.counter(catalogue.CONFIG_READS, tier, outcome)
            for tier in ("process", "postgres")
            for outcome in ("hit", "miss")
        )
        self._pool = pool
        self._second = second
        self.defaults = defaults  # for settings that a topic does not have
        self.topic_changed: Signal[str] = Signal()  # by this process
        self._fresh: Fresh[str, CachedPolicy] = Fresh(TTL_SECONDS, most=MOST, until=lambda found: found.until)
        self._before_auth = asyncio.Semaphore(BEFORE_AUTH_AT_ONCE)
        self._watched: dict[str, set[asyncio.Future[None]]] = {}

    async def get(self, name: str) -> Policy:
        """The topic's policy. Raises TopicNotFound, and asyncpg's errors."""
        known = self._fresh.peek(name)
        if known is not None and known.policy is not None:
            self._hits.add()
            return known.policy
        self._misses.add()
        policy = (await self._fresh.get(name, partial(self._load, name))).policy
        if policy is None:
            raise TopicNotFound(name)
        return policy

    async def get_before_auth(self, name: str) -> Policy | None:
        """The topic's policy for a caller whose rights are not known yet; None if there is no such topic. At most
        BEFORE_AUTH_AT_ONCE of these calls read PostgreSQL at a time, so that guessed names don't keep others from
        it."""
        if self._fresh.peek(name) is not None:
            return await self.get(name)
        async with self._before_auth:
            try:
                return await self.get(name)
            except TopicNotFound:
                return None

    async def with_current(self, name: str, verb: Callable[[Policy], Awaitable[T]]) -> T:
        """Run a verb with the topic's policy. If the topic was deleted, look it up in PostgreSQL and run the verb
        again. Raises TopicNotFound, and the verb's errors."""
        return await self.run_again_if(TopicNotFound, await self.get(name), verb, self.get)

    async def run_again_if(
        self,
        gone: type[Exception],
        policy: Policy,
        verb: Callable[[Policy], Awaitable[T]],
        find: Callable[[str], Awaitable[Policy]],
    ) -> T:
        """Run a verb. If it raises `gone`, another process may have deleted the topic and created it again: run the
        verb again with the policy that `find` returns for the name, unless it is the same topic. Raises the errors of
        both."""
        try:
            return await verb(policy)
        except gone:
            self.forget(policy.topic.name)
            fresh = await find(policy.topic.name)
            if fresh.topic.id == policy.topic.id:
                raise
        return await self.run_again_if(gone, fresh, verb, find)

    async def queue(self, name: str) -> Policy:
        """The policy of a topic that must be a queue. Raises NotAQueue as well."""
        policy = await self.get(name)
        if policy.config.type is not TopicType.QUEUE:
            # Another process may have created it again as a queue: read PostgreSQL before refusing.
            self.forget(name)
            policy = await self.get(name)
            if policy.config.type is not TopicType.QUEUE:
                raise NotAQueue(name)
        return policy

    async def queue_or_new(self, name: str, by: Actor = trail.SERVICE) -> Policy:
        """The policy of a queue. If there is no such topic, it is created as the messages dialect does; of several
        concurrent calls one creates it. Raises NotAQueue, and InvalidRequest for a name that a queue can't have."""
        try:
            return await self.queue(name)
        except TopicNotFound:
            chosen = of_messages(name)
        if await store.create(self._pool, name, chosen, by):
            self.announce(name)
        return await self.queue_or_new(name, by)

    def announce(self, name: str) -> None:
        """Forget a topic that this process has changed, and tell other processes to."""
        self.forget(name)
        self.topic_changed.emit(name)

    def forget(self, name: str) -> None:
        """Forget a changed topic. The next load reads PostgreSQL. The result of a load under way is dropped."""
        self._fresh.forget(name)
        for changed in self._watched.get(name, ()):
            if not changed.done():
                changed.set_result(None)
        if self._second is not None:
            self._second.doubt(name)

    @contextmanager
    def watch(self, name: str) -> Iterator[asyncio.Future[None]]:
        """A future that is done when the topic is forgotten because a process has changed it."""
        changed: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        watching = self._watched.setdefault(name, set())
        watching.add(changed)
        try:
            yield changed
        finally:
            watching.discard(changed)
            if not watching and self._watched.get(name) is watching:
                del self._watched[name]

    def forget_all(self) -> None:
        """Forget all topics, because changes may have been missed."""
        self._fresh.forget_all()

    async def _load(self, name: str) -> CachedPolicy:
        second = self._second
        found = NOTHING if second is None else await second.read(name)
        if found.policy is not None:
            return found
        until = time.monotonic() + TTL_SECONDS
        policy = await store.get(self._pool, name, self.defaults)
        (self._absent if policy is None else self._loaded).add()
        if policy is None:
            return NOTHING
        if second is not None and found.lease is not None and self._fresh.may_keep(name):
            second.store(name, found.lease, policy)
        return CachedPolicy(policy, until)


class Names:
    """Names of topics by id. Ids of messages contain these ids. An id never gets another name, so a cached name is
    never wrong; only the policy says whether the topic still exists. Unknown ids are not cached."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._known: dict[int, str] = {}

    async def of(self, topic_id: int) -> str | None:
        """The topic's name; None if there is no such topic."""
        return (await self.of_all([topic_id])).get(topic_id)

    async def of_all(self, topic_ids: Iterable[int]) -> dict[int, str]:
        """The names of the topics that exist, by id. Reads all unknown ones with one statement."""
        names = {topic_id: self._known.get(topic_id) for topic_id in topic_ids}
        unknown = [topic_id for topic_id, name in names.items() if name is None]
        if unknown:
            for row in await self._pool.fetch(_NAMES_OF, unknown):
                names[row["id"]] = row["name"]
                self._keep(row["id"], row["name"])
        return {topic_id: name for topic_id, name in names.items() if name is not None}

    def learn(self, topic: Topic) -> None:
        """Remember the name of a topic that will be needed soon."""
        if topic.id not in self._known:
            self._keep(topic.id, topic.name)

    def _keep(self, topic_id: int, name: str) -> None:
        if len(self._known) >= MOST:
            self._known.clear()
        self._known[topic_id] = name
