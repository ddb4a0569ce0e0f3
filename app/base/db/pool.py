"""Connection pools, one per class of work, which measure durations and waits of statements.

Sessions get their settings when they connect and have no other state, so connections are released without a reset.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any, Final

import asyncpg

from app.base.db import sql
from app.base.db.connect import Hosts
from app.base.metrics import Histogram, Labels, Numbers, catalogue
from app.base.metrics.catalogue import Family

if TYPE_CHECKING:
    # Generic only in its stubs.
    Pool = asyncpg.Pool[asyncpg.Record]
else:
    Pool = asyncpg.Pool

log = logging.getLogger(__name__)

PLANNER: Final = {
    # A queue's table varies between empty and millions of rows, so its statistics are always wrong. These settings
    # leave the planner only the right plan for hot statements. Without them some take 100 to 1000 times as long.
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
# Ends sessions of a service whose machine is gone. The system's default is two hours.
HEARD: Final = {
    "tcp_keepalives_idle": "10",
    "tcp_keepalives_interval": "5",
    "tcp_keepalives_count": "3",
}
_SETTINGS: Final = "SELECT name, setting FROM pg_settings WHERE name = ANY($1)"
_POOLER_HINT: Final = 'See "Behind PgBouncer" in docs/configuration.md on how to set them for the role'
ACQUIRE_SECONDS: Final = 5.0
COMMAND_SECONDS: Final = 10.0  # longer than the server's statement_timeout, so that the server decides


class CountedPool(Pool):
    """asyncpg's pool with metrics. Connections from `acquire`, for transactions of several statements, are not
    counted."""

    __slots__ = ("name", "numbers", "statements", "wait", "waiting")

    def __init__(self, url: str, *, name: str, numbers: Numbers, **options: Any) -> None:
        super().__init__(
            url,
            # asyncpg.create_pool's defaults.
            max_queries=50_000,
            max_inactive_connection_lifetime=300.0,
            loop=None,
            connection_class=asyncpg.Connection,
            record_class=asyncpg.Record,
            **options,
        )
        self.name = name
        self.numbers = numbers
        self.statements: dict[str, Histogram] = {}  # by text
        self.wait = numbers.histogram(catalogue.POOL_WAIT, name)
        self.waiting = 0
        numbers.levels.append(self.levels)

    async def execute(self, query: str, *args: Any, **options: Any) -> str:
        """Like asyncpg.Pool.execute."""
        async with _CountedConnection(self, query) as connection:
            status: str = await connection.execute(query, *args, **options)
            return status

    async def fetch(self, query: str, *args: Any, **options: Any) -> list[asyncpg.Record]:  # type: ignore[override]
        """Like asyncpg.Pool.fetch."""
        async with _CountedConnection(self, query) as connection:
            rows: list[asyncpg.Record] = await connection.fetch(query, *args, **options)
            return rows

    async def fetchrow(  # type: ignore[override]
        self, query: str, *args: Any, **options: Any
    ) -> asyncpg.Record | None:
        """Like asyncpg.Pool.fetchrow."""
        async with _CountedConnection(self, query) as connection:
            row: asyncpg.Record | None = await connection.fetchrow(query, *args, **options)
            return row

    async def fetchval(self, query: str, *args: Any, **options: Any) -> Any:
        """Like asyncpg.Pool.fetchval."""
        async with _CountedConnection(self, query) as connection:
            return await connection.fetchval(query, *args, **options)

    def levels(self) -> Iterable[tuple[Family, Labels, float]]:
        """The pool's gauges."""
        size, idle = self.get_size(), self.get_idle_size()
        yield catalogue.POOL_CONNECTIONS, (self.name, "idle"), idle
        yield catalogue.POOL_CONNECTIONS, (self.name, "busy"), size - idle
        yield catalogue.POOL_MOST, (self.name,), self.get_max_size()
        yield catalogue.POOL_WAITING, (self.name,), self.waiting


class _CountedConnection:
    """Replaces asyncpg's context manager of a connection, with the same number of awaits."""

    __slots__ = ("_began", "_connection", "_pool", "_query")

    def __init__(self, pool: CountedPool, query: str) -> None:
        self._pool = pool
        self._query = query

    async def __aenter__(self) -> Any:
        pool = self._pool
        pool.waiting += 1
        began = perf_counter()
        try:
            self._connection = await pool.acquire()
        finally:
            pool.waiting -= 1
        self._began = now = perf_counter()
        pool.wait.observe(now - began)
        return self._connection

    async def __aexit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        pool = self._pool
        took = perf_counter() - self._began
        seconds = pool.statements.get(self._query)
        if seconds is None:
            seconds = pool.statements[self._query] = pool.numbers.histogram(
                catalogue.STATEMENT_SECONDS, sql.name_of(self._query)
            )
        seconds.observe(took)
        if kind is not None:
            pool.numbers.counter(catalogue.STATEMENT_ERRORS, sql.name_of(self._query), kind.__name__).add()
        await pool.release(self._connection)


@dataclass(frozen=True, slots=True)
class Pools:
    """hot: calls on jobs whose answer waits for the flush of the commit. hot_async: calls on jobs of topics that don't
    wait for it. rest: everything else."""

    hot: Pool
    hot_async: Pool
    rest: Pool

    def verbs(self, *, durable: bool) -> Pool:
        """The pool for calls on a topic's jobs."""
        return self.hot if durable else self.hot_async

    async def close(self, seconds: float) -> None:
        """Close all pools. Waits up to `seconds` for running statements, then terminates them."""
        pools = (self.hot, self.hot_async, self.rest)
        try:
            await asyncio.wait_for(asyncio.gather(*(p.close() for p in pools)), seconds)
        except TimeoutError:
            for pool in pools:
                pool.terminate()


async def open_pools(
    url: str, *, hot: int, rest: int, prepared_statements: bool, numbers: Numbers | None = None
) -> Pools:
    """Open the pools. `hot` and `rest` limit the connections of each pool; hot_async opens its connections on demand.

    Raises the errors of app.base.outages.UNREACHABLE if the database can't be reached.
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
        await _warn_of_lost_settings(opened[0], PLANNER | HOT_TIMEOUTS)
        opened.append(await open_one("hot_async", 1, hot, **PLANNER, **HOT_TIMEOUTS, synchronous_commit="off"))
        opened.append(await open_one("rest", 0, rest, **PLANNER, **REST_TIMEOUTS, synchronous_commit="on"))
    except BaseException:
        for pool in opened:
            pool.terminate()
        raise
    return Pools(*opened)


async def _keep(_connection: object) -> None:
    """Reset nothing: statements change no session settings."""


async def _warn_of_lost_settings(pool: Pool, wanted: Mapping[str, str]) -> None:
    """Warn about settings that a pooler has dropped, and about missing timeouts. schema.py checks the settings that
    protect data from a crash."""
    found = {row["name"]: row["setting"] for row in await pool.fetch(_SETTINGS, list(wanted))}
    lost = [name for name, value in wanted.items() if _is_lost(name, value, found[name])]
    if lost:
        log.warning("Sessions did not get these settings, so statements may be slow or hang: %s. %s",
                    ", ".join(sorted(lost)), _POOLER_HINT)  # fmt: skip


def _is_lost(name: str, value: str, found: str) -> bool:
    return found == "0" if name.endswith("_timeout") else found != value
