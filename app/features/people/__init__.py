"""Users, their grants, and keys."""

from __future__ import annotations

from typing import Final

from app.features.feature import Feature
from app.features.people import keys_page, messages_grants, messages_login, messages_users, users_page, v0
from app.pages.frame import Page
from app.pages.permissions import CHANGE_KEYS, CHANGE_USERS, SEE_RIGHTS, SEE_SERVER

FEATURE: Final = Feature(
    "people",
    routers=[v0.router, messages_login.router, messages_users.router, messages_grants.router],
    pages=[
        Page("GET", "/keys", SEE_RIGHTS, keys_page.show),
        Page("GET", "/keys/new", SEE_RIGHTS, keys_page.ask),
        Page("POST", "/keys/new", CHANGE_KEYS, keys_page.make),
        Page("GET", "/keys/{id}", SEE_RIGHTS, keys_page.one),
        Page("POST", "/keys/{id}/rotate", CHANGE_KEYS, keys_page.rotate),
        Page("POST", "/keys/{id}/revoke", CHANGE_KEYS, keys_page.revoke),
        Page("GET", "/users", SEE_SERVER, users_page.show),
        Page("GET", "/users/new", SEE_SERVER, users_page.ask),
        Page("POST", "/users/new", CHANGE_USERS, users_page.make),
        Page("GET", "/users/{id}", SEE_SERVER, users_page.one),
        Page("POST", "/users/{id}", CHANGE_USERS, users_page.change),
        Page("POST", "/users/{id}/delete", CHANGE_USERS, users_page.delete),
        Page("POST", "/users/{id}/grants", CHANGE_USERS, users_page.grant),
        Page("POST", "/users/{id}/grants/{grant}/revoke", CHANGE_USERS, users_page.take_back),
    ],
)
