"""Liveness, readiness, version, whether sign-in is required, and metrics. docs/metrics.md.

The probes need no sign-in unless HOLDFAST_PROBE_AUTH is set. Version and sign-in status never need it.
"""

from __future__ import annotations

import asyncio
import time
from typing import Any, Final

import msgspec
from starlette.responses import Response

from app import __version__
from app.base.keys import Scope
from app.base.metrics.exposition import Scrape
from app.base.outages import UNREACHABLE
from app.errors import Unavailable
from app.http.route import Call
from app.http.signin.people import GrantMissing
from app.kernel.counts.levels import Levels
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


class MetricsAnswer(msgspec.Struct):
    """The fields of the original server. metrics: all metrics by name."""

    topics: int
    topics_ephemeral: int
    topics_memory: int
    topics_disk: int
    topics_fsync: int
    routers: int
    records_live: int
    bytes_live: int
    queue_topics: int
    queue_leases_in_flight: int
    sse_connections: int
    watch_sessions: int
    ready: bool
    replay_progress: float
    uptime_ms: int
    wal: dict[str, Any]
    metrics: dict[str, Any]


_TEXT: Final = {"description": "Prometheus' text format.", "content": {"text/plain": {"schema": {"type": "string"}}}}
PLAIN_TEXT: Final = {"responses": {"200": _TEXT}}
TEXT_TOO: Final = {"responses": {"200": {"content": _TEXT["content"]}}}


async def metrics(call: Call) -> Response:
    """Get the metrics of all server processes behind this port. Works without the database, with the last known
    values."""
    return await _text(call, await _scrape(call))


async def metrics_v0(call: Call) -> Response:
    """Get the metrics as text, or as JSON if the client accepts that."""
    scrape = await _scrape(call)
    if _wants_json(call.request.headers.get("accept", "")):
        content = await asyncio.to_thread(lambda: msgspec.json.encode(scrape.json()))
        return Response(content, media_type="application/json")
    return await _text(call, scrape)


async def _scrape(call: Call) -> Scrape:
    context = call.context
    try:
        key = context.access.check(call.request, Scope.READ)
        reads = True
    except GrantMissing:
        key, reads = None, False  # a user without a grant sees the service's metrics, but no topic's
    levels = context.core(Levels)
    await levels.refresh()
    merged = await context.engine.metrics.gather()
    # A key for some topics must not see names of standbys and the like.
    whole = reads and (key is None or not key.prefixes)
    await asyncio.to_thread(levels.add_to, merged, server=whole)
    names = levels.names() if reads else frozenset()
    return Scrape(merged, names if key is None else frozenset(filter(key.covers, names)))


async def _text(call: Call, scrape: Scrape) -> Response:
    content, kind = await asyncio.to_thread(scrape.text, call.request.headers.get("accept", ""))
    return Response(content, headers={"content-type": kind})


def _wants_json(accept: str) -> bool:
    """Whether JSON is the first supported type in the Accept header."""
    for part in accept.split(","):
        kind = part.partition(";")[0].strip().lower()
        if kind == "application/json":
            return True
        if kind in {"text/plain", "application/openmetrics-text", "text/*", "*/*"}:
            return False
    return False
