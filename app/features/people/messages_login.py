"""POST /api/auth/login and /api/auth/refresh: tokens for users."""

from __future__ import annotations

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.errors import Unauthorized
from app.features.people.messages_bodies import LoginBody, TokenAnswer
from app.http import direct
from app.http.body import read_json
from app.http.context import context_of
from app.http.messages.errors import operation

router = direct.router("sign-in")

_body = msgspec.json.Decoder(LoginBody)


@router.post(
    "/api/auth/login",
    response_class=Response,
    openapi_extra=operation(
        body=LoginBody, answers={200: TokenAnswer}, errors=[400, 401, 413, 415, 503], open_to_all=True
    ),
)
async def login(request: Request) -> Response:
    """Sign in by name and password: a token. A name has ten tries a minute from one address, an address fifty."""
    context = context_of(request)
    body = await read_json(request, _body, context.settings.max_body_bytes)
    access = context.access
    return _token(await access.sessions.login(body.username, body.password, access.peer(request)))


@router.post(
    "/api/auth/refresh",
    response_class=Response,
    openapi_extra=operation(answers={200: TokenAnswer}, errors=[401, 403, 503]),
)
async def refresh(request: Request) -> Response:
    """A new token for the user who asks; 401 if there is no such user any more."""
    access = context_of(request).access
    shown = access.user(request)
    await access.directory.reload()
    user = access.directory.user(shown.id)
    if user is None or user.epoch != shown.epoch:
        raise Unauthorized("There is no such user any more, or the password is another one.")
    return _token(access.sessions.token_for(user))


def _token(token: str) -> Response:
    return Response(msgspec.json.encode(TokenAnswer(token)), 200, {"cache-control": "no-store"}, "application/json")
