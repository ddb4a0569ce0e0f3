"""How a handler is called: in the loop, in a thread, in a process of a pool, or in one of its own."""

from __future__ import annotations

import asyncio
import multiprocessing
import threading
from collections.abc import Awaitable
from concurrent.futures import Executor, ProcessPoolExecutor, ThreadPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from typing import Any, Final

import httpx

from holdfast._attempts import Options
from holdfast._client import AsyncClient
from holdfast._decode import payload
from holdfast._objects import MARK, Reference, reference_of
from holdfast._transport import LIMITS, SyncSender
from holdfast._worker.child import Order, perform, perform_alone
from holdfast._worker.context import Context
from holdfast._worker.handlers import Handler, Isolation
from holdfast._worker.outcomes import FAIL, Judged
from holdfast._worker.payloads import Encoder
from holdfast._worker.running import RUNNING
from holdfast._worker.taken import Taken
from holdfast.errors import ObjectError

SPAWN: Final = multiprocessing.get_context("spawn")  # a fork of a process with threads may wait for their locks


class Caller:
    """Calls one handler."""

    def __init__(self, handler: Handler, client: AsyncClient, encode: Encoder | None) -> None:
        self._handler = handler
        self._client = client
        self._objects = client._sender.objects
        self._encode = encode
        self._pool: Executor | None = None
        self._http: httpx.Client | None = None
        self._making = threading.Lock()
        self._context = self._async_context  # as it is handed on for each job
        if handler.runs == "thread":
            self._pool = ThreadPoolExecutor(handler.concurrency, f"holdfast-{handler.topic}")
            self._context = self._sync_context

    def interruptible(self, taken: Taken) -> bool:
        """Whether it ends when the task that awaits it is cancelled."""
        return self._handler.runs == "async" or self._alone(taken) is not None

    def call(self, taken: Taken) -> Awaitable[Any]:
        """The handler's value, to be awaited, or how the job is to be settled. Raises PayloadError."""
        data = payload(taken.body["data"])
        if type(data) is dict and MARK in data and (reference := reference_of(data)) is not None:
            return self._call_with_object(taken, reference)
        return self._call(taken, data)

    def close(self) -> None:
        """Threads that run a handler end with that."""
        if self._pool is not None:
            self._pool.shutdown(wait=False, cancel_futures=True)
        if self._http is not None:
            self._http.close()

    async def _call_with_object(self, taken: Taken, reference: Reference) -> Any:
        if self._objects is None:
            raise ObjectError(f"the payload is {reference.key} of an object storage: give the queue Objects(…)")
        data = await self._objects.get_async(reference.data())
        taken.key = reference.key
        if taken.signalled is not None:
            raise asyncio.CancelledError("its time was over before it began")
        return await self._call(taken, data)

    def _call(self, taken: Taken, data: Any) -> Awaitable[Any]:
        handler = self._handler
        if isolation := self._alone(taken):
            return _alone(self._order(taken, data), isolation)
        if handler.runs == "process":
            return self._in_process(taken, data)
        if handler.decode is not None:
            data = handler.decode(data)
        if handler.runs == "thread":
            return asyncio.get_running_loop().run_in_executor(self._pool, self._in_thread, taken, data)
        RUNNING.set((taken, self._context))
        function = handler.function
        called: Awaitable[Any] = function(data, self._context(taken)) if handler.wants_context else function(data)
        return called

    def _in_thread(self, taken: Taken, data: Any) -> Any:
        RUNNING.set((taken, self._context))
        function = self._handler.function
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
        pool = self._pool
        if pool is None:
            pool = self._pool = ProcessPoolExecutor(self._handler.concurrency, SPAWN)
        try:
            return await asyncio.get_running_loop().run_in_executor(pool, perform, self._order(taken, data))
        except BrokenProcessPool:
            # A process of it was killed; which job it was is not known, so all that were in the pool come again.
            if self._pool is pool:
                self._pool = None
            raise

    def _order(self, taken: Taken, data: Any) -> Order:
        handler = self._handler
        body = {name: value for name, value in taken.body.items() if name != "data"}
        account, objects = self._client.account, self._objects
        return Order(handler.function, handler.topic, data, body, handler.retry, account, self._encode, objects)


async def _alone(order: Order, isolation: Isolation) -> Judged:
    """Run a job in a process of its own. One that ends without an answer, or is too slow, is a dead letter."""
    answers, said = SPAWN.Pipe(duplex=False)
    process = SPAWN.Process(
        target=perform_alone, args=(order, isolation.memory_mb * 1024 * 1024, said), name=f"holdfast-{order.topic}"
    )
    process.daemon = True
    try:
        await asyncio.to_thread(process.start)
        said.close()  # so that its end is the end of what it says
        async with asyncio.timeout(isolation.seconds):
            await _readable(answers.fileno())
        judged: Judged = await asyncio.to_thread(answers.recv)
    except TimeoutError:
        return Judged(FAIL, f"suspected of killing its workers; alone it took longer than {isolation.seconds:g} s")
    except EOFError:
        await asyncio.to_thread(process.join)
        return Judged(FAIL, f"suspected of killing its workers; alone it ended with {process.exitcode}")
    else:
        return judged
    finally:
        if process.pid is not None:
            process.kill()
            await asyncio.shield(asyncio.to_thread(process.join))
        answers.close()


async def _readable(descriptor: int) -> None:
    loop = asyncio.get_running_loop()
    ready = asyncio.Event()
    loop.add_reader(descriptor, ready.set)
    try:
        await ready.wait()
    finally:
        loop.remove_reader(descriptor)
