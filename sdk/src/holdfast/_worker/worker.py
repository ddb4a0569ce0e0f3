"""Worker, which runs a queue's handlers until it is stopped."""

from __future__ import annotations

import asyncio
import logging
import signal
import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from typing import Any, Final

from holdfast import _trace, errors
from holdfast._client import AsyncClient
from holdfast._heartbeats import Heartbeats, Holding, culprits
from holdfast._worker.handlers import Handler, Queue, Schedule
from holdfast._worker.lane import Lane
from holdfast._worker.payloads import plain

log: Final = logging.getLogger("holdfast")

LEASE_SECONDS: Final = 30.0
GRACE_SECONDS: Final = 25.0
LAST_SECONDS: Final = 5.0  # for cancelled handlers to end and their jobs to be settled
ALWAYS: Final = 1_000_000  # retries of a call, which ends at its timeout


class Worker:
    """Runs the handlers of a queue: `await Worker(queue).run()`.

    - topics: run only the handlers of these topics.
    - lease: length of a lease in seconds (0.1 to 86,400). Heartbeats extend it. If the worker dies, its jobs are ready
      again after this time.
    - grace: seconds that running handlers have to finish when the worker stops.
    - on_error: called with the topic and the exception of each job that raised one other than Retry and Dead, for an
      error tracker.

    Raises ValueError for a topic without a handler, or without any handlers.
    """

    def __init__(
        self,
        queue: Queue,
        *,
        topics: Sequence[str] | None = None,
        lease: float = LEASE_SECONDS,
        grace: float = GRACE_SECONDS,
        on_error: Callable[[str, BaseException], object] | None = None,
    ) -> None:
        if not 0.1 <= lease <= 86_400:
            raise ValueError("lease must be 0.1 seconds to 24 hours")
        missing = set(topics or ()) - set(queue.handlers)
        if missing:
            raise ValueError(f"there are no handlers for {', '.join(sorted(missing))}")
        self._queue = queue
        self._handlers = [queue.handlers[topic] for topic in (queue.handlers if topics is None else topics)]
        if not self._handlers:
            raise ValueError("a worker needs at least one handler")
        self._lease = lease
        self._grace = grace
        self._on_error = on_error
        self._lanes: list[Lane] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining = asyncio.Event()
        self._releasing = asyncio.Event()

    async def run(self, *, signals: bool = True) -> None:
        """Run jobs until `stop` is called, or, with `signals`, until SIGTERM or SIGINT. The worker then stops claiming,
        returns jobs that have not begun, and waits for running handlers. On a second signal it returns the running jobs
        as well and ends at once."""
        with _trace.apart():
            await self._run(signals)

    async def _run(self, signals: bool) -> None:
        self._loop = asyncio.get_running_loop()
        heartbeats = Heartbeats(self._queue.account)
        handled = self._handle_signals() if signals else []
        tasks: list[asyncio.Task[None]] = []
        try:
            client = self._queue.client.with_options(timeout=max(self._lease, LEASE_SECONDS), retries=ALWAYS)
            lease_ms = round(self._lease * 1000)
            self._lanes = [
                Lane(handler, client, heartbeats, lease_ms, self._queue.encode, on_error=self._on_error)
                for handler in self._handlers
            ]
            heartbeats.watch(self._loop, self._culprit)
            heartbeats.feed(self._lease / 6, self._due)
            tasks += [task for lane in self._lanes for task in lane.tasks()]
            log.info("The worker runs the jobs of %s", ", ".join(handler.topic for handler in self._handlers))
            tasks += [asyncio.create_task(_put_schedule(client, handler)) for handler in self._handlers]
            await self._until(self._draining, tasks)
            await self._drain()
        finally:
            for kind in handled:
                self._loop.remove_signal_handler(kind)
            for lane in self._lanes:
                lane.ending = True
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=LAST_SECONDS)
            for lane in self._lanes:
                lane.close()
            # In a separate thread: handlers may occupy all of the loop's.
            await self._loop.run_in_executor(ThreadPoolExecutor(1), heartbeats.close)

    def stop(self) -> None:
        """Stop the worker, like a SIGTERM. Call it from any thread."""
        if self._loop is None:
            self._draining.set()
        else:
            self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        if not self._draining.is_set():
            log.info("The worker stops when its running jobs have finished")
            self._draining.set()
        else:
            log.info("The worker stops and returns its running jobs")
            self._releasing.set()

    def _handle_signals(self) -> list[signal.Signals]:
        """Handle signals, if this is the main thread."""
        if threading.current_thread() is not threading.main_thread():
            return []
        kinds = [signal.SIGTERM, signal.SIGINT]
        try:
            for kind in kinds:
                asyncio.get_running_loop().add_signal_handler(kind, self._stop)
        except NotImplementedError:  # event loops on Windows
            return []
        return kinds

    async def _until(self, event: asyncio.Event, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Wait for an event. Raises the exception of a task that fails, which is an internal error."""
        waiting = asyncio.create_task(event.wait())
        try:
            pending: set[asyncio.Task[Any]] = {waiting, *tasks}
            while not waiting.done():
                done, pending = await asyncio.wait(pending, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    task.result()
        finally:
            waiting.cancel()

    async def _drain(self) -> None:
        drained = asyncio.gather(*(lane.drain() for lane in self._lanes))
        releasing = asyncio.create_task(self._releasing.wait())
        either: list[asyncio.Future[Any]] = [drained, releasing]
        try:
            await asyncio.wait(either, timeout=self._grace, return_when=asyncio.FIRST_COMPLETED)
            if not drained.done():
                for lane in self._lanes:
                    lane.release()
                await asyncio.wait([drained], timeout=LAST_SECONDS)
            if drained.done():
                drained.result()
        finally:
            releasing.cancel()
            drained.cancel()

    def _culprit(self, task: asyncio.Task[Any] | None) -> str:
        return culprits([job for lane in self._lanes for job in lane.running()], task)

    def _due(self) -> list[Holding]:
        return [holding for lane in self._lanes for holding in lane.due(self._lease / 3)]


async def _put_schedule(client: AsyncClient, handler: Handler) -> None:
    """Create a handler's schedule, named after its topic. Retries until the service accepts or rejects it."""
    while handler.schedule is not None:
        try:
            await _put(client, handler.topic, handler.schedule)
            break
        except errors.Unprocessable as error:
            log.error("The schedule of %s is not valid: %s", handler.topic, error)
            break
        except errors.HoldfastError as error:
            log.warning("The schedule of %s can't be created yet: %s", handler.topic, error)
            await asyncio.sleep(LAST_SECONDS)


async def _put(client: AsyncClient, topic: str, schedule: Schedule) -> None:
    """Create or update a schedule. Leaves an equal one unchanged."""
    data = plain(schedule.data)
    with suppress(errors.NotFound):
        there = await client.schedules.get(topic)
        same = (there.topic, there.cron, there.record.get("data")) == (topic, schedule.cron, data)
        if same and there.time_zone == (schedule.time_zone or "UTC") and there.missed == (schedule.missed or "once"):
            return
    await client.schedules.put(
        topic, topic=topic, cron=schedule.cron, record=data, time_zone=schedule.time_zone, missed=schedule.missed
    )
