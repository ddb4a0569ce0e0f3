"""How a page is made: templates that escape, headers that let nothing in from elsewhere, and errors as pages."""

from __future__ import annotations

import functools
import hashlib
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Final

from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from app.db.pool import as_unavailable
from app.errors import HoldfastError, MethodNotAllowed, NotFound

if TYPE_CHECKING:
    import jinja2

log = logging.getLogger(__name__)

STYLE: Final = (Path(__file__).parent / "static/admin.css").read_text("utf-8")

# Payloads, statements and names of applications are anybody's: no page runs a script or loads from elsewhere.
_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; style-src 'self'; img-src data:; base-uri 'none'; form-action 'self'; "
        "frame-ancestors 'none'"
    ),
    "cache-control": "no-store",
    "referrer-policy": "no-referrer",
    "x-content-type-options": "nosniff",
}
_CHALLENGE: Final = 'Basic realm="Holdfast", charset="UTF-8"'


@functools.cache
def _templates() -> jinja2.Environment:
    """Made for the first page: a start that shows none does without the library."""
    import jinja2  # noqa: PLC0415

    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals["style"] = f"/admin/static/admin.css?{hashlib.sha256(STYLE.encode()).hexdigest()[:12]}"
    made.filters["number"] = lambda value: f"{value:,}"
    return made


def page(template: str, status: int = 200, **view: object) -> Response:
    """A template with what its view model holds."""
    return HTMLResponse(_templates().get_template(template).render(view), status, _HEADERS)


async def style(_request: Request) -> Response:
    """The style sheet. Its address changes with its text, so that browsers may keep it."""
    return Response(STYLE, media_type="text/css", headers={"cache-control": "public, max-age=31536000, immutable"})


async def show_error(request: Request, error: Exception) -> Response:
    """The page for any error that a page's handler lets go. One of sign-in asks the browser for a key."""
    shown = _known(request, error)
    if shown is None:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        shown = HoldfastError("Something went wrong here; the service's log says what.")
    response = page("error.html", shown.status, title=f"{shown.status}", active="", message=shown.message)
    if shown.status == 401:
        response.headers["www-authenticate"] = _CHALLENGE
    if shown.retry_after is not None:
        response.headers["retry-after"] = str(shown.retry_after)
    return response


def _known(request: Request, error: Exception) -> HoldfastError | None:
    if isinstance(error, HoldfastError):
        return error
    if isinstance(error, HTTPException):
        if error.status_code == MethodNotAllowed.status:
            return MethodNotAllowed(f"{request.method} is not for {request.url.path}.")
        return NotFound(f"There is nothing at {request.url.path}.")
    return as_unavailable(error)
