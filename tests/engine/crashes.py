"""Processes that die between two statements: the server ends their connection, and they never send another one.

What a process sends goes through pools that count: each statement, and each begin and commit of a transaction, is one.
With `left` = 0, 1, 2 … a verb is cut off before its first statement, before its second, and so on. What an engine sends
by the clock, whatever verbs it runs, is not counted, so that each run of a verb has the same points.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Awaitable, Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import asyncpg

from app.base.db.pool import Pools
from app.base.outages import UNREACHABLE
from app.kernel.engine import Engine
from app.kernel.topics.cache import Policies
from tests.engine.machines import NAMES, Log, Machine, sender

if TYPE_CHECKING:
    from app.base.db.pool import Pool

BY_THE_CLOCK = {"count", "draws", "fold", "heads", "probe", "working", "writers"}


@dataclass(slots=True)
class Life:
    """How many statements a process has left; then `killer` ends its connection. `died_before`: what it didn't send.
    `before` is called with each, and waits for what must have happened elsewhere by then."""

    left: int
    killer: Pool
    before: Callable[[str], Awaitable[None]] | None = None
    died_before: str | None = None
    dying: asyncio.Event = field(default_factory=asyncio.Event)
    _death: asyncio.Task[str] | None = None

    async def step(self, connection: Any, what: str) -> None:
        """Be about to send a statement, and perhaps die."""
        if what in BY_THE_CLOCK and self._death is None:
            return
        if self.before is not None and self._death is None:
            await self.before(what)
        if self.left == 0 and self._death is None:
            self.died_before = what
            self.dying.set()
            end = self.killer.execute("SELECT pg_terminate_backend($1, 5000)", connection.get_server_pid())
            self._death = asyncio.create_task(end)
        if self._death is not None:
            await asyncio.shield(self._death)
            raise asyncpg.ConnectionDoesNotExistError("this process is dead")
        self.left -= 1

    async def end(self) -> None:
        """Wait until its connection is gone, if it has died."""
        if self._death is not None:
            await self._death


class _Connection:
    def __init__(self, connection: Any, life: Life) -> None:
        self._connection = connection
        self._life = life

    async def _send(self, verb: str, query: str, *args: Any) -> Any:
        await self._life.step(self._connection, NAMES[query])
        return await getattr(self._connection, verb)(query, *args)

    def __getattr__(self, verb: str) -> Any:
        return sender(self._send, verb)

    @contextlib.asynccontextmanager
    async def transaction(self) -> AsyncIterator[None]:
        await self._life.step(self._connection, "begin")
        transaction = self._connection.transaction()
        await transaction.start()
        try:
            yield
            await self._life.step(self._connection, "commit")
        except BaseException:
            with contextlib.suppress(asyncpg.PostgresError, *UNREACHABLE):
                await transaction.rollback()
            raise
        await transaction.commit()


class _MortalPool:
    def __init__(self, pool: Pool, life: Life) -> None:
        self._pool = pool
        self._life = life

    @contextlib.asynccontextmanager
    async def acquire(self, **options: Any) -> AsyncIterator[_Connection]:
        async with self._pool.acquire(**options) as connection:
            yield _Connection(connection, self._life)

    async def _send(self, verb: str, query: str, *args: Any, **_options: Any) -> Any:
        async with self.acquire() as connection:
            return await getattr(connection, verb)(query, *args)

    def __getattr__(self, verb: str) -> Any:
        return sender(self._send, verb)


def mortal(pools: Pools, life: Life) -> Machine:
    """A process just started, with so much life, and with connections of its own: `pools`. Stop and drain it."""
    made = Pools(*(cast("Pool", _MortalPool(pool, life)) for pool in (pools.hot, pools.hot_async, pools.rest)))
    policies = Policies(pools.rest)  # what it has read of topics it has read before
    return Machine(Engine(made, policies, max_waiting=10_000), policies, pools, Log())
