"""Mount the pages: permission checks, live streams, and errors as pages."""

from __future__ import annotations

import functools
from collections.abc import Sequence

import asyncpg
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Match, Mount, Route
from starlette.types import Scope

from app.base.outages import UNREACHABLE
from app.errors import HoldfastError
from app.http.access import UnknownKey
from app.http.context import context_of
from app.pages import live, permissions, render, session
from app.pages.frame import Handler, Page


async def start(_request: Request) -> Response:
    return RedirectResponse("/admin/")


async def look_again(request: Request, error: Exception) -> Response:
    """Handle an unknown key, token or password: look it up in the database, then run the handler again."""
    try:
        if not await context_of(request).access.reauthenticate(request):
            return await render.show_error(request, error)
        request.scope[permissions.VISITOR] = permissions.visitor(request)
        answer: Response = await request.scope["endpoint"](request)
    except Exception as again:
        return await render.show_error(request, again)
    return answer


def _endpoint(page: Page) -> Handler:
    """Wrap a page handler: check the permission, and the CSRF token on POST."""

    @functools.wraps(page.do)
    async def endpoint(request: Request) -> Response:
        permissions.check_permission(request, page.needs, request.path_params.get("topic"))
        if request.method == "POST":
            await session.fields_of(request)
        elif live.asks(request):
            return await live.stream(request, page.do)
        return await page.do(request)

    endpoint.counted_as = "pages", f"{page.method} {page.path}"  # type: ignore[attr-defined]
    return endpoint


class NamedRoute(Route):
    """A route that adds itself to the request's scope, as FastAPI's do. The access log reads it there."""

    def matches(self, scope: Scope) -> tuple[Match, Scope]:
        match, found = super().matches(scope)
        return match, found if match is Match.NONE else {**found, "route": self}


def routes(pages: Sequence[Page]) -> list[BaseRoute]:
    """Return all routes below /admin: the pages, sign-in, and static files, with errors as pages."""
    errors = (HoldfastError, HTTPException, *UNREACHABLE, asyncpg.PostgresError, Exception)
    behind = Starlette(
        routes=[
            *(NamedRoute(page.path, _endpoint(page), methods=[page.method]) for page in pages),
            NamedRoute("/sign-in", session.ask, methods=["GET"]),
            NamedRoute("/sign-in", session.sign_in, methods=["POST"]),
            NamedRoute("/sign-out", session.sign_out, methods=["POST"]),
        ],
        exception_handlers={**dict.fromkeys(errors, render.show_error), UnknownKey: look_again},
        middleware=[Middleware(session.Door)],
    )
    behind.router.redirect_slashes = False
    files = Starlette(
        routes=[NamedRoute("/{version}/{name:path}", render.serve_asset)],
        exception_handlers=dict.fromkeys(errors, render.show_error),
    )
    files.router.redirect_slashes = False
    behind.state.linked = files.state.linked = sorted(
        (page for page in pages if page.menu), key=lambda page: page.menu.place
    )
    return [NamedRoute("/admin", start), Mount("/admin/static", app=files), Mount("/admin", app=behind)]
