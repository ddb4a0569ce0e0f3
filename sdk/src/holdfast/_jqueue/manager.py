"""HeartbeatManager: extends a job's lease while a block runs."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from datetime import timedelta
from types import TracebackType
from typing import Final, Protocol, Self

from holdfast._jqueue.queues import BrokerQueue, DirectQueue
from holdfast._jqueue.state import check_interval
from holdfast.errors import JQueueError, LeaseLost, StorageError

log: Final = logging.getLogger("holdfast")

MINUTE: Final = timedelta(seconds=60)


class Heartbeating(Protocol):
    """An object with an async heartbeat: a queue, or a wrapper of one."""

    async def heartbeat(self, job_id: str) -> None: ...


class HeartbeatManager:
    """Extends a job's lease while a block runs: `async with HeartbeatManager(queue, job.id): …`.

    Sends a heartbeat every `interval`; default: a third of the lease, at most a minute. The heartbeats of a BrokerQueue
    or DirectQueue come from a thread of the queue. If the lease is lost, because the job was settled elsewhere or the
    service was unreachable, the block is cancelled and LeaseLost is raised.

    `queue` may also be any object with `async heartbeat(job_id)`, which a task calls. A StorageError is retried,
    another JQueueError ends the heartbeats with a warning, and any other exception is raised when the block ends."""

    def __init__(self, queue: Heartbeating, job_id: str, interval: timedelta | None = None) -> None:
        lease = getattr(queue, "stale_timeout", None)
        third = lease / 3 if isinstance(lease, timedelta) else None
        if interval is not None:
            check_interval("interval", interval)
        if interval is not None and third is not None and interval > third:
            log.warning("Heartbeats every %s are too few for a lease of %s: use a third of it or less", interval, lease)
        self.queue = queue
        self.job_id = job_id
        self.interval = min(MINUTE, third or MINUTE) if interval is None else interval
        self._task: asyncio.Task[None] | None = None
        self._end: Callable[[], None] | None = None
        self._lost: LeaseLost | None = None

    async def __aenter__(self) -> Self:
        if not isinstance(self.queue, (BrokerQueue, DirectQueue)):
            self._task = asyncio.create_task(self._beat(), name=f"holdfast-heartbeat-{self.job_id}")
            return self
        block = asyncio.current_task()
        assert block is not None, "use HeartbeatManager in a task"
        self._block = block
        self._cancelling = block.cancelling()
        loop = asyncio.get_running_loop()

        def lost(error: LeaseLost) -> None:
            loop.call_soon_threadsafe(self._lose, error)

        self._end = self.queue.keep(self.job_id, self.interval.total_seconds(), lost)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._task is not None:
            task, self._task = self._task, None
            await self._finish(task, error)
        if self._end is not None:
            self._end()
            self._end = None
        if self._lost is None:
            return
        if not isinstance(error, asyncio.CancelledError):
            # The block ended before its cancellation arrived. Receive it here.
            with suppress(asyncio.CancelledError):
                await asyncio.sleep(0)
        if self._block.uncancel() > self._cancelling:
            raise asyncio.CancelledError  # the task was also cancelled from elsewhere
        raise self._lost from error

    def _lose(self, error: LeaseLost) -> None:
        if self._end is not None:
            self._lost = error
            self._block.cancel()

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self.interval.total_seconds())
            try:
                await self.queue.heartbeat(self.job_id)
            except StorageError as error:
                log.warning("A heartbeat for job %s failed and will be retried: %s", self.job_id, error)
            except JQueueError as error:
                log.warning("No more heartbeats for job %s: %s", self.job_id, error)
                return

    async def _finish(self, task: asyncio.Task[None], error: BaseException | None) -> None:
        """Stop the heartbeats. Raises their exception, unless the block raised one itself."""
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled() and (failed := task.exception()) is not None:
            if error is None:
                raise failed
            log.warning("Heartbeats for job %s failed: %r", self.job_id, failed)
