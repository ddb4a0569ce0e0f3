"""Which pages there are."""

from __future__ import annotations

import asyncpg
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from app.admin import horizon, render
from app.db.pool import UNREACHABLE
from app.edge.access import UnknownKey
from app.edge.context import context_of
from app.errors import HoldfastError


async def start(_request: Request) -> Response:
    """The first page."""
    return RedirectResponse("/admin/horizon")


async def look_again(request: Request, error: Exception) -> Response:
    """For a key, token or password that this process does not know: once it was looked at, the page is made again."""
    try:
        if not await context_of(request).access.knows_by_now(request):
            return await render.show_error(request, error)
        answer: Response = await request.scope["endpoint"](request)
    except Exception as again:
        return await render.show_error(request, again)
    return answer


def routes() -> list[BaseRoute]:
    """Everything below /admin, with errors as pages."""
    errors = (HoldfastError, HTTPException, *UNREACHABLE, asyncpg.PostgresError, Exception)
    pages = Starlette(
        routes=[
            Route("/horizon", horizon.show),
            Route("/static/admin.css", render.style),
            Route("/", start),
        ],
        exception_handlers={**dict.fromkeys(errors, render.show_error), UnknownKey: look_again},
    )
    pages.router.redirect_slashes = False
    return [Route("/admin", start), Mount("/admin", app=pages)]
