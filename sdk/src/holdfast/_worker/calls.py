"""Calls handlers: in the event loop, in a thread, in a process of a pool, or in a separate process."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import signal
import threading
from collections.abc import Awaitable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from contextlib import suppress
from multiprocessing.context import SpawnProcess
from typing import Any, Final

import httpx

from holdfast import _trace
from holdfast._attempts import Options
from holdfast._client import AsyncClient
from holdfast._decode import payload
from holdfast._objects import MARK, Reference, reference_of
from holdfast._transport import LIMITS, SyncSender
from holdfast._worker.child import Order, in_child, perform, perform_alone
from holdfast._worker.context import Context
from holdfast._worker.handlers import Handler, Isolation
from holdfast._worker.outcomes import FAIL, RELEASE, Judged, Verdict
from holdfast._worker.payloads import Encoder
from holdfast._worker.running import RUNNING
from holdfast._worker.taken import Taken
from holdfast.errors import ObjectError

log: Final = logging.getLogger("holdfast")

HEARD_SECONDS: Final = 1.0
STOPS: Final = (-signal.SIGTERM, -signal.SIGINT)  # exit codes of processes stopped by a terminal or systemd
SPAWN: Final = multiprocessing.get_context("spawn")  # a fork of a process with threads may deadlock


class Caller:
    """Calls one handler."""

    def __init__(self, handler: Handler, client: AsyncClient, encode: Encoder | None) -> None:
        self._handler = handler
        self._client = client
        self._objects = client._sender.objects
        self._encode = encode
        self._pool: ThreadPoolExecutor | None = None
        self._processes: set[ProcessPoolExecutor] = set()
        self._idle: list[ProcessPoolExecutor] = []
        self._http: httpx.Client | None = None
        self._making = threading.Lock()
        self.stopping = asyncio.Event()
        self._context = self._async_context  # makes a job's context
        if handler.runs == "thread":
            self._pool = ThreadPoolExecutor(handler.concurrency, f"holdfast-{handler.topic}")
            self._context = self._sync_context

    def interruptible(self, taken: Taken) -> bool:
        """Whether a job ends when the task that awaits it is cancelled."""
        return self._handler.runs == "async" or self._alone(taken) is not None

    def call(self, taken: Taken) -> Awaitable[Any]:
        """Call the handler. Returns an awaitable of its value or of a Judged. Raises PayloadError."""
        data = payload(taken.body["data"])
        if type(data) is dict and MARK in data and (reference := reference_of(data)) is not None:
            return self._call_with_object(taken, reference)
        return self._call(taken, data)

    def close(self) -> None:
        """Shut down threads and processes."""
        pools: set[Executor] = {*self._processes, *([self._pool] if self._pool else [])}
        for pool in pools:
            pool.shutdown(wait=False, cancel_futures=True)
        if self._http is not None:
            self._http.close()

    async def _call_with_object(self, taken: Taken, reference: Reference) -> Any:
        if self._objects is None:
            raise ObjectError(f"the payload is the object {reference.key}: pass objects=Objects(…) to the queue")
        data = await self._objects.get_async(reference.data())
        taken.key = reference.key
        taken.body["content_type"] = reference.content_type
        if taken.signalled is not None:
            raise asyncio.CancelledError("the job was interrupted before it began")
        return await self._call(taken, data)

    def _call(self, taken: Taken, data: Any) -> Awaitable[Any]:
        handler = self._handler
        if isolation := self._alone(taken):
            return self._run_alone(self._order(taken, data), isolation)
        if handler.runs == "process":
            return self._in_process(taken, data)
        data = handler.decode(data, taken.body.get("content_type"))
        if handler.runs == "thread":
            return asyncio.get_running_loop().run_in_executor(self._pool, self._in_thread, taken, data)
        RUNNING.set((taken, self._context))
        function = handler.function
        called: Awaitable[Any] = function(data, self._context(taken)) if handler.wants_context else function(data)
        return called

    def _in_thread(self, taken: Taken, data: Any) -> Any:
        RUNNING.set((taken, self._context))
        function = self._handler.function
        with _trace.current(taken.span):
            return function(data, self._context(taken)) if self._handler.wants_context else function(data)

    def _alone(self, taken: Taken) -> Isolation | None:
        return self._handler.isolate if "suspected_poison" in taken.body else None

    def _async_context(self, taken: Taken) -> Context[Any]:
        return taken.within(Context(self._client._sender, self._handler.topic, taken.body, self._encode))

    def _sync_context(self, taken: Taken) -> Context[Any]:
        with self._making:
            if self._http is None:
                self._http = httpx.Client(limits=LIMITS)
        sender = SyncSender(self._http, self._client.account, Options(), self._objects)
        return taken.within(Context(sender, self._handler.topic, taken.body, self._encode))

    async def _in_process(self, taken: Taken, data: Any) -> Judged:
        # A pool for each process: its death affects only its own job. A pool of several processes may miss the death of
        # a process that it has just started.
        process = self._idle.pop() if self._idle else ProcessPoolExecutor(1, SPAWN, in_child)
        self._processes.add(process)
        order = self._order(taken, data)
        try:
            judged: Judged = await asyncio.get_running_loop().run_in_executor(process, perform, order)
        except BrokenProcessPool:
            self._processes.remove(process)
        except Exception:  # not picklable
            self._idle.append(process)
            raise
        else:
            self._idle.append(process)
            return judged
        if await self._stops() or taken.over:
            return Judged(RELEASE)
        isolation = self._handler.isolate
        if isolation is None:
            log.warning("The process that ran job %d of %s died", taken.seq, order.topic)
            return Judged(Verdict("nack"), "the process that ran the job died")
        taken.body["suspected_poison"] = True
        return await self._run_alone(order, isolation)

    async def _run_alone(self, order: Order, isolation: Isolation) -> Judged:
        """Run a job in a separate process. If that dies or is too slow, the job fails."""
        ended = await _alone(order, isolation)
        if isinstance(ended, Judged):
            return ended
        if ended in STOPS and await self._stops():
            return Judged(RELEASE)
        return Judged(FAIL, f"suspected of killing workers: its isolated process ended with exit code {ended}")

    async def _stops(self) -> bool:
        """Whether the worker is being stopped. A signal to all processes may end the children before the worker handles
        it, so this waits for a moment."""
        with suppress(TimeoutError):
            await asyncio.wait_for(self.stopping.wait(), HEARD_SECONDS)
        return self.stopping.is_set()

    def _order(self, taken: Taken, data: Any) -> Order:
        handler = self._handler
        body = {name: value for name, value in taken.body.items() if name != "data"}
        account, objects = self._client.account, self._objects
        carrier = _trace.carrier_of(taken.span)
        return Order(
            handler.function, handler.topic, data, body, handler.retry, account, self._encode, objects, carrier
        )


async def _alone(order: Order, isolation: Isolation) -> Judged | int | None:
    """Run a job in a separate process. Returns its outcome, or the process's exit code if it died."""
    receiver, sender = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(
        target=perform_alone,
        args=(order, isolation.memory_mb * 1024 * 1024, isolation.seconds, sender),
        name=f"holdfast-{order.topic}",
    )
    process.daemon = True
    starting = asyncio.create_task(asyncio.to_thread(process.start))
    try:
        await asyncio.shield(starting)
        sender.close()  # so that the pipe ends when the child does
        async with asyncio.timeout(isolation.seconds):
            await _readable(receiver.fileno())
        judged: Judged = await asyncio.to_thread(receiver.recv)
    except TimeoutError:
        return Judged(FAIL, f"suspected of killing workers: isolated, it took longer than {isolation.seconds:g} s")
    except EOFError:
        await asyncio.to_thread(process.join)
        return process.exitcode
    else:
        return judged
    finally:
        await asyncio.shield(asyncio.create_task(_kill(process, starting)))
        sender.close()
        receiver.close()


async def _kill(process: SpawnProcess, starting: asyncio.Task[None]) -> None:
    """Kill a process, after its start in a thread, which can't be cancelled, has finished."""
    await asyncio.wait([starting])
    if process.pid is not None:
        process.kill()
        await asyncio.to_thread(process.join)


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
