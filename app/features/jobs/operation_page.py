"""/admin/topics/{topic}/dead/operations/{id} and /jobs/operations/{id}: the progress of a requeue or cancel."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.base.times import ms_of, ms_or_none
from app.errors import NotFound
from app.features.jobs import filters
from app.features.jobs.operations import Operation, OperationState
from app.features.jobs.redrives import Redrives
from app.features.jobs.requests import find_operation
from app.http.context import context_of
from app.kernel.topics.policy import check_name
from app.pages.frame import tabs
from app.pages.permissions import CHANGE_JOBS, REQUEUE, SEE, Permission, allows, check_permission
from app.pages.render import page

STATUS: Final = {  # a state's badge: its text and tone
    OperationState.CANARY: ("canary running", "watch"),
    OperationState.RUNNING: ("running", "ok"),
    OperationState.DONE: ("done", "ok"),
    OperationState.CANCELLED: ("cancelled", "watch"),
    OperationState.STOPPED: ("stopped by its canary", "bad"),
    OperationState.FAILED: ("failed", "bad"),
}


async def show(request: Request) -> Response:
    """Render the page. Raises NotFound, Unavailable."""
    found, name = await _operation_in(request, SEE), request.path_params["topic"]
    rest = max(found.matched.count - found.jobs_done - found.skipped, 0)
    rate = found.wanted.rate
    return page(
        request,
        "operation.html",
        title=f"{found.wanted.kind.capitalize()} of {name}",
        topic=name,
        tabs=tabs(request, name),
        here=address(found),
        matches="" if found.wanted.cancels is None else filters.words_of(found.wanted.cancels),
        one=found,
        badge=STATUS[found.state],
        over=found.ended_at is not None,
        parts=[("in-flight", found.jobs_done), ("blocked", found.skipped), ("rest", rest)],
        rest=rest,
        rest_ms=rest * 1_000 // rate if rate and found.state is OperationState.RUNNING else None,
        started_ms=ms_of(found.started_at),
        ended_ms=ms_or_none(found.ended_at),
        by=found.actor[1] or found.actor[0],
        may_cancel=allows(request, _permission_for(found), name),
    )


async def cancel(request: Request) -> Response:
    """Ask the operation to end after its current batch. Raises NotFound, Forbidden, Unavailable."""
    found = await _operation_in(request, SEE)
    check_permission(request, _permission_for(found), found.wanted.topic[0])
    context = context_of(request)
    await context.core(Redrives).cancel(found.id, context.access.actor(request))
    return RedirectResponse(address(found), 303)


def address(one: Operation) -> str:
    """The address of an operation's page."""
    part = "dead" if one.wanted.cancels is None else "jobs"
    return f"/admin/topics/{one.wanted.topic[0]}/{part}/operations/{one.id}"


def _permission_for(one: Operation) -> Permission:
    return REQUEUE if one.wanted.cancels is None else CHANGE_JOBS


async def _operation_in(request: Request, permission: Permission) -> Operation:
    name, which = check_name(request.path_params["topic"]), request.path_params["id"]
    found = await find_operation(context_of(request), which, check_permission(request, permission, name))
    if found.wanted.topic[0] != name:
        raise NotFound(f"There is no operation {which[:80]!r} in this topic.")
    return found
