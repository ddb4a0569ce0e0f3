"""The running service, as tests have it."""

from __future__ import annotations

import asyncio
import copy
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Final

import asyncpg

from holdfast import errors
from holdfast._client import Client, account_of
from holdfast._transport import Account
from holdfast._worker.handlers import Queue
from holdfast._worker.worker import Worker
from holdfast.testing import _home, _process
from holdfast.testing._clock import Clock

BUSY: Final = (Path(__file__).parent / "busy.sql").read_text()
TICK: Final = 0.01


class NotEmpty(TimeoutError):
    """There was something left to do when the time was up; the text says what."""


class Service:
    """A service of the tests' own. `database_url` is its PostgreSQL's, for what is enqueued in SQL; the tests may have
    schemas and tables of their own there. `clock` says what time it is."""

    def __init__(self, url: str, database_url: str) -> None:
        self.url = url
        self.database_url = database_url
        self.clock = Clock(url, database_url)
        self._attached: list[tuple[Queue, Account]] = []

    def attach(self, *queues: Queue) -> None:
        """From now on, until `clean`, these queues are this service's, whichever they were made for: what is pushed to
        them is put in here."""
        for queue in queues:
            if queue.account.base_url != self.url:
                self._attached.append((queue, queue.account))
                _move(queue, account_of(self.url, None, None))

    async def run_until_empty(self, *queues: Queue, within: float = 30.0, raise_errors: bool = False) -> None:
        """Run the handlers of these queues, and attach them, until their topics have nothing left to do now: neither
        what was in them nor what that led to. What waits for its time is left for `clock.advance`.

        With `raise_errors` the first exception that a handler raises, other than Retry and Dead, ends the run, and is
        raised here; else the job is tried again as the topic says. Raises NotEmpty after `within` seconds."""
        self.attach(*queues)
        raised: list[BaseException] = []
        told = (lambda _topic, error: raised.append(error)) if raise_errors else None
        own = [_apart(queue) for queue in queues]
        workers = [Worker(queue, on_error=told) for queue in own]
        running = [asyncio.create_task(worker.run(signals=False)) for worker in workers]
        try:
            await self._until_empty(queues, running, raised, within)
        finally:
            for worker in workers:
                worker.stop()
            ends = await asyncio.gather(*running, return_exceptions=True)
            for queue in own:
                await queue.aclose()
        for end in [*raised, *ends]:
            if isinstance(end, BaseException):
                raise end

    async def _until_empty(
        self, queues: tuple[Queue, ...], running: list[asyncio.Task[None]], raised: list[BaseException], within: float
    ) -> None:
        topics = [topic for queue in queues for topic in queue.handlers]
        scheduled = [
            topic for queue in queues for topic, handler in queue.handlers.items() if handler.schedule is not None
        ]
        end = time.monotonic() + within
        db = await asyncpg.connect(self.database_url)
        try:
            while left := await db.fetch(BUSY, topics, scheduled):
                if raised or any(task.done() for task in running):
                    break
                if time.monotonic() > end:
                    what = ", ".join(f"{row['topic']}: {row['n']} {row['what']}" for row in left)
                    raise NotEmpty(f"after {within:g} s there is left {what}")
                await asyncio.sleep(TICK)
        finally:
            await db.close()

    def clean(self) -> None:
        """Remove every topic with all that it holds, and every schedule; attached queues are what they were before."""
        while self._attached:
            _move(*self._attached.pop())
        with Client(self.url) as client:
            for schedule in client.schedules.list():
                client.schedules.delete(schedule.name)
            for topic in client.topics.list():
                with suppress(errors.TopicNotFound):
                    client.topic(topic.topic).delete()


@contextmanager
def start() -> Iterator[Service]:
    """A service for as long as this is open. Its data are gone afterwards, and would be after a crash of the machine:
    PostgreSQL runs without fsync.

    The first one on a machine makes a template of its database, in the user's cache folder, which takes some seconds.
    Raises ServiceMissing with the line that installs it."""
    process = _process.started(_home.find())
    try:
        yield Service(process.url, process.database_url)
    finally:
        process.stop()


def _move(queue: Queue, account: Account) -> None:
    queue.account = account
    queue._client = None  # it is made anew


def _apart(queue: Queue) -> Queue:
    """The same handlers with connections of their own, which end with the run: a test's event loop may do so, too."""
    apart = copy.copy(queue)
    apart._client = None
    return apart
