"""Running a reaper on demand, in every dialect."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request

from app.features.upkeep.loop import Reapers
from app.features.upkeep.runner import Outcome
from app.http.context import context_of
from app.http.departure import while_connected

MOST_WAIT_MS: Final = 55_000  # below the minute after which proxies give up


async def run(request: Request, name: str, wait_seconds: float) -> Outcome:
    """Run a reaper or join its run, and wait for its end for as long as the caller does. The run goes on where they
    leave. The request's body must have been read. Raises NotFound, ClientDisconnect, and as Runner.run."""
    return await while_connected(request, context_of(request).core(Reapers).run(name, wait_seconds))
