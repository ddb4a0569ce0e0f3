"""The job that the code at hand works on: of a handler, and of what it awaits, calls or starts."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

from holdfast._transport import AsyncSender, SyncSender
from holdfast._worker.context import AsyncContext, Context, SyncContext
from holdfast._worker.taken import Taken

# With what makes its context, which most handlers do not ask for.
RUNNING: Final[ContextVar[tuple[Taken, Callable[[Taken], Context[Any]]] | None]] = ContextVar("holdfast", default=None)


def async_context() -> AsyncContext:
    """The context of the job that an async handler works on, wherever it is asked for: functions that it calls, tasks
    that it starts. Raises RuntimeError outside a handler, and in one that is not async."""
    context = _context()
    if not isinstance(context._sender, AsyncSender):
        raise RuntimeError("this handler is not async: it has a sync_context()")
    return context


def sync_context() -> SyncContext:
    """As `async_context`, for handlers that run in threads or processes."""
    context = _context()
    if not isinstance(context._sender, SyncSender):
        raise RuntimeError("this handler is async: it has an async_context()")
    return context


def user_id() -> str | None:
    """For whom the job at hand is; None where there is none."""
    running = RUNNING.get()
    return None if running is None else (running[0].body.get("meta") or {}).get("$user_id")


def completes(token: str) -> None:
    """The job at hand, if this is its token, is completed by a transaction of the handler's."""
    running = RUNNING.get()
    if running is not None and running[0].body["token"] == token:
        running[0].completes = True


def _context() -> Context[Any]:
    running = RUNNING.get()
    if running is None:
        raise RuntimeError("no handler runs here: a job, and the topic it came from, are known in handlers alone")
    taken, make = running
    return taken.context or make(taken)
