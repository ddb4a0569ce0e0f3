"""GET and POST /api/users/:id/grants, DELETE /api/users/:id/grants/:grantId."""

from __future__ import annotations

from typing import Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from app.base.keys import HIDDEN
from app.features.people import rights
from app.features.people.messages_bodies import GrantsAnswer, GrantShown, MakeGrantBody, grant_shown
from app.features.people.messages_users import USER
from app.http import direct
from app.http.body import read_json
from app.http.context import context_of
from app.http.messages.errors import operation
from app.http.openapi import path
from app.http.signin import users
from app.http.signin.people import EVERYTHING, Right

router = direct.router("sign-in")

GRANT: Final = path("grant_id", "The grant's id.", {"type": "string", "format": "uuid"})

_body = msgspec.json.Decoder(MakeGrantBody)


@router.get(
    "/api/users/{id}/grants",
    response_class=Response,
    openapi_extra=operation(parameters=[USER], answers={200: GrantsAnswer}, errors=[401, 403, 404, 503]),
)
async def all_of_them(request: Request) -> Response:
    """What is granted to a user."""
    context = context_of(request)
    context.access.check_server(request)
    found = await users.grants(context.pools.rest, request.path_params["id"])
    return _answer(GrantsAnswer([grant_shown(grant) for grant in found]))


@router.post(
    "/api/users/{id}/grants",
    status_code=201,
    response_class=Response,
    openapi_extra=operation(
        parameters=[USER],
        body=MakeGrantBody,
        answers={201: GrantShown},
        errors=[400, 401, 403, 404, 409, 413, 415, 503],
    ),
)
async def make(request: Request) -> Response:
    """Grant a user an action in the topics of a pattern."""
    context = context_of(request)
    by = await rights.changer_of_users(request)
    body = await read_json(request, _body, context.settings.max_body_bytes)
    pattern = EVERYTHING if body.topic_pattern is None else body.topic_pattern
    user_id: str = request.path_params["id"]
    hides = body.payloads == HIDDEN
    made = await rights.grant(context, user_id, Right(body.action), pattern, by, hides_payloads=hides)
    return _answer(grant_shown(made), 201)


@router.delete(
    "/api/users/{id}/grants/{grant_id}",
    status_code=204,
    response_class=Response,
    openapi_extra=operation(parameters=[USER, GRANT], answers={204: None}, errors=[401, 403, 404, 503]),
)
async def revoke(request: Request) -> Response:
    """Take a grant back."""
    context = context_of(request)
    by = await rights.changer_of_users(request)
    await rights.take_back(context, request.path_params["id"], request.path_params["grant_id"], by)
    return Response(status_code=204)


def _answer(shown: msgspec.Struct, status: int = 200) -> Response:
    return Response(msgspec.json.encode(shown), status, media_type="application/json")
