"""Callers that leave: whether one is still connected, and giving back jobs that were claimed for one that is not. A
caller that has left is a ClientDisconnect, which errors.py answers: nobody reads it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Coroutine, Sequence
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, TypeVar

from starlette.requests import ClientDisconnect, Request

from app.errors import Unauthorized
from app.http.context import context_of

if TYPE_CHECKING:
    from app.base.keys import Key
    from app.kernel.model import Job
    from app.kernel.topics.policy import Policy

T = TypeVar("T")


async def while_connected(request: Request, work: Coroutine[Any, Any, T]) -> T:
    """Do this for as long as the caller, whose body was read, is connected; cancel it when they leave. Raises
    ClientDisconnect."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(request.receive())  # what comes now is the disconnect
    try:
        await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
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


@asynccontextmanager
async def handing_out(
    request: Request, key: Key | None, node: str, claimed: Sequence[tuple[Policy, Sequence[Job]]]
) -> AsyncIterator[None]:
    """Make sure that claimed jobs can be handed out, now and once the answer is made within. They go back where they
    can't, or where that fails. Raises Unauthorized, Throttled and ClientDisconnect."""
    context = context_of(request)
    try:
        if not context.access.still_good(key):
            raise Unauthorized("This key was revoked or has expired.")
        context.quota.must_have_room(0)
        yield
        if any(jobs for _, jobs in claimed) and has_left(request):
            raise ClientDisconnect
    except Exception:
        for policy, jobs in claimed:
            await context.engine.settlements.give_back(policy, node, jobs)
        raise
