"""/admin/reapers: background sweeps, their runs, and buttons to run them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.base.times import duration, ms_of, ms_or_none
from app.errors import InvalidSchedule
from app.features.upkeep.reapers import Reapers, SweepState
from app.features.upkeep.runs import MOST_KEPT, LastRun
from app.features.upkeep.sweeps import DELETE
from app.http.context import context_of
from app.pages.forms import TypedForm
from app.pages.permissions import REAP, allows
from app.pages.render import page
from app.pages.session import fields_of

if TYPE_CHECKING:
    from app.features.feature import Sweep

WAIT_SECONDS: Final = 2.0  # for the end of a run; after this the page shows it as running


class RunRow(msgspec.Struct, frozen=True):
    """A run, or a sweep and its last run. Times are in ms since 1970. Unknown values are None or ""."""

    name: str
    moves: str
    pace: str
    outcome: str
    level: str
    started_ms: int | None = None
    took: str = ""
    moved: int | None = None
    error: str = ""


async def show(request: Request) -> Response:
    return await _page(request)


async def run(request: Request) -> Response:
    """Run a sweep now, or join its run, and show the page. The run continues if the client disconnects.

    Raises NotFound, Unavailable, and the errors of the sweep.
    """
    await context_of(request).core(Reapers).run(request.path_params["name"], WAIT_SECONDS)
    return RedirectResponse("/admin/reapers", 303)


async def reschedule(request: Request) -> Response:
    """Set the schedule of deleting expired jobs. Shows the form again if it is not valid."""
    context, fields = context_of(request), await fields_of(request)
    try:
        await context.core(Reapers).deletion.set(fields.get("schedule", ""), context.access.actor(request))
    except InvalidSchedule as error:
        return await _page(request, error.status, TypedForm(fields, {"schedule": error.message}))
    return RedirectResponse("/admin/reapers", 303)


async def earlier(request: Request) -> Response:
    """Show a sweep's earlier runs. Raises NotFound."""
    name: str = request.path_params["name"]
    reapers = context_of(request).core(Reapers)
    sweep = reapers.sweep_named(name)
    rows = [_run_row(sweep, "", one) for one in await reapers.earlier(name)]
    return page(request, "reaper.html", title=name, name=name, moves=sweep.moves, rows=rows, most=MOST_KEPT)


async def _page(request: Request, status: int = 200, form: TypedForm | None = None) -> Response:
    reapers = context_of(request).core(Reapers)
    schedule = await reapers.deletion.get()
    return page(
        request,
        "reapers.html",
        status,
        title="Reapers",
        rows=[_row(state, schedule) for state in await reapers.states()],
        form=form or TypedForm({"schedule": schedule}),
        may_reap=allows(request, REAP),
    )


def _row(state: SweepState, schedule: str) -> RunRow:
    sweep = state.sweep
    every = "on demand" if sweep.every is None else duration(sweep.every * 1000)
    pace = (schedule or "never") if sweep is DELETE else every
    if state.last is None:
        return RunRow(sweep.name, sweep.moves, pace, "never ran", "")
    return _run_row(sweep, pace, state.last)


def _run_row(sweep: Sweep, pace: str, last: LastRun) -> RunRow:
    if last.running:
        outcome, level = "running", "ok"
    elif last.finished_at is None:
        outcome, level = "abandoned", "watch"
    else:
        outcome, level = ("failed", "bad") if last.error else ("done", "")
    ended = ms_or_none(last.finished_at)
    return RunRow(
        name=sweep.name,
        moves=sweep.moves,
        pace=pace,
        outcome=outcome,
        level=level,
        started_ms=ms_of(last.started_at),
        took="" if ended is None else duration(max(ended - ms_of(last.started_at), 0)),
        moved=last.moved,
        error=last.error or "",
    )
