"""Rendering: templates with escaping, security headers, static files, and errors as pages."""

from __future__ import annotations

import asyncio
import functools
import hashlib
from collections.abc import Awaitable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Final, TypeVar

from markupsafe import Markup
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from app.base.outages import as_unavailable
from app.base.times import duration, rfc3339
from app.errors import HoldfastError, MethodNotAllowed, NotFound
from app.http.credentials import SESSION
from app.http.errors import fault_of
from app.pages import frame, permissions

if TYPE_CHECKING:
    import jinja2


# Pages show payloads, statements and names from any client. So pages have no inline script or style, and load nothing
# from other hosts.
_HEADERS: Final = {
    "content-security-policy": (
        "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; img-src 'self' data:; "
        "base-uri 'none'; form-action 'self'; frame-ancestors 'none'"
    ),
    "cache-control": "no-store",
    "cross-origin-opener-policy": "same-origin",
    "referrer-policy": "same-origin",
    "x-content-type-options": "nosniff",
    "vary": "accept, hx-target",
}
_FOLDER: Final = Path(__file__).parent / "static"
_KINDS: Final = {".css": "text/css", ".js": "text/javascript", ".txt": "text/plain"}
ASSETS: Final = {
    path.relative_to(_FOLDER).as_posix(): path.read_bytes() for path in sorted(_FOLDER.rglob("*")) if path.is_file()
}
# One version for all files, as a file may load another by a relative address. Browsers cache them for a year.
ASSETS_VERSION: Final = hashlib.sha256(b"\0".join(name.encode() + b"\0" + ASSETS[name] for name in ASSETS)).hexdigest()[
    :12
]
_CACHE_FOR_A_YEAR: Final = "public, max-age=31536000, immutable"
LOOK_SECONDS: Final = 0.25  # a page may take 500 ms in all
LIVE: Final = "live"  # the name of a page's live block, and the id of its element


Found = TypeVar("Found")


@functools.cache
def _templates() -> jinja2.Environment:
    import jinja2  # noqa: PLC0415  # only once a page is opened: it makes the start faster

    here = Path(__file__).parent
    made = jinja2.Environment(
        loader=jinja2.FileSystemLoader([here / "templates", *here.parent.glob("features/*")]),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        auto_reload=False,
    )
    made.globals["asset"] = asset_address
    made.filters |= {"number": number, "short": short, "age": age, "moment": moment, "iso": rfc3339}
    made.filters |= {"length_of": duration, "bars": bars, "shares": shares}
    made.globals["ui"] = made.get_template("macros.html").module  # a global, as a live block alone needs it too
    return made


def asset_address(name: str) -> str:
    """Return the address of a static file. Raises KeyError if there is none."""
    if name not in ASSETS:
        raise KeyError(name)
    return f"/admin/static/{ASSETS_VERSION}/{name}"


async def serve_asset(request: Request) -> Response:
    """Serve a static file. For another version, which another process may have linked, serve the current file without
    caching."""
    name = request.path_params["name"]
    content = ASSETS.get(name)
    if content is None:
        raise NotFound(f"File not found: {name[:100]!r}.")
    is_current = request.path_params["version"] == ASSETS_VERSION
    headers = {"cache-control": _CACHE_FOR_A_YEAR if is_current else "no-store", "x-content-type-options": "nosniff"}
    return Response(content, media_type=_KINDS[Path(name).suffix], headers=headers)


async def look_briefly(look: Awaitable[Found]) -> Found | None:
    """Await a read for LOOK_SECONDS. Returns None if it takes longer; the read is cancelled then."""
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            return await look
    except TimeoutError:
        return None


def number(value: int) -> str:
    return f"{value:,}"


def short(value: float) -> str:
    """Format in few characters: 950, 1.2k, 34k, 1.2M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size * 0.9995:
            scaled = value / size
            return f"{scaled:.1f}{unit}" if scaled < 9.95 else f"{scaled:.0f}{unit}"
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def age(milliseconds: int | None) -> str:
    """Format a length of time; a dash for None. The class "age" lets app/pages/screens.py ignore its changes."""
    if milliseconds is None:
        return "–"
    return Markup('<span class="age">{}</span>').format(duration(max(milliseconds, 0)))


def moment(milliseconds: int) -> str:
    """Format a time in UTC. A script replaces it by the viewer's zone and keeps this one as the tooltip."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def bars(values: Sequence[int], width: float = 120.0, height: float = 24.0) -> str:
    """Return an SVG path with one bar per value. Values above 0 are always visible."""
    if not any(values):
        return ""
    most, step = max(values), width / len(values)
    return "".join(
        f"M{n * step:.2f} {height:g}V{height - max(value / most * (height - 2), 1.5):.1f}h{step - 0.5:.2f}V{height:g}z"
        for n, value in enumerate(values)
        if value
    )


def shares(parts: Sequence[tuple[str, int]]) -> list[tuple[str, str, str]]:
    """Return each part's name, x and width in per cent of the sum. Parts above 0 are always visible."""
    whole, x, found = sum(n for _, n in parts), 0.0, []
    for name, n in parts:
        if n:
            width = max(100 * n / whole, 0.8)
            found.append((name, f"{x:.2f}", f"{width:.2f}"))
            x += width
    return found


def asks_for_live_part(request: Request) -> bool:
    return request.headers.get("hx-target") == LIVE


class LivePart(HTMLResponse):
    """A page's live block alone."""


def page(request: Request, template: str, status: int = 200, **view: object) -> Response:
    """Render a template, or only its live block if the request asks for that."""
    made = _templates().get_template(template)
    view |= {
        "visitor": permissions.visitor_of(request),
        "path": request.url.path + (f"?{request.url.query}" if request.url.query else ""),
        "side": frame.side(request),
    }
    if asks_for_live_part(request) and LIVE in made.blocks and status == 200:
        return LivePart("".join(made.blocks[LIVE](made.new_context(view))), status, _HEADERS)
    return HTMLResponse(made.render(view), status, _HEADERS)


def sign_in(request: Request, status: int, *, message: str = "", name: str = "", back: str = "") -> Response:
    """Render the sign-in form. `back`: the page to open afterwards."""
    response = page(request, "sign_in.html", status, title="Sign in", message=message, name=name, back=back)
    if status == 401:
        response.headers["www-authenticate"] = "Bearer"  # Basic would open the browser's own dialog
    return response


async def show_error(request: Request, error: Exception) -> Response:
    """Render the page of an error. A visitor who is not signed in gets the sign-in form."""
    known = _as_holdfast_error(request, error)
    if known is None:
        known = fault_of(request, error)
    if known.status == 401 and request.method == "GET":
        there = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        message = known.message if "authorization" in request.headers else ""
        if SESSION in request.cookies:
            message = "Your session has ended. Sign in again."
        return sign_in(request, 401, message=message, back=there)
    response = page(request, "error.html", known.status, title=f"{known.status}", message=known.message)
    if known.retry_after is not None:
        response.headers["retry-after"] = str(known.retry_after)
    return response


def _as_holdfast_error(request: Request, error: Exception) -> HoldfastError | None:
    if isinstance(error, HoldfastError):
        return error
    if isinstance(error, HTTPException):
        if error.status_code == MethodNotAllowed.status:
            return MethodNotAllowed(f"{request.url.path} does not support {request.method}.")
        return NotFound(f"Page not found: {request.url.path}.")
    return as_unavailable(error)
