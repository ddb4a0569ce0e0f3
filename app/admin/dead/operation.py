"""/admin/topics/{topic}/dead/operations/{id}: how far a requeue is, and its end before that."""

from __future__ import annotations

from typing import Final

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.admin.frame import tabs
from app.admin.permissions import REQUEUE, SEE, Permission, allows, must_be_allowed
from app.admin.render import page
from app.edge.context import context_of
from app.edge.dead_letters import find_operation
from app.errors import NotFound
from app.queue.operations import Operation, State
from app.topics.config import check_name

SAID: Final = {  # of a state: in a word or two, and in which tone
    State.CANARY: ("the first are tried", "watch"),
    State.RUNNING: ("under way", "ok"),
    State.DONE: ("done", "ok"),
    State.CANCELLED: ("cancelled", "watch"),
    State.STOPPED: ("stopped by its canary", "bad"),
    State.FAILED: ("failed", "bad"),
}


async def show(request: Request) -> Response:
    """The page. Raises NotFound, Unavailable."""
    found, name = await _found(request, SEE), request.path_params["topic"]
    rest = max(found.matched.count - found.requeued - found.skipped, 0)
    rate = found.wanted.rate
    return page(
        request,
        "dead_operation.html",
        title=f"Requeue from {name}",
        topic=name,
        tabs=tabs(request, name),
        one=found,
        said=SAID[found.state],
        over=found.ended_at is not None,
        parts=[("in-flight", found.requeued), ("blocked", found.skipped), ("rest", rest)],
        rest=rest,
        rest_ms=rest * 1_000 // rate if rate and found.state is State.RUNNING else None,
        started_ms=int(found.started_at.timestamp() * 1000),
        ended_ms=None if found.ended_at is None else int(found.ended_at.timestamp() * 1000),
        by=found.actor[1] or found.actor[0],
        may_cancel=allows(request, REQUEUE, name),
    )


async def cancel(request: Request) -> Response:
    """Ask it to end after the batch that it is at. Raises NotFound, Unavailable."""
    found = await _found(request, REQUEUE)
    context = context_of(request)
    await context.engine.redrives.cancel(found.id, context.access.actor(request))
    return RedirectResponse(f"/admin/topics/{found.wanted.topic[0]}/dead/operations/{found.id}", 303)


async def _found(request: Request, permission: Permission) -> Operation:
    name, which = check_name(request.path_params["topic"]), request.path_params["id"]
    found = await find_operation(context_of(request), which, must_be_allowed(request, permission, name))
    if found.wanted.topic[0] != name:
        raise NotFound(f"There is no operation {which[:80]!r} in this topic.")
    return found
