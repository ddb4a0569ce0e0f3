"""Pools of connections, one per class of work.

A pool's sessions get their settings at connect and carry no other state, so a connection goes back without a reset.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from app.base.db import sessions
from app.base.db.counted import CountedPool
from app.base.db.hosts import Hosts
from app.base.metrics import Numbers

if TYPE_CHECKING:
    # Generic in its stubs only.
    Pool = asyncpg.Pool[asyncpg.Record]

PLANNER: Final = {
    # A queue's table breathes between empty and millions, so its statistics are always wrong. With these the planner
    # has one plan for a hot statement, the right one; without them it takes 100 to 1000 times as long at times.
    "enable_seqscan": "off",
    "enable_bitmapscan": "off",
    "enable_mergejoin": "off",
    "enable_hashjoin": "off",
    "jit": "off",
    "plan_cache_mode": "force_generic_plan",
}
HOT_TIMEOUTS: Final = {
    "statement_timeout": "5s",
    "lock_timeout": "2s",
    "idle_in_transaction_session_timeout": "5s",
}
REST_TIMEOUTS: Final = {
    "statement_timeout": "60s",
    "lock_timeout": "5s",
    "idle_in_transaction_session_timeout": "30s",
}
# For sessions of a service whose machine is gone: the system's own default is two hours.
HEARD: Final = {
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
ACQUIRE_SECONDS: Final = 5.0
COMMAND_SECONDS: Final = 10.0  # longer than the server's own limit, so that the server decides


@dataclass(frozen=True, slots=True)
class Pools:
    """hot: the queue's verbs, answered after the flush. hot_async: the same for topics that don't wait for it.
    rest: everything else."""

    hot: Pool
    hot_async: Pool
    rest: Pool

    def verbs(self, *, durable: bool) -> Pool:
        """The pool for a topic's verbs."""
        return self.hot if durable else self.hot_async

    async def close(self, seconds: float) -> None:
        """Close all three, waiting for what runs; after `seconds` without it."""
        pools = (self.hot, self.hot_async, self.rest)
        try:
            await asyncio.wait_for(asyncio.gather(*(p.close() for p in pools)), seconds)
        except TimeoutError:
            for pool in pools:
                pool.terminate()


async def open_pools(
    url: str, *, hot: int, rest: int, prepared_statements: bool, numbers: Numbers | None = None
) -> Pools:
    """Connect. `hot` and `rest` are the most connections of a pool; the second hot pool opens its own on demand.

    Raises what UNREACHABLE lists when the database can't be reached.
    """
    cache = 256 if prepared_statements else 0
    counted = numbers or Numbers()
    hosts = Hosts(url)

    async def open_one(name: str, low: int, high: int, **settings: str) -> Pool:
        return await CountedPool(
            url,
            name=name,
            numbers=counted,
            min_size=low,
            max_size=high,
            connect=hosts.connect,
            timeout=ACQUIRE_SECONDS,
            command_timeout=COMMAND_SECONDS if low else None,
            statement_cache_size=cache,
            max_cached_statement_lifetime=0,
            reset=_keep,
            server_settings={
                "application_name": "holdfast",
                "timezone": "UTC",
                "search_path": "pg_catalog",
                **HEARD,
                **settings,
            },
        )

    opened: list[Any] = []
    try:
        opened.append(await open_one("hot", 2, hot, **PLANNER, **HOT_TIMEOUTS, synchronous_commit="on"))
        await sessions.look_at(opened[0], PLANNER | HOT_TIMEOUTS)
        opened.append(await open_one("hot_async", 1, hot, **PLANNER, **HOT_TIMEOUTS, synchronous_commit="off"))
        opened.append(await open_one("rest", 0, rest, **PLANNER, **REST_TIMEOUTS, synchronous_commit="on"))
    except BaseException:
        for pool in opened:
            pool.terminate()
        raise
    return Pools(*opened)


async def _keep(_connection: object) -> None:
    """Nothing to reset: statements here set nothing for their session."""
