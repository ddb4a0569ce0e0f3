"""Users as an operator makes them, and the ways in which they sign in."""

from __future__ import annotations

import base64
import secrets

import httpx

from tests.api.messages.client import Body, done

PASSWORD = "correct horse battery staple"


def basic(name: str, password: str = PASSWORD) -> dict[str, str]:
    return {"authorization": "Basic " + base64.b64encode(f"{name}:{password}".encode()).decode()}


async def add_user(
    http: httpx.AsyncClient,
    *grants: str,
    name: str = "",
    password: str = PASSWORD,
    is_admin: bool = False,
    headers: dict[str, str] | None = None,
) -> Body:
    """A new user with these grants, each `action pattern`."""
    body = {"username": name or f"u-{secrets.token_hex(4)}", "password": password, "is_admin": is_admin}
    made = done(await http.post("/api/users", json=body, headers=headers), 201)
    for grant in grants:
        action, _, pattern = grant.partition(" ")
        body = {"action": action, "topic_pattern": pattern or "*"}
        done(await http.post(f"/api/users/{made['id']}/grants", json=body, headers=headers), 201)
    return made


async def token_of(http: httpx.AsyncClient, name: str, password: str = PASSWORD) -> dict[str, str]:
    """The header of a user who has signed in."""
    answer = done(await http.post("/api/auth/login", json={"username": name, "password": password}))
    return {"authorization": f"Bearer {answer['token']}"}
