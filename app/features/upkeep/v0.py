"""/v0/admin/reapers: list the background sweeps, and run them on demand."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
from msgspec import Meta

from app.base.times import ms_of, ms_or_none
from app.features.upkeep.reapers import MOST_WAIT_MS, Reapers, SweepState
from app.features.upkeep.runs import LastRun
from app.features.upkeep.sweeps import DELETE
from app.http.departure import while_connected
from app.http.openapi import path
from app.http.route import Call

if TYPE_CHECKING:
    from app.features.feature import Sweep


def name_of(sweeps: Sequence[Sweep]) -> dict[str, Any]:
    """Build the path parameter with a sweep's name."""
    return path("name", "The reaper's name.", {"type": "string", "enum": [sweep.name for sweep in sweeps]})


class RunReaperBody(msgspec.Struct, forbid_unknown_fields=True):
    """How long to wait."""

    wait_ms: Annotated[
        int,
        Meta(ge=0, le=MOST_WAIT_MS, description="How long to wait for the end of the run, in ms."),
    ] = MOST_WAIT_MS


class ReaperRun(msgspec.Struct):
    """A run. Times are in ms since 1970. While it is `running`, `moved` is as of its last heartbeat. `error`: why it
    failed. A run that has not finished and is not running was abandoned. The next run continues it."""

    started_at: int
    finished_at: int | None
    running: bool
    moved: int
    error: str | None


class Reaper(msgspec.Struct):
    """A reaper. `every_ms`: how often it runs; null: only on demand and by `schedule`. `schedule` is null for other
    reapers. `last_run`: the last run of any process; null before the first."""

    name: str
    every_ms: int | None
    schedule: str | None
    last_run: ReaperRun | None


class ReapersAnswer(msgspec.Struct):
    """All reapers."""

    reapers: list[Reaper]


class ReaperRunsAnswer(msgspec.Struct):
    """The last 50 runs of a reaper that moved something or failed, newest first."""

    name: str
    runs: list[ReaperRun]


class RunReaperAnswer(msgspec.Struct):
    """How many jobs, records, keys or partitions the run has moved. `running` (with status 202): the run continues."""

    moved: int
    running: bool


async def page(call: Call) -> ReapersAnswer:
    """List the background sweeps with their intervals and last runs."""
    reapers = call.context.core(Reapers)
    schedule = await reapers.deletion.get()
    return ReapersAnswer([_reaper(state, schedule) for state in await reapers.states()])


async def earlier(call: Call) -> ReaperRunsAnswer:
    """List a reaper's last runs that moved something or failed."""
    name: str = call.request.path_params["name"]
    return ReaperRunsAnswer(name, [_run_of(one) for one in await call.context.core(Reapers).earlier(name)])


async def run(call: Call, body: RunReaperBody) -> tuple[int, RunReaperAnswer]:
    """Run a sweep now and wait for its end. If a run is in progress in any process, join it. The run continues if the
    client disconnects."""
    name: str = call.request.path_params["name"]
    outcome = await while_connected(call.request, call.context.core(Reapers).run(name, body.wait_ms / 1000))
    return 202 if outcome.running else 200, RunReaperAnswer(outcome.moved, outcome.running)


def _reaper(state: SweepState, schedule: str) -> Reaper:
    every = None if state.sweep.every is None else int(state.sweep.every * 1000)
    run = None if state.last is None else _run_of(state.last)
    return Reaper(state.sweep.name, every, schedule if state.sweep is DELETE else None, run)


def _run_of(last: LastRun) -> ReaperRun:
    ended = ms_or_none(last.finished_at)
    return ReaperRun(ms_of(last.started_at), ended, last.running, last.moved, last.error)
