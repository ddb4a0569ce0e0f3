"""Whether a caller is still there."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from starlette.requests import Request

T = TypeVar("T")


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T | None:
    """Do this for as long as the caller is there, whose body was read; for one who leaves it is cancelled: None."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(request.receive())  # what comes now is the disconnect
    try:
        await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else None
    finally:
        leaving.cancel()
        working.cancel()


def has_left(request: Request) -> bool:
    """Whether the client of a request, whose body was read, has disconnected.

    One step of the server's `receive`: it either answers, and then only with a disconnect, or it would wait. What
    Starlette has for this opens a cancel scope, which costs as much as the rest of a claim.
    """
    step = request.receive().__await__()
    try:
        next(step)
    except StopIteration as answered:
        return bool(answered.value["type"] == "http.disconnect")
    step.close()
    return False
