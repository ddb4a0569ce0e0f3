"""Which pages there are, and what each takes."""

from __future__ import annotations

import functools
from collections.abc import Awaitable, Callable

import asyncpg
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Match, Mount, Route
from starlette.types import Scope

from app.admin import (
    asof,
    assets,
    audit,
    bench,
    config,
    home,
    horizon,
    keys,
    live,
    operation,
    permissions,
    reapers,
    render,
    saved,
    schedule_form,
    schedules,
    session,
    topic,
    topics,
    users,
    webhooks,
)
from app.admin.dead import clusters, purge, requeue, rows
from app.admin.jobs import actions, cancels, job, listing
from app.admin.permissions import (
    CHANGE_JOBS,
    CHANGE_KEYS,
    CHANGE_USERS,
    CONFIGURE,
    CONTROL,
    KEEP_VIEWS,
    MEASURE,
    PURGE,
    REAP,
    REQUEUE,
    SCHEDULE,
    SEE,
    SEE_RIGHTS,
    SEE_SCHEDULES,
    SEE_SERVER,
    Permission,
)
from app.base.outages import UNREACHABLE
from app.edge.access import UnknownKey
from app.edge.context import context_of
from app.errors import HoldfastError

Handler = Callable[[Request], Awaitable[Response]]

PAGES: tuple[tuple[str, str, Permission, Handler], ...] = (
    ("GET", "/", SEE, home.show),
    ("GET", "/find", SEE, topics.find),
    ("POST", "/views", KEEP_VIEWS, saved.save),
    ("POST", "/views/delete", KEEP_VIEWS, saved.delete),
    ("GET", "/topics", SEE, topics.show),
    ("GET", "/topics/{topic}", SEE, topic.show),
    ("GET", "/topics/{topic}/jobs", SEE, listing.show),
    ("GET", "/topics/{topic}/jobs/cancel", CHANGE_JOBS, cancels.ask),
    ("POST", "/topics/{topic}/jobs/cancel", CHANGE_JOBS, cancels.begin),
    ("GET", "/topics/{topic}/jobs/operations/{id}", SEE, operation.show),
    ("POST", "/topics/{topic}/jobs/operations/{id}/cancel", CHANGE_JOBS, operation.cancel),
    ("GET", "/topics/{topic}/jobs/{seq}", SEE, job.show),
    ("POST", "/topics/{topic}/jobs/{seq}/cancel", CHANGE_JOBS, actions.cancel),
    ("POST", "/topics/{topic}/jobs/{seq}/change", CHANGE_JOBS, actions.change),
    ("POST", "/topics/{topic}/jobs/{seq}/clone", CHANGE_JOBS, actions.clone),
    ("POST", "/topics/{topic}/jobs/{seq}/requeue", CHANGE_JOBS, actions.requeue),
    ("POST", "/topics/{topic}/jobs/{seq}/release", CHANGE_JOBS, actions.take_back),
    ("POST", "/topics/{topic}/release", CHANGE_JOBS, topic.take_back),
    ("POST", "/topics/{topic}/pause", CONTROL, topic.pause),
    ("POST", "/topics/{topic}/resume", CONTROL, topic.resume),
    ("GET", "/topics/{topic}/dead", SEE, clusters.show),
    ("GET", "/topics/{topic}/dead/jobs", SEE, rows.show),
    ("GET", "/topics/{topic}/dead/requeue", REQUEUE, requeue.ask),
    ("POST", "/topics/{topic}/dead/requeue", REQUEUE, requeue.begin),
    ("GET", "/topics/{topic}/dead/operations/{id}", SEE, operation.show),
    ("POST", "/topics/{topic}/dead/operations/{id}/cancel", REQUEUE, operation.cancel),
    ("GET", "/topics/{topic}/dead/purge", PURGE, purge.ask),
    ("POST", "/topics/{topic}/dead/purge", PURGE, purge.run),
    ("GET", "/topics/{topic}/config", SEE, config.show),
    ("POST", "/topics/{topic}/config", CONFIGURE, config.review),
    ("POST", "/topics/{topic}/config/save", CONFIGURE, config.save),
    ("GET", "/topics/{topic}/config/undo/{entry}", CONFIGURE, config.undo),
    ("GET", "/schedules", SEE_SCHEDULES, schedules.show),
    ("GET", "/schedules-new", SCHEDULE, schedule_form.ask),
    ("POST", "/schedules-new", SCHEDULE, schedule_form.make),
    ("GET", "/schedules/{name}", SEE_SCHEDULES, schedules.one),
    ("POST", "/schedules/{name}/pause", SCHEDULE, schedules.pause),
    ("POST", "/schedules/{name}/resume", SCHEDULE, schedules.resume),
    ("POST", "/schedules/{name}/run", SCHEDULE, schedules.run),
    ("POST", "/schedules/{name}/delete", SCHEDULE, schedules.delete),
    ("GET", "/schedules/{name}/edit", SCHEDULE, schedule_form.edit),
    ("POST", "/schedules/{name}/edit", SCHEDULE, schedule_form.change),
    ("GET", "/topics/{topic}/asof", SEE, asof.show),
    ("GET", "/horizon", SEE_SERVER, horizon.show),
    ("GET", "/reapers", SEE_SERVER, reapers.show),
    ("GET", "/reapers/{name}", SEE_SERVER, reapers.earlier),
    ("POST", "/reapers/{name}/run", REAP, reapers.run),
    ("POST", "/reapers/delete/schedule", REAP, reapers.reschedule),
    ("GET", "/bench", SEE_SERVER, bench.show),
    ("POST", "/bench", MEASURE, bench.run),
    ("GET", "/webhooks", SEE_SERVER, webhooks.show),
    ("GET", "/keys", SEE_RIGHTS, keys.show),
    ("GET", "/keys/new", SEE_RIGHTS, keys.ask),
    ("POST", "/keys/new", CHANGE_KEYS, keys.make),
    ("GET", "/keys/{id}", SEE_RIGHTS, keys.one),
    ("POST", "/keys/{id}/rotate", CHANGE_KEYS, keys.rotate),
    ("POST", "/keys/{id}/revoke", CHANGE_KEYS, keys.revoke),
    ("GET", "/users", SEE_SERVER, users.show),
    ("GET", "/users/new", SEE_SERVER, users.ask),
    ("POST", "/users/new", CHANGE_USERS, users.make),
    ("GET", "/users/{id}", SEE_SERVER, users.one),
    ("POST", "/users/{id}", CHANGE_USERS, users.change),
    ("POST", "/users/{id}/delete", CHANGE_USERS, users.delete),
    ("POST", "/users/{id}/grants", CHANGE_USERS, users.grant),
    ("POST", "/users/{id}/grants/{grant}/revoke", CHANGE_USERS, users.take_back),
    ("GET", "/audit", SEE_RIGHTS, audit.show),
)


