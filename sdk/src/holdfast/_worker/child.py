"""A handler in another process: in a pool, or alone, where a job is suspected to kill its workers."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import httpx

from holdfast._attempts import Options
from holdfast._decode import payload
from holdfast._transport import LIMITS, Account, AsyncSender, SyncSender
from holdfast._worker.context import Context
from holdfast._worker.handlers import parameters
from holdfast._worker.outcomes import Judged, judged
from holdfast._worker.payloads import Encoder, decoder

try:
    import resource
except ImportError:  # Windows
    resource = None  # type: ignore[assignment]


@dataclass(frozen=True, slots=True)
class Order:
    """A job to run, in a form that can be sent to a process. The function is found there by its name."""

    function: Callable[..., Any]
    topic: str
    body: Mapping[str, Any]
    retry: tuple[float, ...] | None
    account: Account
    encode: Encoder | None


def perform(order: Order) -> Judged:
    """Run it; how it is to be settled."""
    try:
        value = asyncio.run(_run_async(order)) if inspect.iscoroutinefunction(order.function) else _run(order)
    except Exception as error:
        value = error
    return judged(value, order.retry, order.body["deliveries"])


def perform_alone(order: Order, memory_bytes: int, answers: Connection) -> None:
    """Run it with so much more memory than this process has, and say what came of it."""
    _limit(memory_bytes)
    with suppress(BrokenPipeError):  # nobody waits for it any more
        answers.send(perform(order))


def _run(order: Order) -> Any:
    with httpx.Client(limits=LIMITS) as http:
        return _call(order, SyncSender(http, order.account, Options()))


async def _run_async(order: Order) -> Any:
    async with httpx.AsyncClient(limits=LIMITS) as http:
        return await _call(order, AsyncSender(http, order.account, Options()))


def _call(order: Order, sender: SyncSender | AsyncSender) -> Any:
    wants_context, hint = parameters(order.function)
    decode = decoder(hint)
    data = payload(order.body["data"])
    arguments = [data if decode is None else decode(data)]
    if wants_context:
        arguments.append(Context(sender, order.topic, order.body, order.encode))
    return order.function(*arguments)


def _limit(memory_bytes: int) -> None:
    """Where the system has such limits."""
    if resource is not None:
        with suppress(OSError, ValueError):
            pages = int(Path("/proc/self/statm").read_text().split()[0])
            most = pages * resource.getpagesize() + memory_bytes
            resource.setrlimit(resource.RLIMIT_AS, (most, most))
