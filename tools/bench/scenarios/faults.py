"""What goes wrong, for so many seconds: each is over when it returns."""

from __future__ import annotations

import asyncio
import os
import signal
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager, suppress
from typing import Final

import asyncpg

from tools.bench.scenarios.stand import Stand

Fault = Callable[[Stand, float], Awaitable[None]]

IDLE: Final = 300  # connections that hold on to nothing
READERS: Final = 4
KILLS: Final = 3
# Whoever works at the moment, and one who does not.
TERMINATE: Final = """
SELECT pg_terminate_backend(pid) FROM (
    SELECT pid, state <> 'idle' OR row_number() OVER (ORDER BY state, random()) = 1 AS meant FROM pg_stat_activity
    WHERE datname = current_database() AND pid <> pg_backend_pid() AND backend_type = 'client backend') s
WHERE meant
"""


@asynccontextmanager
async def _connected(stand: Stand) -> AsyncIterator[asyncpg.Connection[asyncpg.Record]]:
    db = await asyncpg.connect(stand.postgres.url)
    try:
        yield db
    finally:
        db.terminate()


async def postgres_restart(stand: Stand, seconds: float) -> None:
    """PostgreSQL is stopped, and started after half of the time."""
    await asyncio.to_thread(stand.postgres.stop)
    await asyncio.sleep(seconds / 2)
    await asyncio.to_thread(stand.postgres.start)


async def pg_backend_kill(stand: Stand, seconds: float) -> None:
    """Twice a second the backends that are at work are ended."""
    async with _connected(stand) as db:
        for _ in range(round(seconds * 2)):
            await db.execute(TERMINATE)
            await asyncio.sleep(0.5)


async def pool_exhaustion(stand: Stand, seconds: float) -> None:
    """Somebody else takes 300 connections, or all that there are."""
    end = time.monotonic() + seconds
    taken: list[asyncpg.Connection[asyncpg.Record]] = []
    try:
        with suppress(asyncpg.TooManyConnectionsError):
            while len(taken) < IDLE and time.monotonic() < end:
                taken.append(await asyncpg.connect(stand.postgres.url))
        await asyncio.sleep(end - time.monotonic())
    finally:
        for db in taken:
            db.terminate()


async def crash_recovery(stand: Stand, seconds: float) -> None:
    """The server process is killed."""
    await _kill(stand)
    await asyncio.sleep(seconds)


async def repeated_kills(stand: Stand, seconds: float) -> None:
    """The server process is killed, and what comes in its place, three times."""
    for _ in range(KILLS):
        await _kill(stand)
        await asyncio.sleep(seconds / KILLS)


async def idle_in_tx(stand: Stand, seconds: float) -> None:
    """A transaction is begun, takes a number, and does nothing: what is deleted meanwhile can't be cleaned up."""
    async with _connected(stand) as db, db.transaction(isolation="repeatable_read"):
        await db.fetchval("SELECT pg_current_xact_id()::text")
        await asyncio.sleep(seconds)


async def four_active_readers(stand: Stand, seconds: float) -> None:
    """Four transactions count the jobs, again and again, each as they were when it began."""

    async def read() -> None:
        async with _connected(stand) as db, db.transaction(isolation="repeatable_read"):
            while True:
                await db.fetchval("SELECT count(*) FROM holdfast.jobs")
                await asyncio.sleep(0.1)

    readers = [asyncio.create_task(read()) for _ in range(READERS)]
    done, _ = await asyncio.wait(readers, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for reader in readers:
        reader.cancel()
    await asyncio.gather(*readers, return_exceptions=True)
    for reader in done:
        reader.result()


async def nothing(_stand: Stand, seconds: float) -> None:
    """The load alone is other than before."""
    await asyncio.sleep(seconds)


async def _kill(stand: Stand) -> None:
    while (pid := stand.service.server()) is None:
        await asyncio.sleep(0.05)
    os.kill(pid, signal.SIGKILL)
