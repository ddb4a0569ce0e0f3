"""The second tier of the cache: copies of policies in Redis, for all processes of a database. docs/adr/0021.

A copy is stored under a lease. A process that finds no copy takes a lease in the same step, reads PostgreSQL, and can
store the answer only while it has the lease. A change deletes copy and lease, so a row that was read before a change is
never stored after it. Redis counts ages from the lease on, which is before the row was read.

No request waits for an unreachable Redis. One task has the only connection, and checks it while it is idle. While Redis
does not answer, requests get no answer at once; only the first one in an outage waits PATIENCE_SECONDS.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
import secrets
import time
from typing import TYPE_CHECKING, Final

import asyncpg
import msgspec
from redis.asyncio import Redis
from redis.asyncio.retry import Retry
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from app.base.db import sql
from app.base.loops import Loop
from app.base.metrics import Numbers, catalogue
from app.kernel.topics import cache
from app.kernel.topics.cache import NOTHING, CachedPolicy
from app.kernel.topics.policy import Policy
from app.kernel.topics.settings import NAME

if TYPE_CHECKING:
    from app.base.db.pool import Pool

_SQL: Final = sql.load_all(__package__)
_DATABASE = _SQL["database"]

FORMAT: Final = 1  # increase it if the same fields get another meaning
LEASE_SECONDS: Final = 5.0
PATIENCE_SECONDS: Final = 0.05  # how long a request waits
ANSWER_SECONDS: Final = 0.25  # how long the connection waits for an answer
LOOK_SECONDS: Final = 1.0  # between checks whether Redis answers, while it is idle
CONNECT_SECONDS: Final = 2.0
RETRY_SECONDS: Final = 1.0
MOST_ASKED: Final = 1_000  # requests that wait; further ones get no answer
MOST_AT_ONCE: Final = 100
MOST_DOUBTS: Final = 10_000

# All scripts have KEYS: the copy, the lease. Ages are in ms.
_READ: Final = """
local copy = redis.call('GET', KEYS[1])
if copy then return {copy, redis.call('PTTL', KEYS[1])} end
return {'', redis.call('SET', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2]) and 1 or 0}
"""
_RENEW: Final = """
redis.call('DEL', KEYS[1])
redis.call('SET', KEYS[2], ARGV[1], 'PX', ARGV[2])
return {'', 1}
"""
_STORE: Final = """
if redis.call('GET', KEYS[2]) ~= ARGV[1] then return 0 end
local age = ARGV[2] - redis.call('PTTL', KEYS[2])
redis.call('DEL', KEYS[2])
redis.call('SET', KEYS[1], ARGV[3], 'PX', ARGV[4] - age)
return 1
"""


class _Ask(msgspec.Struct, eq=False):
    script: str
    keys: tuple[str, str]
    words: tuple[str | int | bytes, ...]
    answer: asyncio.Future[tuple[bytes, int] | None] | None = None

    def set_answer(self, answer: tuple[bytes, int] | None) -> None:
        if self.answer is not None and not self.answer.done():
            self.answer.set_result(answer)


class Tier:
    """One process's access to the copies. `pool` connects to the database of the topics.

    `variant` is whatever policies depend on besides their rows. Only processes with the same variant and the same
    format of policies share copies, so versions of the service with other settings don't read each other's copies.
    """

    def __init__(self, url: str, pool: Pool, numbers: Numbers | None = None, *, variant: str = "") -> None:
        counted = numbers or Numbers()
        self._hits, self._misses, self._skipped, self._failed = (
            counted.counter(catalogue.CONFIG_READS, "redis", outcome)
            for outcome in ("hit", "miss", "skipped", "failed")
        )
        counted.levels.append(lambda: [(catalogue.REDIS_CACHE, (), int(self._good))])
        self._url = url
        self._pool = pool
        self._variant = variant
        self._space = ""  # the prefix of this database's keys; empty: not known yet
        self._good = False  # whether Redis answered in time the last time
        self._asked: list[_Ask] = []
        self._doubts: dict[str, float] = {}
        self._doubt_all_until = 0.0
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(Policy).decode
        self._redis: Redis | None = None
        self._loop = Loop(
            "use Redis as a cache",
            self._serve,
            LOOK_SECONDS,
            retry=RETRY_SECONDS,
            passing=(RedisError, asyncpg.PostgresError),
        )

    def start(self) -> None:
        """Connect, and stay connected."""
        self._loop.start()

    async def stop(self) -> None:
        """Disconnect. Later reads find nothing."""
        await self._loop.stop()
        await self._disconnect()

    def keys(self, name: str) -> tuple[str, ...]:
        """The keys to delete when the topic changes."""
        return self._keys(name) if self._space else ()

    def doubt(self, name: str) -> None:
        """Don't use the present copy, because the topic may have changed. Never waits."""
        now = time.monotonic()
        until = now + cache.TTL_SECONDS + 1  # all present copies have ended by then
        if len(self._doubts) >= MOST_DOUBTS:
            self._doubts = {doubted: end for doubted, end in self._doubts.items() if end > now}
            if len(self._doubts) >= MOST_DOUBTS:
                self._doubts.clear()
                self._doubt_all_until = until
        self._doubts[name] = until

    async def read(self, name: str) -> CachedPolicy:
        """A copy, or a lease to store one, or neither. Waits for at most PATIENCE_SECONDS, and raises nothing."""
        if not self._good or len(self._asked) >= MOST_ASKED or NAME.match(name) is None:
            self._skipped.add()
            return NOTHING
        now = time.monotonic()
        doubt = self._doubts.get(name)
        script = _RENEW if doubt is not None or now < self._doubt_all_until else _READ
        lease = secrets.token_hex(8)
        answer: asyncio.Future[tuple[bytes, int] | None] = asyncio.get_running_loop().create_future()
        self._ask(_Ask(script, self._keys(name), (lease, _ms(LEASE_SECONDS)), answer))
        try:
            async with asyncio.timeout(PATIENCE_SECONDS):
                found = await answer
        except TimeoutError:
            self._good = False  # other requests don't wait until it answers again
            found = None
        if found is None:
            self._failed.add()
            return NOTHING
        if doubt is not None and self._doubts.get(name) is doubt:
            del self._doubts[name]
        policy = self._decode_copy(name, found[0])
        if policy is not None:
            self._hits.add()
            return CachedPolicy(policy, now + found[1] / 1000)
        self._misses.add()
        return CachedPolicy(lease=lease) if not found[0] and found[1] else NOTHING

    def store(self, name: str, lease: str, policy: Policy) -> None:
        """Store a copy for other processes, unless the topic has changed since the lease was taken. Never waits."""
        if self._good and len(self._asked) < MOST_ASKED:
            words = (lease, _ms(LEASE_SECONDS), self._encode(policy), _ms(cache.TTL_SECONDS))
            self._ask(_Ask(_STORE, self._keys(name), words))

    def _decode_copy(self, name: str, copy: bytes) -> Policy | None:
        if not copy:
            return None
        try:
            policy = self._decode(copy)
        except msgspec.DecodeError:
            return None
        return policy if policy.topic.name == name else None

    def _keys(self, name: str) -> tuple[str, str]:
        return f"{self._space}:copy:{name}", f"{self._space}:lease:{name}"

    def _ask(self, ask: _Ask) -> None:
        self._asked.append(ask)
        self._loop.wake()

    async def _serve(self) -> float | None:
        """Send all requests in one round trip. If there are none, check that Redis answers."""
        under_way: list[_Ask] = []
        try:
            if not self._space:
                database = await self._pool.fetchval(_DATABASE)
                self._space = f"holdfast:policy:{_shape(self._variant)}:{database}"
            if self._redis is None:
                self._redis = Redis.from_url(
                    self._url, socket_connect_timeout=CONNECT_SECONDS, retry=Retry(NoBackoff(), 0)
                )
                async with asyncio.timeout(CONNECT_SECONDS):
                    await self._redis.ping()
            under_way, self._asked = self._asked[:MOST_AT_ONCE], self._asked[MOST_AT_ONCE:]
            async with asyncio.timeout(ANSWER_SECONDS):
                await _answer(self._redis, under_way)
        except BaseException:
            self._asked = [*under_way, *self._asked]
            await self._disconnect()
            raise
        self._good = True
        return 0.0 if self._asked else None

    async def _disconnect(self) -> None:
        self._good = False
        for ask in self._asked:
            ask.set_answer(None)
        self._asked.clear()
        redis, self._redis = self._redis, None
        if redis is not None:
            with contextlib.suppress(RedisError, OSError, TimeoutError):
                await asyncio.wait_for(redis.aclose(), CONNECT_SECONDS)


async def _answer(redis: Redis, asked: list[_Ask]) -> None:
    """Send requests in one round trip. If there are none, check that Redis answers."""
    pipeline = redis.pipeline(transaction=False)
    for ask in asked:
        pipeline.eval(ask.script, len(ask.keys), *ask.keys, *ask.words)
    if not asked:
        pipeline.ping()
    for ask, answer in zip(asked, await pipeline.execute(), strict=False):
        ask.set_answer(answer)


def _shape(variant: str) -> str:
    """A digest of the format of policies: their fields, types and meaning."""
    fields = msgspec.json.encode([FORMAT, variant, msgspec.json.schema(Policy)])
    return hashlib.sha256(fields).hexdigest()[:12]


def _ms(seconds: float) -> int:
    return round(seconds * 1000)
