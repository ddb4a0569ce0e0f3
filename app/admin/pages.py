"""Which pages there are, and what each takes."""

from __future__ import annotations

import functools
from collections.abc import Iterable
from typing import Final

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
    session,
    topic,
    topics,
    users,
    webhooks,
)
from app.admin.dead import clusters, purge, requeue, rows
from app.admin.frame import Handler, Page
from app.admin.jobs import actions, cancels, job, listing
from app.admin.permissions import (
    CHANGE_JOBS,
    CHANGE_KEYS,
    CHANGE_USERS,
    CONFIGURE,
    CONTROL,
    KEEP_VIEWS,
    PURGE,
    REAP,
    REQUEUE,
    SEE,
    SEE_RIGHTS,
    SEE_SERVER,
    Permission,
)
from app.base.outages import UNREACHABLE
from app.edge.access import UnknownKey
from app.edge.context import context_of
from app.errors import HoldfastError

PAGES: Final = (
    Page("GET", "/", SEE, home.show),
    Page("GET", "/find", SEE, topics.find),
    Page("POST", "/views", KEEP_VIEWS, saved.save),
    Page("POST", "/views/delete", KEEP_VIEWS, saved.delete),
    Page("GET", "/topics", SEE, topics.show),
    Page("GET", "/topics/{topic}", SEE, topic.show),
    Page("GET", "/topics/{topic}/jobs", SEE, listing.show),
    Page("GET", "/topics/{topic}/jobs/cancel", CHANGE_JOBS, cancels.ask),
    Page("POST", "/topics/{topic}/jobs/cancel", CHANGE_JOBS, cancels.begin),
    Page("GET", "/topics/{topic}/jobs/operations/{id}", SEE, operation.show),
    Page("POST", "/topics/{topic}/jobs/operations/{id}/cancel", CHANGE_JOBS, operation.cancel),
    Page("GET", "/topics/{topic}/jobs/{seq}", SEE, job.show),
    Page("POST", "/topics/{topic}/jobs/{seq}/cancel", CHANGE_JOBS, actions.cancel),
    Page("POST", "/topics/{topic}/jobs/{seq}/change", CHANGE_JOBS, actions.change),
    Page("POST", "/topics/{topic}/jobs/{seq}/clone", CHANGE_JOBS, actions.clone),
    Page("POST", "/topics/{topic}/jobs/{seq}/requeue", CHANGE_JOBS, actions.requeue),
    Page("POST", "/topics/{topic}/jobs/{seq}/release", CHANGE_JOBS, actions.take_back),
    Page("POST", "/topics/{topic}/release", CHANGE_JOBS, topic.take_back),
    Page("POST", "/topics/{topic}/pause", CONTROL, topic.pause),
    Page("POST", "/topics/{topic}/resume", CONTROL, topic.resume),
    Page("GET", "/topics/{topic}/dead", SEE, clusters.show),
    Page("GET", "/topics/{topic}/dead/jobs", SEE, rows.show),
    Page("GET", "/topics/{topic}/dead/requeue", REQUEUE, requeue.ask),
    Page("POST", "/topics/{topic}/dead/requeue", REQUEUE, requeue.begin),
    Page("GET", "/topics/{topic}/dead/operations/{id}", SEE, operation.show),
    Page("POST", "/topics/{topic}/dead/operations/{id}/cancel", REQUEUE, operation.cancel),
    Page("GET", "/topics/{topic}/dead/purge", PURGE, purge.ask),
    Page("POST", "/topics/{topic}/dead/purge", PURGE, purge.run),
    Page("GET", "/topics/{topic}/config", SEE, config.show),
    Page("POST", "/topics/{topic}/config", CONFIGURE, config.review),
    Page("POST", "/topics/{topic}/config/save", CONFIGURE, config.save),
    Page("GET", "/topics/{topic}/config/undo/{entry}", CONFIGURE, config.undo),
    Page("GET", "/topics/{topic}/asof", SEE, asof.show),
    Page("GET", "/horizon", SEE_SERVER, horizon.show),
    Page("GET", "/reapers", SEE_SERVER, reapers.show),
    Page("GET", "/reapers/{name}", SEE_SERVER, reapers.earlier),
    Page("POST", "/reapers/{name}/run", REAP, reapers.run),
    Page("POST", "/reapers/delete/schedule", REAP, reapers.reschedule),
    Page("GET", "/webhooks", SEE_SERVER, webhooks.show),
    Page("GET", "/keys", SEE_RIGHTS, keys.show),
    Page("GET", "/keys/new", SEE_RIGHTS, keys.ask),
    Page("POST", "/keys/new", CHANGE_KEYS, keys.make),
    Page("GET", "/keys/{id}", SEE_RIGHTS, keys.one),
    Page("POST", "/keys/{id}/rotate", CHANGE_KEYS, keys.rotate),
    Page("POST", "/keys/{id}/revoke", CHANGE_KEYS, keys.revoke),
    Page("GET", "/users", SEE_SERVER, users.show),
    Page("GET", "/users/new", SEE_SERVER, users.ask),
    Page("POST", "/users/new", CHANGE_USERS, users.make),
    Page("GET", "/users/{id}", SEE_SERVER, users.one),
    Page("POST", "/users/{id}", CHANGE_USERS, users.change),
    Page("POST", "/users/{id}/delete", CHANGE_USERS, users.delete),
    Page("POST", "/users/{id}/grants", CHANGE_USERS, users.grant),
    Page("POST", "/users/{id}/grants/{grant}/revoke", CHANGE_USERS, users.take_back),
    Page("GET", "/audit", SEE_RIGHTS, audit.show),
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


class Told(Route):
    """A route that its request can be told by in the log, as FastAPI's are."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, found = super().matches(scope)
        return match, found if match is Match.NONE else {**found, "route": self}


def routes(pages: Iterable[Page]) -> list[BaseRoute]:
    """These, and what is around them: everything below /admin, with errors as pages."""
    errors = (HoldfastError, HTTPException, *UNREACHABLE, asyncpg.PostgresError, Exception)
    behind = Starlette(
        routes=[
            *(Told(page.path, _allowed(page.needs, page.do), methods=[page.method]) for page in pages),
            Told("/sign-in", session.ask, methods=["GET"]),
            Told("/sign-in", session.sign_in, methods=["POST"]),
            Told("/sign-out", session.sign_out, methods=["POST"]),
        ],
        exception_handlers={**dict.fromkeys(errors, render.show_error), UnknownKey: look_again},
        middleware=[Middleware(session.Door)],
    )
    behind.router.redirect_slashes = False
    files = Starlette(
        routes=[Told("/{version}/{name:path}", assets.serve)],
        exception_handlers=dict.fromkeys(errors, render.show_error),
    )
    files.router.redirect_slashes = False
    return [Told("/admin", start), Mount("/admin/static", app=files), Mount("/admin", app=behind)]
