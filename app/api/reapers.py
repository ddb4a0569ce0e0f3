"""Running a reaper on demand, in every dialect."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from app.api.calls import LEFT, ended_with
from app.api.departure import while_connected
from app.edge.context import context_of
from app.reapers.runner import Outcome

MOST_WAIT_MS: Final = 55_000  # below the minute after which proxies give up


async def run(request: Request, name: str, wait_seconds: float) -> Outcome | None:
    """Run a reaper or join its run, and wait for its end for as long as the caller does; None: the caller has left. The
    run goes on whoever leaves. The request's body must have been read. Raises NotFound, and as Runner.run."""
    outcome = await while_connected(request, context_of(request).reapers.run(name, wait_seconds))
    if outcome is None:
        ended_with(request, LEFT)
    return outcome
