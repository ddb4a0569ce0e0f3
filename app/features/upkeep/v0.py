"""/v0/admin/reapers: the background sweeps, seen and run on demand."""

from __future__ import annotations

import time
from datetime import datetime
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from app.features.upkeep import requests as shared
from app.features.upkeep.loop import DELETE, SWEEPS, Reapers, State
from app.features.upkeep.runs import Last
from app.http import direct
from app.http.body import read_json
from app.http.context import context_of
from app.http.fields import encode, known_parameters
from app.http.openapi import operation, path
from app.http.v0.bodies import Performance
from app.http.v0.fields import answer

router = direct.router("admin")

NAME = path("name", "The reaper's name.", {"type": "string", "enum": [sweep.name for sweep in SWEEPS]})


class RunReaperBody(msgspec.Struct, forbid_unknown_fields=True):
    """How long the answer may take."""

    wait_ms: Annotated[
        int,
        Meta(ge=0, le=shared.MOST_WAIT_MS, description="How long to wait for the end of the run, in ms."),
    ] = shared.MOST_WAIT_MS


class ReaperRun(msgspec.Struct):
    """Times are in ms since 1970. `moved`: of a run that is under way, at its last sign of life. `error`: why it
    failed. One that has neither ended nor is running was left behind, and the next run goes on with it."""

    started_at: int
    finished_at: int | None
    running: bool
    moved: int
    error: str | None


class Reaper(msgspec.Struct):
    """A reaper. `every_ms`: how often it runs by itself; null: on demand or by `schedule` only, which others don't
    have. `last_run`: in whichever process; null before the first."""

    name: str
    every_ms: int | None
    schedule: str | None
    last_run: ReaperRun | None


class ReapersAnswer(msgspec.Struct):
    """Every reaper."""

    reapers: list[Reaper]
    performance: Performance


class ReaperRunsAnswer(msgspec.Struct):
    """The runs of a reaper that moved something, or failed, the last one first: 50 are kept."""

    name: str
    runs: list[ReaperRun]
    performance: Performance


class RunReaperAnswer(msgspec.Struct):
    """What the run has moved: jobs, records, keys, partitions. 202, `running`: so far, and it goes on."""

    moved: int
    running: bool
    performance: Performance


_body = msgspec.json.Decoder(RunReaperBody)


@router.get(
    "/v0/admin/reapers",
    response_class=Response,
    openapi_extra=operation(answers={200: ReapersAnswer}, errors=[400, 401, 403, 503]),
)
async def page(request: Request) -> Response:
    """Every background sweep, how often it runs, and how its last run went."""
    began = time.perf_counter()
    context = context_of(request)
    context.access.check_server(request)
    known_parameters(request, set())
    schedule = await context.core(Reapers).deletion.get()
    shown = [_shown(state, schedule) for state in await context.core(Reapers).states()]
    return answer(b'"reapers":%b' % encode(shown), began)


@router.get(
    "/v0/admin/reapers/{name}/runs",
    response_class=Response,
    openapi_extra=operation(parameters=[NAME], answers={200: ReaperRunsAnswer}, errors=[400, 401, 403, 404, 503]),
)
async def earlier(request: Request) -> Response:
    """What a reaper's runs moved and when: the last ones that moved something, or failed."""
    began = time.perf_counter()
    context = context_of(request)
    context.access.check_server(request)
    known_parameters(request, set())
    name: str = request.path_params["name"]
    found = await context.core(Reapers).earlier(name)
    return answer(encode({"name": name, "runs": [_run_shown(one) for one in found]})[1:-1], began)


@router.post(
    "/v0/admin/reapers/{name}/run",
    response_class=Response,
    openapi_extra=operation(
        parameters=[NAME],
        body=RunReaperBody,
        body_required=False,
        answers={200: RunReaperAnswer, 202: RunReaperAnswer},
        errors=[400, 401, 403, 404, 413, 415, 503],
    ),
)
async def run(request: Request) -> Response:
    """Run a sweep now and wait for its end; one that is under way, in whichever process, is joined. What is asked for
    goes on if the client leaves."""
    began = time.perf_counter()
    context = context_of(request)
    context.access.check_server(request)
    known_parameters(request, set())
    body = await read_json(request, _body, context.settings.max_body_bytes, empty=b"{}")
    outcome = await shared.run(request, request.path_params["name"], body.wait_ms / 1000)
    fields = b'"moved":%d,"running":%b' % (outcome.moved, encode(outcome.running))
    return answer(fields, began, status=202 if outcome.running else 200)


def _shown(state: State, schedule: str) -> Reaper:
    every = None if state.sweep.every is None else int(state.sweep.every * 1000)
    run = None if state.last is None else _run_shown(state.last)
    return Reaper(state.sweep.name, every, schedule if state.sweep is DELETE else None, run)


def _run_shown(last: Last) -> ReaperRun:
    ended = None if last.finished_at is None else _ms(last.finished_at)
    return ReaperRun(_ms(last.started_at), ended, last.running, last.moved, last.error)


def _ms(at: datetime) -> int:
    return int(at.timestamp() * 1000)
