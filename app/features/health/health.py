"""Liveness and readiness, without sign-in unless HOLDFAST_PROBE_AUTH asks for it."""

from __future__ import annotations

import asyncio
import time

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app import __version__
from app.base.keys import Scope
from app.base.outages import UNREACHABLE
from app.errors import Unavailable
from app.http import direct
from app.http.context import context_of
from app.http.openapi import operation
from app.kernel.topics import store

router = direct.router("health")
READY_SECONDS = 2.0


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


@router.get(
    "/v0/health",
    openapi_extra=operation(answers={200: Health}, errors=[401], open_to_all=True),
    response_class=Response,
)
@router.get(
    "/healthz", openapi_extra=operation(answers={200: Health}, errors=[401], open_to_all=True), response_class=Response
)
async def health(request: Request) -> Response:
    """Does the process run? Asks nothing of the database."""
    _check(request)
    uptime = int((time.monotonic() - context_of(request).started) * 1000)
    return _json(Health("ok", __version__, uptime))


@router.get(
    "/v0/ready",
    openapi_extra=operation(answers={200: Ready}, errors=[401, 503], open_to_all=True),
    response_class=Response,
)
@router.get(
    "/readyz",
    openapi_extra=operation(answers={200: Ready}, errors=[401, 503], open_to_all=True),
    response_class=Response,
)
async def ready(request: Request) -> Response:
    """Can the process work? Asks the database."""
    _check(request)
    try:
        topics = await asyncio.wait_for(store.count(context_of(request).pools.rest), READY_SECONDS)
    except UNREACHABLE:
        raise Unavailable("The database does not answer.") from None
    return _json(Ready("ready", True, topics))


def _check(request: Request) -> None:
    """Any key will do, where one is needed for this. Raises Unauthorized."""
    context = context_of(request)
    if context.settings.probe_auth:
        context.access.check(request, Scope(0))


def _json(answer: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(answer), media_type="application/json")
