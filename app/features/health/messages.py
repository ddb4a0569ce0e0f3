"""GET /api/version and GET /api/auth/status: for everybody."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app import __version__
from app.http import direct
from app.http.context import context_of
from app.http.messages.errors import operation

router = direct.router("messages")


class Version(msgspec.Struct):
    """The service's version."""

    version: str


class AuthStatus(msgspec.Struct):
    """Whether requests need sign-in."""

    auth_required: bool


@router.get(
    "/api/version",
    response_class=Response,
    openapi_extra=operation(answers={200: Version}, errors=[], open_to_all=True),
)
async def version(request: Request) -> Response:
    """Which version of the service this is."""
    return _json(Version(__version__))


@router.get(
    "/api/auth/status",
    response_class=Response,
    openapi_extra=operation(answers={200: AuthStatus}, errors=[], open_to_all=True),
)
async def auth_status(request: Request) -> Response:
    """Whether requests need sign-in here: a key, a token or a password."""
    return _json(AuthStatus(context_of(request).access.directory.guarded))


def _json(answer: msgspec.Struct) -> Response:
    return Response(msgspec.json.encode(answer), media_type="application/json")
