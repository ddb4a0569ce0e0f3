"""/api/auth/login, /api/auth/refresh, /api/users and /api/users/:id/grants: sign-in, users and grants."""

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
    """A user's credentials."""

    username: Annotated[str, about("The user's name.")]
    password: Annotated[str, about("Their password.")]


class TokenAnswer(msgspec.Struct):
    """A token, for the header Authorization: Bearer."""

    token: str


class MakeUserBody(msgspec.Struct, forbid_unknown_fields=True):
    """A new user."""

    username: Username
    password: Password
    is_admin: Annotated[bool | None, about("Whether the user may do everything.", False)] = None


class ChangeUserBody(msgspec.Struct, forbid_unknown_fields=True):
    """The fields to change. Absent and null fields stay."""

    username: Username | None = None
    password: Annotated[Password | None, Meta(description="A new password ends all tokens of the user.")] = None
    is_admin: Annotated[bool | None, about("Whether the user may do everything.")] = None


class UserShown(msgspec.Struct):
    """A user."""

    id: str
    username: str
    is_admin: bool
    created_at: str
    updated_at: str


class UsersAnswer(msgspec.Struct):
    """A page of users by name. The last page has no `next_cursor`."""

    items: list[UserShown]
    next_cursor: str | UnsetType = UNSET


class MakeGrantBody(msgspec.Struct, forbid_unknown_fields=True):
    """A new grant."""

    action: Annotated[ActionWord, about("write includes consume. consume allows to take messages and to settle them.")]
    topic_pattern: Annotated[
        Annotated[str, Meta(extra_json_schema={"pattern": PATTERN})] | None,
        about("All topics (*), topics with a prefix (mail.*), or one topic (mail).", EVERYTHING),
    ] = None
    payloads: Annotated[
        Literal["shown", "hidden"] | None,
        about("hidden: the user can't see payloads or take messages.", "shown"),
    ] = None


class GrantShown(msgspec.Struct, kw_only=True):
    """An action that a user may do on the topics of a pattern."""

    id: str
    user_id: str
    action: ActionWord
    topic_pattern: str
    payloads: Annotated[Literal["hidden"] | UnsetType, about("Absent: payloads are shown.")] = UNSET
    created_at: str


class GrantsAnswer(msgspec.Struct):
    """All grants of a user, by action and pattern."""

    items: list[GrantShown]


class _UserPlace(msgspec.Struct, forbid_unknown_fields=True):
    after: Annotated[str, Meta(max_length=MOST_NAME_BYTES, pattern="^[^\\x00]*$")]


async def login(call: Call, body: LoginBody) -> Response:
    """Sign in with name and password. Returns a token.

    A name has ten tries a minute from one address, and an address has fifty."""
    access = call.context.access
    return _token(call, await access.sessions.login(body.username, body.password, access.peer(call.request)))


async def refresh(call: Call) -> Response:
    """Get a new token for the calling user. 401 if the user was deleted or has a new password."""
    access = call.context.access
    caller = access.user(call.request)
    await access.directory.reload()
    user = access.directory.user(caller.id)
    if user is None or user.epoch != caller.epoch:
        raise Unauthorized("The user was deleted, or the password has changed. Sign in again.")
    return _token(call, access.sessions.token_for(user))


async def page(call: Call) -> UsersAnswer:
    """List users by name."""
    size, place = page_size(call.request, MOST_USERS), cursor_of(call.request, _UserPlace)
    accounts = await users.page(call.context.pools.rest, "" if place is None else place.after, size + 1)
    more = cursor_to({"after": accounts[size - 1].username}) if len(accounts) > size else UNSET
    return UsersAnswer([_user(account) for account in accounts[:size]], more)


async def make(call: Call, body: MakeUserBody) -> UserShown:
    """Create a user. A user without grants may do nothing, except an admin. From the first user on, every route needs
    sign-in."""
    by = rights.changer_of(call)
    is_admin = body.is_admin or False
    return _user(await rights.make_user(call.context, body.username, body.password, by, is_admin=is_admin))


async def change(call: Call, body: ChangeUserBody) -> UserShown:
    """Change the given fields of a user. A new password ends all tokens of the user."""
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
    """Delete a user and their grants. Users can't delete themselves."""
    await rights.delete_user(call.context, _user_id(call), rights.changer_of(call))


async def grants(call: Call) -> GrantsAnswer:
    """List the grants of a user."""
    return GrantsAnswer([_grant(one) for one in await users.grants(call.context.pools.rest, _user_id(call))])


async def grant(call: Call, body: MakeGrantBody) -> GrantShown:
    """Grant a user an action on the topics of a pattern."""
    by, hides = rights.changer_of(call), body.payloads == HIDDEN
    pattern = EVERYTHING if body.topic_pattern is None else body.topic_pattern
    right = Right(body.action)
    return _grant(await rights.grant(call.context, _user_id(call), right, pattern, by, hides_payloads=hides))


async def revoke(call: Call) -> None:
    """Revoke a grant."""
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
