"""POST /v0/topics/:topic/pause, /resume and /drain: an operator holds a queue up, and lets it go on."""

from __future__ import annotations

import time
from typing import Annotated, Final

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from app.base.keys import Scope
from app.errors import Unauthorized
from app.features.topics.control import hold
from app.features.topics.drains import Drains
from app.http import direct
from app.http.body import read_json
from app.http.bounds import about
from app.http.context import context_of
from app.http.departure import while_connected
from app.http.fields import encode, topic_in
from app.http.openapi import TOPIC, operation
from app.http.v0.bodies import Performance
from app.http.v0.fields import answer
from app.kernel.audit.trail import Action
from app.kernel.topics import control
from app.kernel.topics.control import Control

router = direct.router("jobs")

MAX_WAIT_MS: Final = 60_000

_TENANT = Annotated[str, Meta(min_length=1, max_length=128)]


class PauseBody(msgspec.Struct, forbid_unknown_fields=True):
    """All of the topic, or one tenant's jobs."""

    tenant: Annotated[_TENANT | None, about("Only this tenant's jobs.")] = None


class DrainBody(msgspec.Struct, forbid_unknown_fields=True):
    """How long to wait until nothing is left."""

    wait_ms: Annotated[int, Meta(ge=0, le=MAX_WAIT_MS, description="How long to wait until no job is left, in ms.")] = 0


class ControlAnswer(msgspec.Struct):
    """How the topic is held up now."""

    topic: str
    paused: Annotated[bool, about("No job of it is claimed.")]
    paused_tenants: Annotated[list[str], about("None of theirs is.")]
    draining: Annotated[bool, about("No more is taken in.")]
    performance: Performance


class DrainAnswer(ControlAnswer, kw_only=True):
    """The same, and what is left."""

    left: Annotated[int, about("Jobs that wait, are scheduled or blocked, or are being worked on.")]
    closes_in_ms: Annotated[int, about("Until then another process that has not heard of the drain may take some in.")]
    empty: Annotated[bool, about("No job is left, and none can come.")]


_pause = msgspec.json.Decoder(PauseBody)
_drain = msgspec.json.Decoder(DrainBody)


@router.post(
    "/v0/topics/{topic}/pause",
    response_class=Response,
    openapi_extra=operation(
        parameters=[TOPIC],
        body=PauseBody,
        body_required=False,
        answers={200: ControlAnswer},
        errors=[400, 401, 403, 404, 409, 413, 415, 503],
    ),
)
async def pause(request: Request) -> Response:
    """Hand out no more jobs, of the topic or of a tenant. Leases that are out go on, and so do enqueues."""
    began = time.perf_counter()
    name = _asked(request)
    body = await _pause_body(request)
    held = await hold(request, name, control.paused(body.tenant), Action.TOPIC_PAUSED)
    return answer(encode(_shown(name, held))[1:-1], began)


@router.post(
    "/v0/topics/{topic}/resume",
    response_class=Response,
    openapi_extra=operation(
        parameters=[TOPIC],
        body=PauseBody,
        body_required=False,
        answers={200: ControlAnswer},
        errors=[400, 401, 403, 404, 409, 413, 415, 503],
    ),
)
async def resume(request: Request) -> Response:
    """Hand out jobs again, and take them in: of the topic and all its tenants, or of one tenant that was paused."""
    began = time.perf_counter()
    name = _asked(request)
    body = await _pause_body(request)
    held = await hold(request, name, control.resumed(body.tenant), Action.TOPIC_RESUMED)
    return answer(encode(_shown(name, held))[1:-1], began)


@router.post(
    "/v0/topics/{topic}/drain",
    response_class=Response,
    openapi_extra=operation(
        parameters=[TOPIC],
        body=DrainBody,
        body_required=False,
        answers={200: DrainAnswer},
        errors=[400, 401, 403, 404, 409, 413, 415, 503],
    ),
)
async def drain(request: Request) -> Response:
    """Take in no more jobs, until the topic is resumed; with `wait_ms`, answer once none is left, or then."""
    began = time.perf_counter()
    context, name = context_of(request), topic_in(request)
    key = context.access.check(request, Scope.ADMIN, name)
    body = await read_json(request, _drain, context.settings.max_body_bytes, empty=b"{}")
    held = await hold(request, name, control.drained, Action.TOPIC_DRAINED)
    left = await while_connected(request, context.core(Drains).wait(name, body.wait_ms / 1000))
    if not context.access.still_good(key):
        raise Unauthorized("This key was revoked or has expired.")
    shown = {"left": left.jobs, "closes_in_ms": left.closes_in_ms, "empty": left.empty}
    return answer(encode(_shown(name, held) | shown)[1:-1], began)


def _asked(request: Request) -> str:
    """The topic, which the caller may hold up."""
    name = topic_in(request)
    context_of(request).access.check(request, Scope.ADMIN, name)
    return name


async def _pause_body(request: Request) -> PauseBody:
    return await read_json(request, _pause, context_of(request).settings.max_body_bytes, empty=b"{}")


def _shown(name: str, held: Control) -> dict[str, object]:
    return {
        "topic": name,
        "paused": held.paused,
        "paused_tenants": held.paused_tenants,
        "draining": held.draining,
    }
