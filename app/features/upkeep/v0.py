"""/v0/admin/reapers: the background sweeps, seen and run on demand."""

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
    """The parameter of the path that names one of these."""
    return path("name", "The reaper's name.", {"type": "string", "enum": [sweep.name for sweep in sweeps]})


class RunReaperBody(msgspec.Struct, forbid_unknown_fields=True):
    """How long the answer may take."""

    wait_ms: Annotated[
        int,
        Meta(ge=0, le=MOST_WAIT_MS, description="How long to wait for the end of the run, in ms."),
    ] = MOST_WAIT_MS


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


class ReaperRunsAnswer(msgspec.Struct):
    """The runs of a reaper that moved something, or failed, the last one first: 50 are kept."""

    name: str
    runs: list[ReaperRun]


class RunReaperAnswer(msgspec.Struct):
    """What the run has moved: jobs, records, keys, partitions. 202, `running`: so far, and it goes on."""

    moved: int
    running: bool


async def page(call: Call) -> ReapersAnswer:
    """Every background sweep, how often it runs, and how its last run went."""
    reapers = call.context.core(Reapers)
    schedule = await reapers.deletion.get()
    return ReapersAnswer([_reaper(state, schedule) for state in await reapers.states()])


async def earlier(call: Call) -> ReaperRunsAnswer:
    """What a reaper's runs moved and when: the last ones that moved something, or failed."""
    name: str = call.request.path_params["name"]
    return ReaperRunsAnswer(name, [_run_of(one) for one in await call.context.core(Reapers).earlier(name)])


async def run(call: Call, body: RunReaperBody) -> tuple[int, RunReaperAnswer]:
    """Run a sweep now and wait for its end; one that is under way, in whichever process, is joined. What is asked for
    goes on if the client leaves."""
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
