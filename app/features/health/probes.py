"""How the service is: liveness and readiness, without sign-in unless HOLDFAST_PROBE_AUTH asks for it; and for everybody
its version, and whether anybody has to sign in."""

from __future__ import annotations

import asyncio
import time
from typing import Final

import msgspec

from app import __version__
from app.base.keys import Scope
from app.base.outages import UNREACHABLE
from app.errors import Unavailable
from app.http.route import Call
from app.kernel.topics import store

READY_SECONDS: Final = 2.0


class Health(msgspec.Struct):
    """The process runs."""

    status: str
    version: str
    uptime_ms: int


class Ready(msgspec.Struct):
    """The process can work: its database answers. `topics` is how many there are."""

    status: str
    wal_replay_complete: bool
    topics: int


class Version(msgspec.Struct):
    """The service's version."""

    version: str


class AuthStatus(msgspec.Struct):
    """Whether requests need sign-in."""

    auth_required: bool


async def health(call: Call) -> Health:
    """Does the process run? Asks nothing of the database."""
    _check(call)
    return Health("ok", __version__, int((time.monotonic() - call.context.started) * 1000))


async def ready(call: Call) -> Ready:
    """Can the process work? Asks the database."""
    _check(call)
    try:
        topics = await asyncio.wait_for(store.count(call.context.pools.rest), READY_SECONDS)
    except UNREACHABLE:
        raise Unavailable("The database does not answer.") from None
    return Ready("ready", True, topics)


async def version(_call: Call) -> Version:
    """Which version of the service this is."""
    return Version(__version__)


async def auth_status(call: Call) -> AuthStatus:
    """Whether requests need sign-in here: a key, a token or a password."""
    return AuthStatus(call.context.access.directory.guarded)


def _check(call: Call) -> None:
    """Any key will do, where one is needed for this. Raises Unauthorized."""
    if call.context.settings.probe_auth:
        call.context.access.check(call.request, Scope(0))
