"""GET and POST /api/users, PUT and DELETE /api/users/:id."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec
from msgspec import UNSET, Meta
from starlette.requests import Request
from starlette.responses import Response

from app.features.people import rights
from app.features.people.messages_bodies import ChangeUserBody, MakeUserBody, UsersAnswer, UserShown, user_shown
from app.http import direct
from app.http.body import read_json
from app.http.context import context_of
from app.http.messages.errors import operation
from app.http.openapi import path, query
from app.http.paging import CURSOR, cursor_of, cursor_to, page_size
from app.http.signin import users
from app.http.signin.users import MOST_NAME_BYTES

router = direct.router("sign-in")

MOST_SHOWN: Final = 1_000
PAGE_SIZE: Final = query("page_size", "1 to 1000, clamped.", {"type": "integer", "default": MOST_SHOWN})
USER: Final = path("id", "The user's id.", {"type": "string", "format": "uuid"})

_make_body = msgspec.json.Decoder(MakeUserBody)
_change_body = msgspec.json.Decoder(ChangeUserBody)


class _Place(msgspec.Struct, forbid_unknown_fields=True):
    after: Annotated[str, Meta(max_length=MOST_NAME_BYTES, pattern="^[^\\x00]*$")]


@router.get(
    "/api/users",
    response_class=Response,
    openapi_extra=operation(parameters=[PAGE_SIZE, CURSOR], answers={200: UsersAnswer}, errors=[400, 401, 403, 503]),
)
async def page(request: Request) -> Response:
    """The users by name, a page at a time."""
    context = context_of(request)
    context.access.check_server(request)
    size = page_size(request, MOST_SHOWN)
    place = cursor_of(request, _Place)
    found = await users.page(context.pools.rest, "" if place is None else place.after, size + 1)
    shown = [user_shown(account) for account in found[:size]]
    more = cursor_to({"after": shown[-1].username}) if len(found) > size else UNSET
    return _answer(UsersAnswer(shown, more))


@router.post(
    "/api/users",
    status_code=201,
    response_class=Response,
    openapi_extra=operation(body=MakeUserBody, answers={201: UserShown}, errors=[400, 401, 403, 409, 413, 415, 503]),
)
async def make(request: Request) -> Response:
    """Make a user. Without grants they may do nothing, unless they are an admin; from the first one on, every route
    needs sign-in."""
    context = context_of(request)
    by = await rights.changer_of_users(request)
    body = await read_json(request, _make_body, context.settings.max_body_bytes)
    account = await rights.make_user(context, body.username, body.password, by, is_admin=body.is_admin or False)
    return _answer(user_shown(account), 201)


@router.put(
    "/api/users/{id}",
    response_class=Response,
    openapi_extra=operation(
        parameters=[USER],
        body=ChangeUserBody,
        answers={200: UserShown},
        errors=[400, 401, 403, 404, 409, 413, 415, 503],
    ),
)
async def change(request: Request) -> Response:
    """Change a user: what is given. Another password ends all tokens of the one before."""
    context = context_of(request)
    by = await rights.changer_of_users(request)
    body = await read_json(request, _change_body, context.settings.max_body_bytes)
    account = await rights.change_user(
        context,
        request.path_params["id"],
        by,
        name=body.username,
        password=body.password,
        is_admin=body.is_admin,
    )
    return _answer(user_shown(account))


@router.delete(
    "/api/users/{id}",
    status_code=204,
    response_class=Response,
    openapi_extra=operation(parameters=[USER], answers={204: None}, errors=[400, 401, 403, 404, 503]),
)
async def delete(request: Request) -> Response:
    """Delete a user, other than oneself, with all that was granted to them."""
    context = context_of(request)
    by = await rights.changer_of_users(request)
    await rights.delete_user(context, request.path_params["id"], by)
    return Response(status_code=204)


def _answer(shown: msgspec.Struct, status: int = 200) -> Response:
    return Response(msgspec.json.encode(shown), status, media_type="application/json")
