"""What queues looked like: few at a time, and none for long. docs/explain.md."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Final

import asyncpg

from app.errors import NotFound, TooMuchToRead, Unavailable
from app.kernel import ledger
from app.kernel.ledger import Past, PastJob
from app.kernel.model import Connection, Topic
from app.kernel.shared import Core

if TYPE_CHECKING:
    from app.kernel.engine import Engine

AT_ONCE: Final = 1  # of a process: what else the pool is for must find connections
SECONDS: Final = 10.0  # for one
PATIENCE_SECONDS: Final = 5.0  # for those before it


class Pasts(Core):
    """Tells what queues looked like, one at a time."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._pool = engine.pools.rest
        self._turn = asyncio.Semaphore(AT_ONCE)

    async def at(self, topic: Topic, instant: datetime) -> Past:
        """What a queue looked like at an instant.

        Raises NotFound for one before its events are shown, TooMuchToRead where it takes longer than SECONDS, and
        Unavailable where others are asked about for longer than PATIENCE_SECONDS meanwhile.
        """
        async with self._in_turn() as db:
            past = await ledger.as_of(db, topic, instant)
        _must_be_shown(instant, past.from_ms)
        return past

    async def jobs_at(
        self, topic: Topic, instant: datetime, *, state: str | None, behind: int, limit: int
    ) -> list[PastJob]:
        """Which jobs a queue had at an instant, of a state or of any, by seq: up to `limit` behind a seq.

        Raises as `at` does.
        """
        async with self._in_turn() as db:
            jobs, from_ms = await ledger.jobs_as_of(db, topic, instant, state=state, behind=behind, limit=limit)
        _must_be_shown(instant, from_ms)
        return jobs

    @asynccontextmanager
    async def _in_turn(self) -> AsyncIterator[Connection]:
        """A connection for one reading. Raises TooMuchToRead, Unavailable."""
        try:
            await asyncio.wait_for(self._turn.acquire(), PATIENCE_SECONDS)
        except TimeoutError:
            raise Unavailable("Others ask what queues looked like, which takes a while. Try again.") from None
        try:
            async with self._pool.acquire() as db, db.transaction(readonly=True):
                await db.execute(f"SET LOCAL statement_timeout = '{SECONDS * 1000:.0f}ms'")
                yield db
        except asyncpg.QueryCanceledError:
            raise TooMuchToRead(SECONDS) from None
        finally:
            self._turn.release()


def _must_be_shown(instant: datetime, from_ms: int) -> None:
    at_ms = int(instant.timestamp() * 1000)
    if at_ms < from_ms:
        raise NotFound("Nothing is kept of what happened so long ago.", {"at": at_ms, "from": from_ms})
