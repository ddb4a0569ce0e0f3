"""Liveness, readiness, version, and whether sign-in is required.

The probes need no sign-in unless HOLDFAST_PROBE_AUTH is set. The others never need it.
"""

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
    """The process can work: its database answers. topics: the number of topics."""

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
    """Check that the process runs. Does not use the database."""
    _check(call)
    return Health("ok", __version__, int((time.monotonic() - call.context.started) * 1000))


async def ready(call: Call) -> Ready:
    """Check that the process can work: its database answers."""
    _check(call)
    try:
        topics = await asyncio.wait_for(store.count(call.context.pools.rest), READY_SECONDS)
    except UNREACHABLE:
        raise Unavailable("The database does not answer.") from None
    return Ready("ready", True, topics)


async def version(_call: Call) -> Version:
    """Get the service's version."""
    return Version(__version__)


async def auth_status(call: Call) -> AuthStatus:
    """Get whether requests need sign-in with a key, a token or a password."""
    return AuthStatus(call.context.access.directory.guarded)


def _check(call: Call) -> None:
    """With HOLDFAST_PROBE_AUTH, check that the request has a valid key. Any scope will do. Raises Unauthorized."""
    if call.context.settings.probe_auth:
        call.context.access.check(call.request, Scope(0))