async def start(_request: Request) -> Response:
    """The first page."""
    return RedirectResponse("/admin/")


async def look_again(request: Request, error: Exception) -> Response:
    """For a key, token or password that this process does not know: once it was looked at, the page is made again."""
    try:
        if not await context_of(request).access.knows_by_now(request):
            return await render.show_error(request, error)
        request.scope[permissions.VISITOR] = permissions.visitor(request)
        answer: Response = await request.scope["endpoint"](request)
    except Exception as again:
        return await render.show_error(request, again)
    return answer


def _allowed(permission: Permission, handler: Handler) -> Handler:
    """The handler, for who may do this; a change only by a form of the session's own."""

    @functools.wraps(handler)
    async def endpoint(request: Request) -> Response:
        permissions.must_be_allowed(request, permission, request.path_params.get("topic"))
        if request.method == "POST":
            await session.fields_of(request)
        elif live.asks(request):
            return await live.stream(request, handler)
        return await handler(request)

    return endpoint


class Page(Route):
    """A route that its request can be told by in the log, as FastAPI's are."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, found = super().matches(scope)
        return match, found if match is Match.NONE else {**found, "route": self}


def routes() -> list[BaseRoute]:
    """Everything below /admin, with errors as pages."""
    errors = (HoldfastError, HTTPException, *UNREACHABLE, asyncpg.PostgresError, Exception)
    behind = Starlette(
        routes=[
            *(
                Page(path, _allowed(permission, handler), methods=[method])
                for method, path, permission, handler in PAGES
            ),
            Page("/sign-in", session.ask, methods=["GET"]),
            Page("/sign-in", session.sign_in, methods=["POST"]),
            Page("/sign-out", session.sign_out, methods=["POST"]),
        ],
        exception_handlers={**dict.fromkeys(errors, render.show_error), UnknownKey: look_again},
        middleware=[Middleware(session.Door)],
    )
    behind.router.redirect_slashes = False
    files = Starlette(
        routes=[Page("/{version}/{name:path}", assets.serve)],
        exception_handlers=dict.fromkeys(errors, render.show_error),
    )
    files.router.redirect_slashes = False
    return [Page("/admin", start), Mount("/admin/static", app=files), Mount("/admin", app=behind)]
