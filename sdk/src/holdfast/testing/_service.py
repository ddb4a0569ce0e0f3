"""Service: the running service in tests."""

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
    """Jobs were left when the time was up. The message lists them."""


class Service:
    """A running service for tests.

    - database_url: its PostgreSQL, for enqueues in SQL. Tests may create their own schemas and tables there.
    - clock: moves the service's time.
    """

    def __init__(self, url: str, database_url: str) -> None:
        self.url = url
        self.database_url = database_url
        self.clock = Clock(url, database_url)
        self._attached: list[tuple[Queue, Account]] = []

    def attach(self, *queues: Queue) -> None:
        """Connect queues to this service until `clean`, whichever service they were made for."""
        for queue in queues:
            if queue.account.base_url != self.url:
                self._attached.append((queue, queue.account))
                _move(queue, account_of(self.url, None, None))

    async def run_until_empty(self, *queues: Queue, within: float = 30.0, raise_errors: bool = False) -> None:
        """Attach these queues and run their handlers until no job of their topics is ready, including jobs that
        handlers enqueue. Scheduled jobs stay; use `clock.advance` to make them ready.

        `raise_errors`: end the run at the first exception of a handler other than Retry and Dead, and raise it.
        Otherwise the job is retried. Raises NotEmpty after `within` seconds."""
        self.attach(*queues)
        raised: list[BaseException] = []
        on_error = (lambda _topic, error: raised.append(error)) if raise_errors else None
        own = [_apart(queue) for queue in queues]
        workers = [Worker(queue, on_error=on_error) for queue in own]
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
                    raise NotEmpty(f"not empty after {within:g} s: {what}")
                await asyncio.sleep(TICK)
        finally:
            await db.close()

    def clean(self) -> None:
        """Delete all topics and schedules, and detach queues."""
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
    """Run a service during a block. Its data are deleted afterwards. PostgreSQL runs without fsync.

    The first start on a machine makes a template of the database in the user's cache folder, which takes some seconds.
    Raises ServiceMissing if the service is not installed; the message says how to install it."""
    process = _process.started(_home.find())
    try:
        yield Service(process.url, process.database_url)
    finally:
        process.stop()


def _move(queue: Queue, account: Account) -> None:
    queue.account = account
    queue._client = None  # recreated when needed


def _apart(queue: Queue) -> Queue:
    """A copy of a queue with its own connections, which are closed after the run: the test's event loop may end."""
    apart = copy.copy(queue)
    apart._client = None
    return apart
