"""Which pages of other origins may read an answer (CORS). Simple requests alone: there is no preflight."""

from __future__ import annotations

from starlette.requests import HTTPConnection

from app.http.context import context_of


def allow_origin(request: HTTPConnection, *, exposed: str = "") -> dict[str, str]:
    """The headers that let the page read the answer which has sent the request, if HOLDFAST_INGEST_ORIGINS names it;
    `exposed`: a header that it may read, too."""
    allowed = context_of(request).origins
    if not allowed:
        return {}
    headers = {"vary": "origin"}
    origin = request.headers.get("origin", "")
    if origin and ("*" in allowed or origin.lower() in allowed):
        headers["access-control-allow-origin"] = origin
        if exposed:
            headers["access-control-expose-headers"] = exposed
    return headers
