"""The clock of a test: time goes by when the test says so.

Rows are moved, and the service's own clock is not: a clock that can be set would be a branch in each of its statements.
"""

from __future__ import annotations

import asyncio
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final

import asyncpg

from holdfast import errors
from holdfast._client import Client

ADVANCE: Final = (Path(__file__).parent / "advance.sql").read_text()
# What the service does by itself within a minute.
SWEEPS: Final = ("expiry", "exhaustion", "superseded", "finished", "logs", "watches", "user_events")

PATIENCE_SECONDS: Final = 20.0  # for transactions that have locked jobs; a test may hold one open itself


class Clock:
    """Moves what waits for a time nearer to now, which is the same as time going by. docs/testing.md says what."""

    def __init__(self, url: str, database_url: str) -> None:
        self._url = url
        self._database_url = database_url

    def advance(self, seconds: float | timedelta) -> None:
        """Let so many seconds go by: delays and leases end, retries come, windows and times to live pass. When this
        returns, what is due can be claimed, and what has outlived its time is gone. A schedule whose next time is
        within so many seconds fires once; cron expressions go by the clock on the wall.

        Blocks for a fraction of a second, and may be called anywhere."""
        span = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
        if span < timedelta(0):
            raise ValueError("time does not go back")
        # A thread of its own, as the caller's may have an event loop.
        with ThreadPoolExecutor(1, "holdfast-clock") as thread:
            thread.submit(lambda: asyncio.run(self._advance(span))).result()
        with Client(self._url) as client:
            _fire(client, datetime.now(UTC) + span)
            for sweep in SWEEPS:
                client.admin.run_reaper(sweep)

    async def _advance(self, span: timedelta) -> str:
        db = await asyncpg.connect(self._database_url, command_timeout=PATIENCE_SECONDS)
        try:
            while True:
                # It locks all jobs, and a worker may be at some of them in another order.
                with suppress(asyncpg.DeadlockDetectedError):
                    return await db.execute(ADVANCE, span)
        finally:
            await db.close()


def _fire(client: Client, until: datetime) -> None:
    for schedule in client.schedules.list():
        if schedule.next_fire is not None and schedule.next_fire <= until:
            with suppress(errors.TopicNotFound):
                client.schedules.run(schedule.name)
