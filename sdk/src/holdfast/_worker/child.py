"""Runs a handler in another process: in a pool, or isolated if its job may be a poison pill."""

from __future__ import annotations

import asyncio
import inspect
import math
import multiprocessing
import os
import signal
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any, Final

import httpx

from holdfast import _trace
from holdfast._attempts import Options
from holdfast._objects import Objects
from holdfast._transport import LIMITS, Account, AsyncSender, SyncSender
from holdfast._worker.context import Context
from holdfast._worker.handlers import parameters
from holdfast._worker.outcomes import Judged, judged, unless_committed
from holdfast._worker.payloads import Encoder, decoder
from holdfast._worker.running import RUNNING
from holdfast._worker.taken import Taken

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]


LATE_SECONDS: Final = 5  # after the timeout, until a process ends itself if its worker has not killed it
MAX_SECONDS: Final = 1e9  # limit of an alarm


@dataclass(frozen=True, slots=True)
class Order:
    """A job in a picklable form: its payload and the rest of the claimed body. The function is pickled by name.
    `trace`: the trace context of its span in the worker."""

    function: Callable[..., Any]
    topic: str
    data: Any
    body: dict[str, Any]
    retry: tuple[float, ...] | None
    account: Account
    encode: Encoder | None
    objects: Objects | None
    trace: Mapping[str, str] = field(default_factory=dict)


def perform(order: Order) -> Judged:
    """Run a job. Returns how to settle it."""
    taken = Taken(order.body, order.account.node, math.inf)
    run_async = inspect.iscoroutinefunction(order.function)
    try:
        with _trace.within(order.trace):
            value = asyncio.run(_run_async(order, taken)) if run_async else _run(order, taken)
    except (Exception, SystemExit, asyncio.CancelledError) as error:
        value = error
    made = judged(value, order.retry, order.body["deliveries"])
    return unless_committed(made) if taken.completes else made


def in_child() -> None:
    """Initialize a child process. It ends when its worker ends, and ignores Ctrl-C, on which the worker finishes its
    jobs."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    threading.Thread(target=_end_with_parent, name="holdfast-parent", daemon=True).start()


def perform_alone(order: Order, memory_bytes: int, seconds: float, answers: Connection) -> None:
    """Run a job with at most `memory_bytes` of additional memory, and send its outcome. The worker kills the process
    after `seconds`; if the worker is gone, an alarm does."""
    in_child()
    if hasattr(signal, "alarm"):
        signal.alarm(math.ceil(min(seconds, MAX_SECONDS)) + LATE_SECONDS)
    _limit(memory_bytes)
    with suppress(BrokenPipeError):  # the worker no longer waits
        answers.send(perform(order))


def _run(order: Order, taken: Taken) -> Any:
    with httpx.Client(limits=LIMITS) as http:
        return _call(order, taken, SyncSender(http, order.account, Options(), order.objects))


async def _run_async(order: Order, taken: Taken) -> Any:
    async with httpx.AsyncClient(limits=LIMITS) as http:
        return await _call(order, taken, AsyncSender(http, order.account, Options(), order.objects))


def _call(order: Order, taken: Taken, sender: SyncSender | AsyncSender) -> Any:
    wants_context, hint = parameters(order.function)
    arguments = [decoder(hint)(order.data, order.body.get("content_type"))]
    context: Context[Any] = Context(sender, order.topic, order.body, order.encode)
    RUNNING.set((taken, lambda _: context))
    if wants_context:
        arguments.append(context)
    return order.function(*arguments)


def _end_with_parent() -> None:
    parent = multiprocessing.parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def _limit(memory_bytes: int) -> None:
    """Limit memory, if the system supports it."""
    if resource is not None:
        with suppress(OSError, ValueError):
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            most = pages * resource.getpagesize() + memory_bytes
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
