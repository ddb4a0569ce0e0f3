"""HeartbeatManager: a job's lease, kept while it is worked on."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Final, Self

from holdfast._jqueue.queues import BrokerQueue, DirectQueue
from holdfast.errors import LeaseLost

log: Final = logging.getLogger("holdfast")

MINUTE: Final = timedelta(seconds=60)


class HeartbeatManager:
    """Keeps a job's lease while a block runs: `async with HeartbeatManager(queue, job.id): …`.

    A heartbeat goes out every `interval`, a third of the lease if absent, a minute at most, from a thread of its own.
    If the lease is lost nevertheless, because somebody else has settled the job or nobody could be reached until it had
    ended, the block is cancelled, and LeaseLost is raised in its place."""

    def __init__(self, queue: BrokerQueue | DirectQueue, job_id: str, interval: timedelta | None = None) -> None:
        third = queue.stale_timeout / 3
        if interval is not None and interval > third:
            log.warning("Heartbeats every %s are few for a lease of %s: a third of it is safe", interval, 3 * third)
        self._queue = queue
        self._job_id = job_id
        self._interval = min(MINUTE, third) if interval is None else interval
        self._end: Callable[[], None] | None = None
        self._lost: LeaseLost | None = None

    async def __aenter__(self) -> Self:
        task = asyncio.current_task()
        assert task is not None, "a HeartbeatManager is used in a task"
        self._task = task
        self._cancelling = task.cancelling()
        loop = asyncio.get_running_loop()

        def lost(error: LeaseLost) -> None:
            loop.call_soon_threadsafe(self._lose, error)

        self._end = self._queue.keep(self._job_id, self._interval.total_seconds(), lost)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._end is not None:
            self._end()
            self._end = None
        if self._lost is None:
            return
        if not isinstance(error, asyncio.CancelledError):
            # The block has ended before its cancellation reached it: that is waiting, and comes here.
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        if self._task.uncancel() > self._cancelling:
            raise asyncio.CancelledError  # somebody else cancels this task, too
        raise self._lost from error

    def _lose(self, error: LeaseLost) -> None:
        if self._end is not None:
            self._lost = error
            self._task.cancel()
