"""The worker: it runs a queue's handlers until it is told to stop."""

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
LAST_SECONDS: Final = 5.0  # for handlers that were cancelled, and for what is said about their jobs
ALWAYS: Final = 1_000_000  # tries of a call: its timeout is what ends it


class Worker:
    """Runs the handlers of a queue: `await Worker(queue).run()`.

    `topics`: only those handlers. `lease`: for how many seconds a job is this worker's before a heartbeat is due; what
    a worker held that died comes back so much later. `grace`: how many seconds handlers have when it stops. `on_error`
    is told the topic and the exception of each job that raised one, other than Retry and Dead: for an error tracker."""

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
            raise ValueError("a lease is 0.1 seconds to 24 hours")
        missing = set(topics or ()) - set(queue.handlers)
        if missing:
            raise ValueError(f"no handlers for {', '.join(sorted(missing))}")
        self._queue = queue
        self._handlers = [queue.handlers[topic] for topic in (queue.handlers if topics is None else topics)]
        if not self._handlers:
            raise ValueError("a worker needs a handler")
        self._lease = lease
        self._grace = grace
        self._on_error = on_error
        self._lanes: list[Lane] = []
        self._loop: asyncio.AbstractEventLoop | None = None
        self._draining = asyncio.Event()
        self._releasing = asyncio.Event()

    async def run(self, *, signals: bool = True) -> None:
        """Work until `stop`, or until SIGTERM or SIGINT where these are to be heard: claim nothing more, give back what
        has not begun, let what has come to its end. A second one gives that back, too, and returns at once."""
        with _trace.apart():
            await self._run(signals)

    async def _run(self, signals: bool) -> None:
        self._loop = asyncio.get_running_loop()
        heartbeats = Heartbeats(self._queue.account)
        heard = self._hear() if signals else []
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
            for kind in heard:
                self._loop.remove_signal_handler(kind)
            for lane in self._lanes:
                lane.ending = True
            for task in tasks:
                task.cancel()
            if tasks:
                await asyncio.wait(tasks, timeout=LAST_SECONDS)
            for lane in self._lanes:
                lane.close()
            # In a thread of its own: handlers may have all of the loop's.
            await self._loop.run_in_executor(ThreadPoolExecutor(1), heartbeats.close)

    def stop(self) -> None:
        """As a SIGTERM; from any thread."""
        if self._loop is None:
            self._draining.set()
        else:
            self._loop.call_soon_threadsafe(self._stop)

    def _stop(self) -> None:
        if not self._draining.is_set():
            log.info("The worker stops when what it runs is done")
            self._draining.set()
        else:
            log.info("The worker stops, and gives back what it runs")
            self._releasing.set()

    def _hear(self) -> list[signal.Signals]:
        """Where this is the thread that hears signals."""
        if threading.current_thread() is not threading.main_thread():
            return []
        kinds = [signal.SIGTERM, signal.SIGINT]
        try:
            for kind in kinds:
                asyncio.get_running_loop().add_signal_handler(kind, self._stop)
        except NotImplementedError:  # an event loop on Windows has none
            return []
        return kinds

    async def _until(self, event: asyncio.Event, tasks: Sequence[asyncio.Task[None]]) -> None:
        """Wait for it. Raises the error of a task that ends with one: a fault of ours."""
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
    """The schedule that a handler declares, by its topic's name, as soon as that is possible."""
    while handler.schedule is not None:
        try:
            await _put(client, handler.topic, handler.schedule)
            break
        except errors.Unprocessable as error:
            log.error("The schedule of %s makes no sense: %s", handler.topic, error)
            break
        except errors.HoldfastError as error:
            log.warning("The schedule of %s can't be put yet: %s", handler.topic, error)
            await asyncio.sleep(LAST_SECONDS)


async def _put(client: AsyncClient, topic: str, schedule: Schedule) -> None:
    """One that is there as it should be is left alone."""
    data = plain(schedule.data)
    with suppress(errors.NotFound):
        there = await client.schedules.get(topic)
        same = (there.topic, there.cron, there.record.get("data")) == (topic, schedule.cron, data)
        if same and there.time_zone == (schedule.time_zone or "UTC") and there.missed == (schedule.missed or "once"):
            return
    await client.schedules.put(
        topic, topic=topic, cron=schedule.cron, record=data, time_zone=schedule.time_zone, missed=schedule.missed
    )
