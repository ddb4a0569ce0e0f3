"""Users, grants and API keys."""

from __future__ import annotations

from functools import partial
from typing import Final

from app.base.keys import Scope
from app.features.feature import Feature
from app.features.people import keys_page, messages, users_page, v0
from app.features.people.messages import GRANT, USER
from app.http.fields import CURSOR, PAGE_SIZE
from app.http.messages.dialect import MESSAGES
from app.http.route import Route
from app.http.v0.dialect import V0
from app.pages.frame import Menu, Page
from app.pages.permissions import CHANGE_KEYS, CHANGE_USERS, SEE_RIGHTS, SEE_SERVER

_keys = partial(Route, dialect=V0, scope=Scope.ADMIN, reloads=True)
_key = partial(_keys, parameters=[v0.ID])
_open = partial(Route, dialect=MESSAGES)
_users = partial(Route, dialect=MESSAGES, scope=Scope.ADMIN, server=True)
_CONFLICT: Final = frozenset({409})

FEATURE: Final = Feature(
    "people",
    routes=[
        _keys("POST", "/v0/keys", v0.make, {201: v0.SecretAnswer}, takes=v0.MakeKeyBody, verb="keys_make"),
        _keys("GET", "/v0/keys", v0.page, {200: v0.KeysAnswer}, parameters=[PAGE_SIZE, CURSOR], verb="keys_page"),
        _key("GET", "/v0/keys/{id}", v0.get, {200: v0.KeyAnswer}, verb="keys_get"),
        _key(
            "POST",
            "/v0/keys/{id}/rotate",
            v0.rotate,
            {200: v0.SecretAnswer},
            takes=v0.RotateKeyBody,
            empty=b"{}",
            refuses=_CONFLICT,
            verb="keys_rotate",
        ),
        _key("DELETE", "/v0/keys/{id}", v0.revoke, {200: v0.KeyAnswer}, verb="keys_revoke"),
        _open(
            "POST",
            "/api/auth/login",
            messages.login,
            {200: messages.TokenAnswer},
            scope=None,
            takes=messages.LoginBody,
            refuses=frozenset({400, 401, 503}),
            verb="login",
        ),
        _open(
            "POST",
            "/api/auth/refresh",
            messages.refresh,
            {200: messages.TokenAnswer},
            scope=Scope(0),
            verb="login_refresh",
        ),
        _users(
            "GET",
            "/api/users",
            messages.page,
            {200: messages.UsersAnswer},
            parameters=[messages.PAGE_SIZE, CURSOR],
            verb="users_page",
        ),
        _users(
            "POST",
            "/api/users",
            messages.make,
            {201: messages.UserShown},
            takes=messages.MakeUserBody,
            reloads=True,
            refuses=_CONFLICT,
            verb="users_make",
        ),
        _users(
            "PUT",
            "/api/users/{id}",
            messages.change,
            {200: messages.UserShown},
            takes=messages.ChangeUserBody,
            reloads=True,
            parameters=[USER],
            refuses=_CONFLICT,
            verb="users_change",
        ),
        _users(
            "DELETE",
            "/api/users/{id}",
            messages.delete,
            {204: None},
            reloads=True,
            parameters=[USER],
            refuses=frozenset({400}),
            verb="users_delete",
        ),
        _users(
            "GET",
            "/api/users/{id}/grants",
            messages.grants,
            {200: messages.GrantsAnswer},
            parameters=[USER],
            verb="grants_all_of_them",
        ),
        _users(
            "POST",
            "/api/users/{id}/grants",
            messages.grant,
            {201: messages.GrantShown},
            takes=messages.MakeGrantBody,
            reloads=True,
            parameters=[USER],
            refuses=_CONFLICT,
            verb="grants_make",
        ),
        _users(
            "DELETE",
            "/api/users/{id}/grants/{grant_id}",
            messages.revoke,
            {204: None},
            reloads=True,
            parameters=[USER, GRANT],
            verb="grants_revoke",
        ),
    ],
    pages=[
        Page("GET", "/keys", SEE_RIGHTS, keys_page.show, Menu("Keys", 6)),
        Page("GET", "/keys/new", SEE_RIGHTS, keys_page.ask),
        Page("POST", "/keys/new", CHANGE_KEYS, keys_page.make),
        Page("GET", "/keys/{id}", SEE_RIGHTS, keys_page.one),
        Page("POST", "/keys/{id}/rotate", CHANGE_KEYS, keys_page.rotate),
        Page("POST", "/keys/{id}/revoke", CHANGE_KEYS, keys_page.revoke),
        Page("GET", "/users", SEE_SERVER, users_page.show, Menu("Users", 7)),
        Page("GET", "/users/new", SEE_SERVER, users_page.ask),
        Page("POST", "/users/new", CHANGE_USERS, users_page.make),
        Page("GET", "/users/{id}", SEE_SERVER, users_page.one),
        Page("POST", "/users/{id}", CHANGE_USERS, users_page.change),
        Page("POST", "/users/{id}/delete", CHANGE_USERS, users_page.delete),
        Page("POST", "/users/{id}/grants", CHANGE_USERS, users_page.grant),
        Page("POST", "/users/{id}/grants/{grant}/revoke", CHANGE_USERS, users_page.take_back),
    ],
)
