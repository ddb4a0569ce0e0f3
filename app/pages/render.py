"""How a page is made: templates that escape, headers that let nothing in from elsewhere, the files that browsers load,
and errors as pages."""

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


# Payloads, statements and names are anybody's: no script or style stands in a page, and nothing is loaded from
# elsewhere.
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
# One for all files, as one may load another by a relative address. Browsers keep them for a year under it.
ASSETS_VERSION: Final = hashlib.sha256(b"\0".join(name.encode() + b"\0" + ASSETS[name] for name in ASSETS)).hexdigest()[
    :12
]
_FOR_EVER: Final = "public, max-age=31536000, immutable"
LOOK_SECONDS: Final = 0.25  # beside what a page costs otherwise it stays below the 500 ms that it may take
LIVE: Final = "live"  # the block of a page, and the element's id, that is fetched again and again


Found = TypeVar("Found")


@functools.cache
def _templates() -> jinja2.Environment:
    """Made for the first page: a start that shows none does without the library."""
    import jinja2  # noqa: PLC0415

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
    made.globals["ui"] = made.get_template("macros.html").module  # not imported by pages: a block alone has it too
    return made


def asset_address(name: str) -> str:
    """Where a file is. Raises KeyError if there is none."""
    if name not in ASSETS:
        raise KeyError(name)
    return f"/admin/static/{ASSETS_VERSION}/{name}"


async def serve_asset(request: Request) -> Response:
    """A file that browsers load. For another version, which another process may have named, it is the current one, and
    not kept."""
    name = request.path_params["name"]
    content = ASSETS.get(name)
    if content is None:
        raise NotFound(f"There is no file {name[:100]!r}.")
    is_current = request.path_params["version"] == ASSETS_VERSION
    headers = {"cache-control": _FOR_EVER if is_current else "no-store", "x-content-type-options": "nosniff"}
    return Response(content, media_type=_KINDS[Path(name).suffix], headers=headers)


async def look_briefly(look: Awaitable[Found]) -> Found | None:
    """What a read finds; None where it takes longer than a page should wait for it, and is given up."""
    try:
        async with asyncio.timeout(LOOK_SECONDS):
            return await look
    except TimeoutError:
        return None


def number(value: int) -> str:
    """With its thousands apart."""
    return f"{value:,}"


def short(value: float) -> str:
    """A number in few characters: 950, 1.2k, 34k, 1.2M."""
    for unit, size in (("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if value >= size * 0.9995:
            scaled = value / size
            return f"{scaled:.1f}{unit}" if scaled < 9.95 else f"{scaled:.0f}{unit}"
    return f"{value:.0f}" if value >= 10 or value == int(value) else f"{value:.1f}"


def age(milliseconds: int | None) -> str:
    """How long, in words; a dash for what has not been. Marked as what goes on by itself: app/pages/screens.py."""
    if milliseconds is None:
        return "–"
    return Markup('<span class="age">{}</span>').format(duration(max(milliseconds, 0)))


def moment(milliseconds: int) -> str:
    """A time as the server has it. A script shows it in the viewer's zone, and this beside the pointer."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).strftime("%Y-%m-%d %H:%M:%S UTC")


def bars(values: Sequence[int], width: float = 120.0, height: float = 24.0) -> str:
    """The outline of one bar a value, by an SVG path's commands; what is not 0 can be seen."""
    if not any(values):
        return ""
    most, step = max(values), width / len(values)
    return "".join(
        f"M{n * step:.2f} {height:g}V{height - max(value / most * (height - 2), 1.5):.1f}h{step - 0.5:.2f}V{height:g}z"
        for n, value in enumerate(values)
        if value
    )


def shares(parts: Sequence[tuple[str, int]]) -> list[tuple[str, str, str]]:
    """What each part has of the whole, as place and width in per cent; what is not 0 can be seen."""
    whole, x, found = sum(n for _, n in parts), 0.0, []
    for name, n in parts:
        if n:
            width = max(100 * n / whole, 0.8)
            found.append((name, f"{x:.2f}", f"{width:.2f}"))
            x += width
    return found


def asks_for_live_part(request: Request) -> bool:
    """Whether the request is for the live block of a page that is open already."""
    return request.headers.get("hx-target") == LIVE


class LivePart(HTMLResponse):
    """The live block of a page, alone."""


def page(request: Request, template: str, status: int = 200, **view: object) -> Response:
    """A template with the values of its view model; where only the live block is asked for, that block."""
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
    """The form for name and password; `back`: the page to go to."""
    response = page(request, "sign_in.html", status, title="Sign in", message=message, name=name, back=back)
    if status == 401:
        response.headers["www-authenticate"] = "Bearer"  # not Basic: browsers would ask in a window of their own
    return response


async def show_error(request: Request, error: Exception) -> Response:
    """The page for any error that a page's handler lets go. Who has not signed in can do so there."""
    shown = _as_holdfast_error(request, error)
    if shown is None:
        shown = fault_of(request, error)
    if shown.status == 401 and request.method == "GET":
        there = request.url.path + (f"?{request.url.query}" if request.url.query else "")
        message = shown.message if "authorization" in request.headers else ""
        return sign_in(
            request, 401, message="This session is over." if SESSION in request.cookies else message, back=there
        )
    response = page(request, "error.html", shown.status, title=f"{shown.status}", message=shown.message)
    if shown.retry_after is not None:
        response.headers["retry-after"] = str(shown.retry_after)
    return response


def _as_holdfast_error(request: Request, error: Exception) -> HoldfastError | None:
    if isinstance(error, HoldfastError):
        return error
    if isinstance(error, HTTPException):
        if error.status_code == MethodNotAllowed.status:
            return MethodNotAllowed(f"{request.url.path} does not support {request.method}.")
        return NotFound(f"There is nothing at {request.url.path}.")
    return as_unavailable(error)
