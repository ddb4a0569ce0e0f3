"""/admin/reapers: the sweeps of the background, how they went last and earlier, and run now."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.base.times import duration
from app.errors import InvalidSchedule
from app.features.upkeep.loop import DELETE, Reapers, State
from app.features.upkeep.runs import MOST_KEPT, Last
from app.http.context import context_of
from app.pages.forms import Form, ms, ms_or_none
from app.pages.permissions import REAP, allows
from app.pages.render import page
from app.pages.session import fields_of

WAIT_SECONDS: Final = 2.0  # for the end of a run; what takes longer is seen to run
MOVES: Final = {
    "partitions": "makes partitions for the days to come",
    "expiry": "marks jobs that have outlived their time",
    "exhaustion": "takes out jobs whose last delivery ended in silence",
    "superseded": "ends jobs that a newer one of their key has replaced",
    "delete": "deletes jobs that are marked as expired",
    "finished": "deletes what failed, expired or died long ago",
    "retention": "drops days of the ledger and of results",
    "archive": "drops what no replay reaches any more",
    "tallies": "counts jobs one by one, and sets counts right",
    "logs": "takes out of logs what is too old or too much",
    "idempotency": "forgets idempotency keys and dedupe ids",
    "watches": "forgets watches that nobody is connected to",
    "user_events": "forgets events for users",
    "requeues": "goes on with requeues whose process has died",
    "stats": "counts what became of jobs, minute by minute",
    "depths": "writes down what queues hold, where it changes",
    "old_stats": "forgets minutes and depths after 31 days",
}


class Row(msgspec.Struct, frozen=True):
    """A sweep as the page shows it; times in ms since 1970, None and "" where nothing is known."""

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
    """The page."""
    return await _page(request)


async def run(request: Request) -> Response:
    """Run a sweep now, or join its run, and show how it goes; it goes on whoever leaves. Raises NotFound, Unavailable,
    and what the sweep raises."""
    await context_of(request).core(Reapers).run(request.path_params["name"], WAIT_SECONDS)
    return RedirectResponse("/admin/reapers", 303)


async def reschedule(request: Request) -> Response:
    """Say when expired jobs are deleted; the form again for what is no schedule."""
    context, fields = context_of(request), await fields_of(request)
    try:
        await context.core(Reapers).deletion.set(fields.get("schedule", ""), context.access.actor(request))
    except InvalidSchedule as error:
        return await _page(request, error.status, Form(fields, {"schedule": error.message}))
    return RedirectResponse("/admin/reapers", 303)


async def earlier(request: Request) -> Response:
    """What a sweep's earlier runs moved. Raises NotFound."""
    name: str = request.path_params["name"]
    found = await context_of(request).core(Reapers).earlier(name)
    return page(
        request,
        "reaper.html",
        title=name,
        name=name,
        moves=MOVES[name],
        rows=[_of_run(name, "", one) for one in found],
        most=MOST_KEPT,
    )


async def _page(request: Request, status: int = 200, form: Form | None = None) -> Response:
    reapers = context_of(request).core(Reapers)
    schedule = await reapers.deletion.get()
    return page(
        request,
        "reapers.html",
        status,
        title="Reapers",
        rows=[_row(state, schedule) for state in await reapers.states()],
        form=form or Form({"schedule": schedule}),
        may_reap=allows(request, REAP),
    )


def _row(state: State, schedule: str) -> Row:
    sweep, last = state.sweep, state.last
    every = "on demand" if sweep.every is None else duration(sweep.every * 1000)
    pace = (schedule or "never") if sweep is DELETE else every
    if last is None:
        return Row(sweep.name, MOVES[sweep.name], pace, "never ran", "")
    return _of_run(sweep.name, pace, last)


def _of_run(name: str, pace: str, last: Last) -> Row:
    if last.running:
        outcome, level = "running", "ok"
    elif last.finished_at is None:
        outcome, level = "left behind", "watch"
    else:
        outcome, level = ("failed", "bad") if last.error else ("done", "")
    ended = ms_or_none(last.finished_at)
    return Row(
        name=name,
        moves=MOVES[name],
        pace=pace,
        outcome=outcome,
        level=level,
        started_ms=ms(last.started_at),
        took="" if ended is None else duration(max(ended - ms(last.started_at), 0)),
        moved=last.moved,
        error=last.error or "",
    )
