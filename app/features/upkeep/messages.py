"""/api/admin/…-reaper: expired messages marked and deleted on demand, and when they are deleted by themselves."""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from app.base.cron import MOST_LENGTH
from app.features.upkeep import requests as shared
from app.features.upkeep.loop import ARCHIVE, DELETE, EXPIRY, Reapers
from app.http import direct
from app.http.body import read_json
from app.http.context import context_of
from app.http.messages.errors import operation

router = direct.router("messages")

_ERRORS = [400, 401, 403, 413, 415, 503]


class RunBody(msgspec.Struct, forbid_unknown_fields=True):
    """How long the answer may take."""

    wait_seconds: Annotated[
        float,
        Meta(ge=0, le=shared.MOST_WAIT_MS // 1000, description="How long to wait for the end of the run."),
    ] = shared.MOST_WAIT_MS // 1000


class ReaperExpired(msgspec.Struct):
    """How many messages the run has marked as expired."""

    expired: int


class ReaperExpiredSoFar(ReaperExpired):
    """The same, so far: the run goes on."""

    running: bool = True


class ReaperDeleted(msgspec.Struct):
    """How many messages the run has deleted."""

    deleted: int


class ReaperDeletedSoFar(ReaperDeleted):
    """The same, so far: the run goes on."""

    running: bool = True


class ScheduleBody(msgspec.Struct, forbid_unknown_fields=True):
    """When expired messages are deleted."""

    schedule: Annotated[
        str,
        Meta(
            description="Cron of five fields (minute hour day month weekday), in UTC; empty: never.",
            extra_json_schema={"maxLength": MOST_LENGTH},
        ),
    ]


class ScheduleAnswer(msgspec.Struct):
    """When expired messages are deleted; `active`: whether that ever is."""

    schedule: str
    active: bool


_run_body = msgspec.json.Decoder(RunBody)
_schedule_body = msgspec.json.Decoder(ScheduleBody)


@router.post(
    "/api/admin/expiry-reaper/run",
    response_class=Response,
    openapi_extra=operation(
        body=RunBody, body_required=False, answers={200: ReaperExpired, 202: ReaperExpiredSoFar}, errors=_ERRORS
    ),
)
async def run_expiry(request: Request) -> Response:
    """Mark messages whose time to live has passed as expired. A run that is under way is joined."""
    return await _run(request, EXPIRY.name, ReaperExpired, ReaperExpiredSoFar)


@router.post(
    "/api/admin/delete-reaper/run",
    response_class=Response,
    openapi_extra=operation(
        body=RunBody, body_required=False, answers={200: ReaperDeleted, 202: ReaperDeletedSoFar}, errors=_ERRORS
    ),
)
async def run_delete(request: Request) -> Response:
    """Delete messages that were marked as expired. A run that is under way is joined."""
    return await _run(request, DELETE.name, ReaperDeleted, ReaperDeletedSoFar)


@router.post(
    "/api/admin/archive-reaper/run",
    response_class=Response,
    openapi_extra=operation(
        body=RunBody, body_required=False, answers={200: ReaperDeleted, 202: ReaperDeletedSoFar}, errors=_ERRORS
    ),
)
async def run_archive(request: Request) -> Response:
    """Delete from message logs what is past its topic's replay window. A run that is under way is joined."""
    return await _run(request, ARCHIVE.name, ReaperDeleted, ReaperDeletedSoFar)


@router.get(
    "/api/admin/delete-reaper/schedule",
    response_class=Response,
    openapi_extra=operation(answers={200: ScheduleAnswer}, errors=[401, 403, 503]),
)
async def get_schedule(request: Request) -> Response:
    """When expired messages are deleted."""
    context = context_of(request)
    context.access.check_server(request)
    return _schedule(await context.core(Reapers).deletion.get())


@router.put(
    "/api/admin/delete-reaper/schedule",
    response_class=Response,
    openapi_extra=operation(body=ScheduleBody, answers={200: ScheduleAnswer}, errors=[*_ERRORS, 422]),
)
async def put_schedule(request: Request) -> Response:
    """Say when expired messages are deleted, in every process; empty: never."""
    context = context_of(request)
    context.access.check_server(request)
    body = await read_json(request, _schedule_body, context.settings.max_body_bytes)
    return _schedule(await context.core(Reapers).deletion.set(body.schedule, context.access.actor(request)))


async def _run(request: Request, name: str, done: type[msgspec.Struct], so_far: type[msgspec.Struct]) -> Response:
    context = context_of(request)
    context.access.check_server(request)
    body = await read_json(request, _run_body, context.settings.max_body_bytes, empty=b"{}")
    outcome = await shared.run(request, name, body.wait_seconds)
    if outcome.running:
        return _json(so_far(outcome.moved), 202)
    return _json(done(outcome.moved))


def _schedule(text: str) -> Response:
    return _json(ScheduleAnswer(text, text != ""))


def _json(answer: msgspec.Struct, status: int = 200) -> Response:
    return Response(msgspec.json.encode(answer), status, media_type="application/json")
