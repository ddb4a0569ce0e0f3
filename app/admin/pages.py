"""Which pages there are."""

from __future__ import annotations

import asyncpg
from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import BaseRoute, Mount, Route

from app.admin import horizon, render
from app.errors import HoldfastError


async def start(_request: Request) -> Response:
    """The first page."""
    return RedirectResponse("/admin/horizon")


def routes() -> list[BaseRoute]:
    """Everything below /admin, with errors as pages."""
    errors = (HoldfastError, HTTPException, asyncpg.PostgresError, asyncpg.InterfaceError, OSError, Exception)
    pages = Starlette(
        routes=[
            Route("/horizon", horizon.show),
            Route("/static/admin.css", render.style),
            Route("/", start),
        ],
        exception_handlers=dict.fromkeys(errors, render.show_error),
    )
    pages.router.redirect_slashes = False
    return [Route("/admin", start), Mount("/admin", app=pages)]
