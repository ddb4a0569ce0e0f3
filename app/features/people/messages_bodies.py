"""Bodies and answers of the routes for sign-in, users and grants. A field that is not listed is a 400."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Annotated, Literal

import msgspec
from msgspec import UNSET, Meta, UnsetType

from app.http.bounds import about, text
from app.http.signin.passwords import LEAST_CHARACTERS, MOST_BYTES
from app.http.signin.people import EVERYTHING, PATTERN
from app.http.signin.users import MOST_NAME_BYTES, Account, Grant

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
Password = Annotated[str, text(f"At least {LEAST_CHARACTERS} characters.", most=MOST_BYTES, least=LEAST_CHARACTERS)]


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


def user_shown(account: Account) -> UserShown:
    """A user as the dialect shows them."""
    created, updated = _time(account.created_at), _time(account.updated_at)
    return UserShown(account.id, account.username, account.is_admin, created, updated)


def grant_shown(grant: Grant) -> GrantShown:
    """A grant as the dialect shows it."""
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
