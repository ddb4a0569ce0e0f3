"""The current job, in a handler and in everything that it awaits, calls or starts."""

from __future__ import annotations

from collections.abc import Callable
from contextvars import ContextVar
from typing import Any, Final

from holdfast._transport import AsyncSender, SyncSender
from holdfast._worker.context import AsyncContext, Context, SyncContext
from holdfast._worker.taken import Taken

# The job, and a function that makes its context when first needed.
RUNNING: Final[ContextVar[tuple[Taken, Callable[[Taken], Context[Any]]] | None]] = ContextVar("holdfast", default=None)


def async_context() -> AsyncContext:
    """The context of the current job, in an async handler and in functions that it calls and tasks that it starts.
    Raises RuntimeError outside of a handler and in a sync handler."""
    context = _context()
    if not isinstance(context._sender, AsyncSender):
        raise RuntimeError("this handler is not async: use sync_context()")
    return context


def sync_context() -> SyncContext:
    """The context of the current job, in handlers that run in threads or processes. Raises RuntimeError as
    `async_context`."""
    context = _context()
    if not isinstance(context._sender, SyncSender):
        raise RuntimeError("this handler is async: use async_context()")
    return context


def user_id() -> str | None:
    """The user of the current job; None without one."""
    running = RUNNING.get()
    return None if running is None else (running[0].body.get("meta") or {}).get("$user_id")


def completes(token: str) -> None:
    """Note that the handler completes the current job in a transaction, if the token is that job's."""
    running = RUNNING.get()
    if running is not None and running[0].body["token"] == token:
        running[0].completes = True


def _context() -> Context[Any]:
    running = RUNNING.get()
    if running is None:
        raise RuntimeError("no handler is running: the current job and its topic exist only in handlers")
    taken, make = running
    return taken.context or make(taken)
