"""How many jobs can be handed out now: throughput limits (docs/semantics.md, section 11; docs/adr/0022) and limits on
the jobs that a tenant has in flight (section 5).

A topic with a throughput limit has a bucket. It earns `throughput_limit` tokens a second, holds at most the tokens of
one second, and starts full. A claim takes tokens for its slots before it reads jobs, and puts back the tokens that it
had no job for. No process keeps tokens in between, so unused tokens are missing for one statement at most.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from typing import Final, Protocol

import msgspec

from app.base.db import sql
from app.base.db.pool import Pools
from app.base.outages import UNREACHABLE
from app.kernel.model import Connection, Topic
from app.kernel.topics.policy import Policy

_SQL: Final = sql.load_all(__package__)
_TAKE = _SQL["take_tokens"]
_PEEK = _SQL["peek_tokens"]
_RETURN = _SQL["return_tokens"]
_DATABASE = _SQL["database"]
_LOCK_TENANTS = _SQL["lock_tenants"]
_IN_FLIGHT = _SQL["in_flight"]

# A topic without tokens is closed for at least this long, whatever it earns, so that waiting callers share the tokens.
LEAST_SECONDS: Final = 0.02
# And for at most this long: other processes may put tokens back.
MOST_SECONDS: Final = 0.5

log = logging.getLogger(__name__)


class TokenGrant(msgspec.Struct, frozen=True):
    """Tokens that were granted, and in how many seconds there is one more if fewer were granted than wanted."""

    tokens: int
    wait_seconds: float


class Buckets(Protocol):
    """Buckets outside PostgreSQL, by key, shared by all processes."""

    up: bool

    async def take(self, key: str, wanted: int, per_second: int) -> TokenGrant | None: ...
    async def refill(self, key: str, per_second: int) -> float | None: ...
    async def put_back(self, key: str, tokens: int, per_second: int) -> None: ...


class _Closure(msgspec.Struct):
    """A topic without tokens: the timer that reopens it, and whether a caller was sent away since."""

    timer: asyncio.TimerHandle
    wanted: bool = False


class Throttle:
    """The tokens of all topics with a throughput_limit.

    `wake(topic id, jobs)` is called when there may be tokens for so many jobs again, if a caller was sent away before.
    """

    def __init__(self, pools: Pools, wake: Callable[[int, int], None], shared: Buckets | None = None) -> None:
        self._pools = pools
        self._wake = wake
        self.shared = shared
        self._database: str | None = None
        self._closed: dict[int, _Closure] = {}

    def sends_away(self, topic_id: int) -> bool:
        """Whether a topic has just run out of tokens. If so, `wake` is called later."""
        closed = self._closed.get(topic_id)
        if closed is None:
            return False
        closed.wanted = True
        return True

    async def take(self, policy: Policy, wanted: int) -> int:
        """Take tokens for up to `wanted` jobs (1 or more) of a topic with a limit. Raises asyncpg's errors.

        The caller must put back the tokens that it does not use.
        """
        topic, per_second = policy.topic, policy.config.throughput_limit
        if self.sends_away(topic.id):
            return 0
        grant = None
        if self.shared is not None and self.shared.up:
            grant = await self.shared.take(await self._key(topic), wanted, per_second)
        if grant is None:
            grant = await take_tokens(self._pools.hot_async, topic, wanted, per_second)
        if grant.tokens < wanted:
            self._close(topic.id, grant.wait_seconds, per_second, wanted=grant.tokens == 0)
        return grant.tokens

    async def refill(self, policy: Policy) -> float:
        """In how many seconds a topic with a limit has a token; 0: it has one. Takes none. Raises asyncpg's errors."""
        topic, per_second = policy.topic, policy.config.throughput_limit
        seconds = None
        if self.shared is not None and self.shared.up:
            seconds = await self.shared.refill(await self._key(topic), per_second)
        return await peek_tokens(self._pools.rest, topic, per_second) if seconds is None else seconds

    async def put_back(self, policy: Policy, unspent: int) -> None:
        """Put back unused tokens, to wherever tokens are kept now. Failures are logged only."""
        topic, per_second = policy.topic, policy.config.throughput_limit
        if unspent <= 0 or per_second <= 0:
            return
        try:
            if self.shared is not None and self.shared.up:
                await self.shared.put_back(await self._key(topic), unspent, per_second)
            else:
                await return_tokens(self._pools.hot_async, topic, unspent, per_second)
        except UNREACHABLE as error:
            log.warning("can't put back %d tokens of topic %s: %r", unspent, topic.name, error)
        self._open(topic.id, unspent)

    def drop(self, topic_id: int) -> None:
        closed = self._closed.pop(topic_id, None)
        if closed is not None:
            closed.timer.cancel()

    def close(self) -> None:
        for topic_id in list(self._closed):
            self.drop(topic_id)

    async def _key(self, topic: Topic) -> str:
        if self._database is None:
            self._database = await database_name(self._pools.hot_async)
        return f"holdfast:tokens:{self._database}:{topic.id}"

    def _close(self, topic_id: int, seconds: float, per_second: int, *, wanted: bool) -> None:
        self.drop(topic_id)
        seconds = min(max(seconds, LEAST_SECONDS), MOST_SECONDS)
        earned = max(round(seconds * per_second), 1)
        timer = asyncio.get_running_loop().call_later(seconds, self._open, topic_id, earned)
        self._closed[topic_id] = _Closure(timer, wanted)

    def _open(self, topic_id: int, jobs: int) -> None:
        closed = self._closed.get(topic_id)
        if closed is not None:
            self.drop(topic_id)
            if closed.wanted:
                self._wake(topic_id, jobs)


async def take_tokens(db: Connection, topic: Topic, wanted: int, per_second: int) -> TokenGrant:
    """Take up to `wanted` tokens (1 or more) from a bucket in PostgreSQL. Raises asyncpg's errors."""
    row = await db.fetchrow(_TAKE, topic.id, wanted, per_second)
    assert row is not None, "an upsert answers one row always"
    return TokenGrant(row["granted"], row["wait_ms"] / 1000)


async def peek_tokens(db: Connection, topic: Topic, per_second: int) -> float:
    """In how many seconds there is a token; 0: there is one. Takes none."""
    wait_ms: int = await db.fetchval(_PEEK, topic.id, per_second)
    return wait_ms / 1000


async def return_tokens(db: Connection, topic: Topic, tokens: int, per_second: int) -> None:
    await db.execute(_RETURN, topic.id, tokens, per_second)


async def database_name(db: Connection) -> str:
    """A unique name for this database, so that several databases can share one Redis."""
    name: str = await db.fetchval(_DATABASE)
    return name


async def tenants_left(db: Connection, topic: Topic, limits: Mapping[str, int]) -> dict[str, int]:
    """How many more jobs each tenant can have in flight. `db` must be in a transaction, for whose end others wait."""
    await db.execute(_LOCK_TENANTS, topic.id)
    counts = await in_flight(db, topic, limits)
    return {tenant: limit - counts[tenant] for tenant, limit in limits.items()}


async def in_flight(db: Connection, topic: Topic, most: Mapping[str, int]) -> dict[str, int]:
    """How many jobs of each tenant are leased, before their deadline. Counts up to `most` of each."""
    rows = await db.fetch(_IN_FLIGHT, topic.name, list(most), list(most.values()))
    return {row["tenant"]: row["held"] for row in rows}
