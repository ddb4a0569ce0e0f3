"""A pool that counts: how long statements take, by their files' names, and how long they wait for a connection."""

from __future__ import annotations

from collections.abc import Iterable
from time import perf_counter
from types import TracebackType
from typing import TYPE_CHECKING, Any

import asyncpg

from app.base.db import sql
from app.base.metrics import Histogram, Labels, Numbers, catalogue
from app.base.metrics.catalogue import Family

if TYPE_CHECKING:
    _Pool = asyncpg.Pool[asyncpg.Record]
else:
    _Pool = asyncpg.Pool


class CountedPool(_Pool):
    """asyncpg's pool. Transactions of several statements, which `acquire` by themselves, are not counted."""

    __slots__ = ("name", "numbers", "statements", "wait", "waiting")

    def __init__(self, url: str, *, name: str, numbers: Numbers, **options: Any) -> None:
        super().__init__(
            url,
            # What asyncpg.create_pool fills in for who leaves it out.
            max_queries=50_000,
            max_inactive_connection_lifetime=300.0,
            loop=None,
            connection_class=asyncpg.Connection,
            record_class=asyncpg.Record,
            **options,
        )
        self.name = name
        self.numbers = numbers
        self.statements: dict[str, Histogram] = {}  # by their text
        self.wait = numbers.histogram(catalogue.POOL_WAIT, name)
        self.waiting = 0
        numbers.levels.append(self.levels)

    async def execute(self, query: str, *args: Any, **options: Any) -> str:
        """See asyncpg.Pool, as for the other three."""
        async with _Turn(self, query) as connection:
            status: str = await connection.execute(query, *args, **options)
            return status

    async def fetch(self, query: str, *args: Any, **options: Any) -> list[asyncpg.Record]:  # type: ignore[override]
        """Rows."""
        async with _Turn(self, query) as connection:
            rows: list[asyncpg.Record] = await connection.fetch(query, *args, **options)
            return rows

    async def fetchrow(  # type: ignore[override]
        self, query: str, *args: Any, **options: Any
    ) -> asyncpg.Record | None:
        """The first row."""
        async with _Turn(self, query) as connection:
            row: asyncpg.Record | None = await connection.fetchrow(query, *args, **options)
            return row

    async def fetchval(self, query: str, *args: Any, **options: Any) -> Any:
        """The first row's first value."""
        async with _Turn(self, query) as connection:
            return await connection.fetchval(query, *args, **options)

    def levels(self) -> Iterable[tuple[Family, Labels, float]]:
        """How it stands."""
        size, idle = self.get_size(), self.get_idle_size()
        yield catalogue.POOL_CONNECTIONS, (self.name, "idle"), idle
        yield catalogue.POOL_CONNECTIONS, (self.name, "busy"), size - idle
        yield catalogue.POOL_MOST, (self.name,), self.get_max_size()
        yield catalogue.POOL_WAITING, (self.name,), self.waiting


class _Turn:
    """In place of asyncpg's own context of a connection, with as many awaits."""

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
