"""What queues looked like: few at a time, and none for long. docs/explain.md."""

from __future__ import annotations

import asyncio
from datetime import datetime
from typing import TYPE_CHECKING, Final

import asyncpg

from app.errors import NotFound, TooMuchToRead, Unavailable
from app.queue import ledger
from app.queue.ledger import Past
from app.queue.model import Topic

if TYPE_CHECKING:
    from app.db.pool import Pool

AT_ONCE: Final = 1  # of a process: what else the pool is for must find connections
SECONDS: Final = 10.0  # for one
PATIENCE_SECONDS: Final = 5.0  # for those before it


class Pasts:
    """Tells what queues looked like, one at a time."""

    def __init__(self, pool: Pool) -> None:
        self._pool = pool
        self._turn = asyncio.Semaphore(AT_ONCE)

    async def at(self, topic: Topic, instant: datetime) -> Past:
        """What a queue looked like at an instant.

        Raises NotFound for one before its events are shown, TooMuchToRead where it takes longer than SECONDS, and
        Unavailable where others are asked about for longer than PATIENCE_SECONDS meanwhile.
        """
        try:
            await asyncio.wait_for(self._turn.acquire(), PATIENCE_SECONDS)
        except TimeoutError:
            raise Unavailable("Others ask what queues looked like, which takes a while. Try again.") from None
        try:
            async with self._pool.acquire() as db, db.transaction(readonly=True):
                await db.execute(f"SET LOCAL statement_timeout = '{SECONDS * 1000:.0f}ms'")
                past = await ledger.as_of(db, topic, instant)
        except asyncpg.QueryCanceledError:
            raise TooMuchToRead(SECONDS) from None
        finally:
            self._turn.release()
        at_ms = int(instant.timestamp() * 1000)
        if at_ms < past.from_ms:
            raise NotFound("Nothing is kept of what happened so long ago.", {"at": at_ms, "from": past.from_ms})
        return past
