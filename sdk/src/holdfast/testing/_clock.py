"""Clock: moves time in tests.

Changes the times in rows. The service's own clock stays: a settable one would need a branch in every statement.
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
# Sweeps that the service runs at least once a minute.
SWEEPS: Final = ("expiry", "exhaustion", "superseded", "finished", "logs", "watches", "user_events")

PATIENCE_SECONDS: Final = 20.0  # wait for transactions with locks on jobs; the test itself may have one open


class Clock:
    """Advances time by moving all future times closer to now. docs/testing.md."""

    def __init__(self, url: str, database_url: str) -> None:
        self._url = url
        self._database_url = database_url

    def advance(self, seconds: float | timedelta) -> None:
        """Advance time: delays and leases end, retries become due, windows and times to live pass. Afterwards, due jobs
        are ready and expired ones are gone. A schedule whose next time is within `seconds` runs once; cron expressions
        follow the wall clock.

        Blocks for a fraction of a second. May be called in any thread, also in an event loop."""
        span = seconds if isinstance(seconds, timedelta) else timedelta(seconds=seconds)
        if span < timedelta(0):
            raise ValueError("time can't go back")
        # In a separate thread, because the caller's may have an event loop.
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
                # It locks all jobs, and a worker may lock some in another order.
                with suppress(asyncpg.DeadlockDetectedError):
                    return await db.execute(ADVANCE, span)
        finally:
            await db.close()


def _fire(client: Client, until: datetime) -> None:
    for schedule in client.schedules.list():
        if schedule.next_fire is not None and schedule.next_fire <= until:
            with suppress(errors.TopicNotFound):
                client.schedules.run(schedule.name)
