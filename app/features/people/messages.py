"""Sign-in, users and grants: /api/auth/login and /api/auth/refresh, /api/users and /api/users/:id/grants."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Final, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType
from starlette.responses import Response

from app.base.keys import HIDDEN
from app.errors import Unauthorized
from app.features.people import rights
from app.http.bounds import about, text
from app.http.fields import cursor_of, cursor_to, page_size
from app.http.messages.dialect import MESSAGES
from app.http.openapi import path, query
from app.http.route import Call
from app.http.signin import users
from app.http.signin.people import EVERYTHING, PATTERN, Right
from app.http.signin.users import LEAST_CHARACTERS, MOST_NAME_BYTES, MOST_PASSWORD_BYTES, Account, Grant

MOST_USERS: Final = 1_000
PAGE_SIZE: Final = query("page_size", "1 to 1000, clamped.", {"type": "integer", "default": MOST_USERS})
USER: Final = path("id", "The user's id.", {"type": "string", "format": "uuid"})
GRANT: Final = path("grant_id", "The grant's id.", {"type": "string", "format": "uuid"})

ActionWord = Literal["read", "write", "consume", "admin"]
Username = Annotated[
    str,
    text(
        "The user's name, on one line, without a colon.",
        most=MOST_NAME_BYTES,
        least=1,
        pattern="^[^\\u0000-\\u001f\\u007f:]+$",
    ),
]
Password = Annotated[
    str, text(f"At least {LEAST_CHARACTERS} characters.", most=MOST_PASSWORD_BYTES, least=LEAST_CHARACTERS)
]


class LoginBody(msgspec.Struct, forbid_unknown_fields=True):
    """Who signs in."""

    username: Annotated[str, about("The user's name.")]
    password: Annotated[str, about("Their password.")]


class TokenAnswer(msgspec.Struct):
    """A token: to be sent as Authorization: Bearer."""

    token: str


class MakeUserBody(msgspec.Struct, forbid_unknown_fields=True):
    """A user to be made."""

    username: Username
    password: Password
    is_admin: Annotated[bool | None, about("Whether they may do everything.", False)] = None


class ChangeUserBody(msgspec.Struct, forbid_unknown_fields=True):
    """What is to be another; what is absent or null stays."""

    username: Username | None = None
    password: Annotated[Password | None, Meta(description="Another one ends all tokens of the one before.")] = None
    is_admin: Annotated[bool | None, about("Whether they may do everything.")] = None


class UserShown(msgspec.Struct):
    """A user."""

    id: str
    username: str
    is_admin: bool
    created_at: str
    updated_at: str


class UsersAnswer(msgspec.Struct):
    """A page of users by name; `next_cursor` is absent on the last one."""

    items: list[UserShown]
    next_cursor: str | UnsetType = UNSET


class MakeGrantBody(msgspec.Struct, forbid_unknown_fields=True):
    """What is to be granted."""

    action: Annotated[ActionWord, about("write includes consume: to take messages and to settle them.")]
    topic_pattern: Annotated[
        Annotated[str, Meta(extra_json_schema={"pattern": PATTERN})] | None,
        about("Every topic (*), those whose names start so (mail.*), or one (mail).", EVERYTHING),
    ] = None
    payloads: Annotated[
        Literal["shown", "hidden"] | None,
        about("hidden: without seeing what is in messages, nor taking them.", "shown"),
    ] = None


class GrantShown(msgspec.Struct, kw_only=True):
    """An action that a user may do in the topics of a pattern."""

    id: str
    user_id: str
    action: ActionWord
    topic_pattern: str
    payloads: Annotated[Literal["hidden"] | UnsetType, about("Absent: they are shown.")] = UNSET
    created_at: str


class GrantsAnswer(msgspec.Struct):
    """All that is granted to a user, by action and pattern."""

    items: list[GrantShown]


class _UserPlace(msgspec.Struct, forbid_unknown_fields=True):
    after: Annotated[str, Meta(max_length=MOST_NAME_BYTES, pattern="^[^\\x00]*$")]


async def login(call: Call, body: LoginBody) -> Response:
    """Sign in by name and password: a token. A name has ten tries a minute from one address, an address fifty."""
    access = call.context.access
    return _token(call, await access.sessions.login(body.username, body.password, access.peer(call.request)))


async def refresh(call: Call) -> Response:
    """A new token for the user who asks; 401 if there is no such user any more."""
    access = call.context.access
    caller = access.user(call.request)
    await access.directory.reload()
    user = access.directory.user(caller.id)
    if user is None or user.epoch != caller.epoch:
        raise Unauthorized("There is no such user any more, or the password is another one.")
    return _token(call, access.sessions.token_for(user))


async def page(call: Call) -> UsersAnswer:
    """The users by name, a page at a time."""
    size, place = page_size(call.request, MOST_USERS), cursor_of(call.request, _UserPlace)
    accounts = await users.page(call.context.pools.rest, "" if place is None else place.after, size + 1)
    more = cursor_to({"after": accounts[size - 1].username}) if len(accounts) > size else UNSET
    return UsersAnswer([_user(account) for account in accounts[:size]], more)


async def make(call: Call, body: MakeUserBody) -> UserShown:
    """Make a user. Without grants they may do nothing, unless they are an admin; from the first one on, every route
    needs sign-in."""
    by = rights.changer_of(call)
    is_admin = body.is_admin or False
    return _user(await rights.make_user(call.context, body.username, body.password, by, is_admin=is_admin))


async def change(call: Call, body: ChangeUserBody) -> UserShown:
    """Change a user: what is given. Another password ends all tokens of the one before."""
    account = await rights.change_user(
        call.context,
        _user_id(call),
        rights.changer_of(call),
        name=body.username,
        password=body.password,
        is_admin=body.is_admin,
    )
    return _user(account)


async def delete(call: Call) -> None:
    """Delete a user, other than oneself, with all that was granted to them."""
    await rights.delete_user(call.context, _user_id(call), rights.changer_of(call))


async def grants(call: Call) -> GrantsAnswer:
    """What is granted to a user."""
    return GrantsAnswer([_grant(one) for one in await users.grants(call.context.pools.rest, _user_id(call))])


async def grant(call: Call, body: MakeGrantBody) -> GrantShown:
    """Grant a user an action in the topics of a pattern."""
    by, hides = rights.changer_of(call), body.payloads == HIDDEN
    pattern = EVERYTHING if body.topic_pattern is None else body.topic_pattern
    right = Right(body.action)
    return _grant(await rights.grant(call.context, _user_id(call), right, pattern, by, hides_payloads=hides))


async def revoke(call: Call) -> None:
    """Take a grant back."""
    grant_id: str = call.request.path_params["grant_id"]
    await rights.take_back(call.context, _user_id(call), grant_id, rights.changer_of(call))


def _user_id(call: Call) -> str:
    user_id: str = call.request.path_params["id"]
    return user_id


def _token(call: Call, token: str) -> Response:
    response = MESSAGES.write(TokenAnswer(token), 200, call.began)
    response.headers["cache-control"] = "no-store"
    return response


def _user(account: Account) -> UserShown:
    created, updated = _time(account.created_at), _time(account.updated_at)
    return UserShown(account.id, account.username, account.is_admin, created, updated)


def _grant(grant: Grant) -> GrantShown:
    return GrantShown(
        id=grant.id,
        user_id=grant.user_id,
        action=grant.action.value,
        topic_pattern=grant.topic_pattern,
        payloads="hidden" if grant.hides_payloads else UNSET,
        created_at=_time(grant.created_at),
    )


def _time(time: datetime) -> str:
    return time.astimezone(UTC).isoformat(timespec="milliseconds").replace("+00:00", "Z")
