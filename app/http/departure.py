"""Handles callers that disconnect. Jobs claimed for such a caller are returned to the queue."""

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
    """Await `work`, and cancel it if the caller disconnects. The body must have been read. Raises ClientDisconnect."""
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(request.receive())  # after the body comes only the disconnect
    try:
        await asyncio.wait([working, leaving], return_when=asyncio.FIRST_COMPLETED)
        if working.done():
            return working.result()
        raise ClientDisconnect
    finally:
        leaving.cancel()
        working.cancel()


def has_left(request: Request) -> bool:
    """Whether the caller has disconnected. The body must have been read.

    Runs one step of the server's `receive`, which either returns the disconnect or would wait. Starlette's own method
    opens a cancel scope, which costs as much as the rest of a claim.
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
    """Check before and after the block that the caller can receive claimed jobs. If not, or if the block fails, the
    jobs are returned. Raises Unauthorized, Throttled, ClientDisconnect."""
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
