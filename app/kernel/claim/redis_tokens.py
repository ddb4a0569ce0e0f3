"""Tokens in Redis instead of PostgreSQL. The buckets and their rule are the same as in limits.py.

Redis runs each script atomically, by its own clock, so the processes take tokens one after the other. While Redis is
unreachable, claims don't wait for it, and a task checks whether it is back.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from typing import Final

from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from app.base.loops import end_tasks
from app.kernel.claim.limits import TokenGrant

TIMEOUT_SECONDS: Final = 0.25  # a claim waits at most so long, once, if Redis hangs
RETRY_SECONDS: Final = 1.0
KEPT_MS: Final = 10_000  # by then a bucket is full again, and can be forgotten

log = logging.getLogger(__name__)

# KEYS: the bucket  ARGV: tokens wanted, tokens per second. Returns the tokens granted, and ms until there is one more.
TAKE: Final = """
local wanted, rate = tonumber(ARGV[1]), tonumber(ARGV[2])
local clock = redis.call('TIME')
local now = clock[1] * 1000000 + clock[2]
local kept = redis.call('HMGET', KEYS[1], 'tokens', 'at')
local tokens = rate
if kept[1] then
    local at = tonumber(kept[2])
    tokens = math.min(tonumber(kept[1]) + math.max(now - at, 0) / 1000000 * rate, rate)
    now = math.max(now, at)
end
local granted = math.min(wanted, math.floor(tokens))
redis.call('HSET', KEYS[1], 'tokens', string.format('%.9f', tokens - granted), 'at', string.format('%.0f', now))
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return {granted, math.max(math.ceil((1 - (tokens - granted)) / rate * 1000), 0)}
"""
# KEYS: the bucket  ARGV: tokens per second. Returns in how many ms there is a token, by the rule of TAKE. Takes none.
PEEK: Final = """
local rate = tonumber(ARGV[1])
local kept = redis.call('HMGET', KEYS[1], 'tokens', 'at')
if not kept[1] then return 0 end
local clock = redis.call('TIME')
local gap = math.max(clock[1] * 1000000 + clock[2] - tonumber(kept[2]), 0)
return math.max(math.ceil((1 - tonumber(kept[1])) / rate * 1000 - gap / 1000), 0)
"""
# KEYS: the bucket  ARGV: tokens to put back, tokens per second.
PUT_BACK: Final = """
local tokens = redis.call('HGET', KEYS[1], 'tokens')
if tokens then
    tokens = math.min(tonumber(tokens) + tonumber(ARGV[1]), tonumber(ARGV[2]))
    redis.call('HSET', KEYS[1], 'tokens', string.format('%.9f', tokens))
end
"""


class RedisBuckets:
    """Buckets by key. `up` says whether Redis answered the last time."""

    def __init__(self, url: str) -> None:
        self._redis = Redis.from_url(
            url,
            socket_timeout=TIMEOUT_SECONDS,
            socket_connect_timeout=TIMEOUT_SECONDS,
            # The client's own retries take time, and could repeat a script that has already run.
            retry=Retry(NoBackoff(), 0),
        )
        self._take = self._redis.register_script(TAKE)
        self._peek = self._redis.register_script(PEEK)
        self._put_back = self._redis.register_script(PUT_BACK)
        self._looking: asyncio.Task[None] | None = None
        self.up = True

    async def take(self, key: str, wanted: int, per_second: int) -> TokenGrant | None:
        """Take up to `wanted` tokens (1 or more). None if Redis does not answer."""
        try:
            granted, wait_ms = await self._take(keys=[key], args=[wanted, per_second, KEPT_MS])
        except (RedisError, OSError, TimeoutError) as error:
            self._lost(error)
            return None
        return TokenGrant(granted, wait_ms / 1000)

    async def refill(self, key: str, per_second: int) -> float | None:
        """In how many seconds there is a token; 0: there is one; None if Redis does not answer. Takes none."""
        try:
            wait_ms: int = await self._peek(keys=[key], args=[per_second])
        except (RedisError, OSError, TimeoutError) as error:
            self._lost(error)
            return None
        return wait_ms / 1000

    async def put_back(self, key: str, tokens: int, per_second: int) -> None:
        """Put back unused tokens. A failure does no harm: the tokens are earned again."""
        if self.up:
            try:
                await self._put_back(keys=[key], args=[tokens, per_second])
            except (RedisError, OSError, TimeoutError) as error:
                self._lost(error)

    async def stop(self) -> None:
        if self._looking is not None:
            await end_tasks(self._looking)
        with contextlib.suppress(RedisError, OSError, TimeoutError):
            await asyncio.wait_for(self._redis.aclose(), TIMEOUT_SECONDS)

    def _lost(self, error: Exception) -> None:
        self.up = False
        if self._looking is None:
            log.warning("Redis is unreachable, tokens come from PostgreSQL: %r", error)
            self._looking = asyncio.create_task(self._look())

    async def _look(self) -> None:
        while not self.up:
            await asyncio.sleep(RETRY_SECONDS)
            with contextlib.suppress(RedisError, OSError, TimeoutError):
                await self._redis.ping()
                self.up = True
        self._looking = None
        log.info("Redis is back: tokens come from it again")
