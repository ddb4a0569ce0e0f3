"""Change keys, users and grants, for routes and pages. A change is in effect in this process before it returns.

docs/keys.md.
"""

from __future__ import annotations

from starlette.requests import Request

from app.base.keys import Scope
from app.http.context import Context, context_of
from app.http.route import Call
from app.http.signin import api_keys, users
from app.http.signin.api_keys import Changer, NewKey, StoredKey
from app.http.signin.people import Right
from app.http.signin.users import Account, Grant


def changer_of(call: Call) -> Changer:
    """Return the caller of a route as a changer of keys and users. The route must have `reloads`."""
    return Changer(call.context.access.actor_with(call.key, call.request), call.key)


async def changer(request: Request) -> Changer:
    """Return the visitor of a page as a changer of keys. Reloads the keys first if the service seems to have none.

    Raises Unauthorized, Forbidden.
    """
    access = context_of(request).access
    if not access.directory.guarded:
        await access.directory.reload()
    key = access.check(request, Scope.ADMIN)
    return Changer(access.actor_with(key, request), key)


async def changer_of_users(request: Request) -> Changer:
    """Return the visitor of a page as a changer of users. Raises Unauthorized, Forbidden."""
    by = await changer(request)
    context_of(request).access.check_server(request)
    return by


async def make_key(context: Context, asked: NewKey, by: Changer) -> tuple[StoredKey, str]:
    """Create a key. Returns it and its secret, which can't be read again. Raises the errors of api_keys.create."""
    key, secret = await api_keys.create(context.pools.rest, asked, by)
    await context.access.directory.reload_after_change()
    return key, secret


async def rotate_key(context: Context, key_id: str, grace_ms: int, by: Changer) -> tuple[StoredKey, str]:
    """Give a key a new secret. Returns both. The previous secret works for `grace_ms` more.

    Raises the errors of api_keys.rotate.
    """
    key, secret = await api_keys.rotate(context.pools.rest, key_id, grace_ms, by)
    await context.access.directory.reload_after_change(gone="" if grace_ms else key_id)
    return key, secret


async def revoke_key(context: Context, key_id: str, by: Changer) -> StoredKey:
    """Revoke a key. A second call changes nothing. Raises the errors of api_keys.revoke."""
    key = await api_keys.revoke(context.pools.rest, key_id, by)
    await context.access.directory.reload_after_change(gone=key_id)
    return key


async def make_user(context: Context, name: str, password: str, by: Changer, *, is_admin: bool) -> Account:
    """Create a user. Raises the errors of users.create, and Unavailable if too many passwords are being hashed."""
    users.check_name(name)
    hashed = await context.access.sessions.passwords.hash(password)
    account = await users.create(context.pools.rest, name, hashed, by, is_admin=is_admin)
    await context.access.directory.reload_after_change()
    return account


async def change_user(
    context: Context,
    user_id: str,
    by: Changer,
    *,
    name: str | None = None,
    password: str | None = None,
    is_admin: bool | None = None,
) -> Account:
    """Change the given fields of a user. Raises the errors of users.change, and Unavailable like `make_user`."""
    hashed = None
    if password is not None:
        users.check_password(password)
        await users.get(context.pools.rest, user_id)  # hashing takes 0.25 s: first check that the user exists
        hashed = await context.access.sessions.passwords.hash(password)
    account = await users.change(context.pools.rest, user_id, by, name=name, password_hash=hashed, is_admin=is_admin)
    await context.access.directory.reload_after_change(user=account.id)
    return account


async def delete_user(context: Context, user_id: str, by: Changer) -> None:
    """Delete a user and their grants. Raises the errors of users.delete."""
    await users.delete(context.pools.rest, user_id, by)
    await context.access.directory.reload_after_change(user=user_id.lower())


async def grant(
    context: Context, user_id: str, right: Right, pattern: str, by: Changer, *, hides_payloads: bool = False
) -> Grant:
    made = await users.grant(context.pools.rest, user_id, right, pattern, by, hides_payloads=hides_payloads)
    await context.access.directory.reload_after_change()
    return made


async def take_back(context: Context, user_id: str, grant_id: str, by: Changer) -> None:
    await users.revoke(context.pools.rest, user_id, grant_id, by)
    await context.access.directory.reload_after_change(user=user_id.lower())
