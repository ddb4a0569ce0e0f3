"""/admin/users: users and their grants."""

from __future__ import annotations

from typing import Final
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.base.times import ms_of
from app.errors import InvalidRequest
from app.features.people import rights
from app.http.context import context_of
from app.http.signin import users
from app.http.signin.people import Right
from app.http.signin.users import Account
from app.pages.forms import FAULTS, TypedForm, form_with_fault
from app.pages.permissions import CHANGE_USERS, allows
from app.pages.render import page
from app.pages.session import fields_of

MOST: Final = 50
BLANK: Final = TypedForm()


class UserRow(msgspec.Struct, frozen=True):
    """A user on a page. Times are in ms since 1970."""

    id: str
    username: str
    is_admin: bool
    created_ms: int
    updated_ms: int


async def show(request: Request) -> Response:
    """List users by name. Raises InvalidRequest."""
    after = request.query_params.get("after", "")
    if "\0" in after:
        raise InvalidRequest("A name must not contain a NUL character.")
    found = await users.page(context_of(request).pools.rest, after, MOST + 1)
    return page(
        request,
        "users.html",
        title="Users",
        rows=[_row(account) for account in found[:MOST]],
        may_change=allows(request, CHANGE_USERS),
        first="/admin/users" if after else "",
        following=f"/admin/users?{urlencode({'after': found[MOST - 1].username})}" if len(found) > MOST else "",
    )


async def ask(request: Request) -> Response:
    return page(request, "user_new.html", title="New user", form=BLANK)


async def make(request: Request) -> Response:
    """Create a user and go to their page, or show the form again. Raises Unauthorized, Unavailable."""
    context, by, fields = context_of(request), await rights.changer_of_users(request), await fields_of(request)
    name, password = fields.get("username", ""), fields.get("password", "")
    try:
        account = await rights.make_user(context, name, password, by, is_admin="is_admin" in fields)
    except FAULTS as error:
        return page(request, "user_new.html", error.status, title="New user", form=form_with_fault(fields, error))
    return RedirectResponse(f"/admin/users/{account.id}", 303)


async def one(request: Request) -> Response:
    """Show a user with their grants. Raises NotFound."""
    return await _page(request)


async def change(request: Request) -> Response:
    """Change the fields that were edited. Raises NotFound, Unauthorized, Unavailable."""
    context, by, fields = context_of(request), await rights.changer_of_users(request), await fields_of(request)
    name, is_admin = fields.get("username", ""), "is_admin" in fields
    try:
        account = await rights.change_user(
            context,
            request.path_params["id"],
            by,
            name=name if name != fields.get("was_username") else None,
            password=fields.get("password") or None,
            is_admin=is_admin if is_admin != ("was_admin" in fields) else None,
        )
    except FAULTS as error:
        return await _page(request, error.status, changing=form_with_fault(fields, error))
    return RedirectResponse(f"/admin/users/{account.id}", 303)


async def delete(request: Request) -> Response:
    """Delete a user. Raises NotFound, Unauthorized."""
    by = await rights.changer_of_users(request)
    try:
        await rights.delete_user(context_of(request), request.path_params["id"], by)
    except FAULTS as error:
        return await _page(request, error.status, changing=form_with_fault({}, error))
    return RedirectResponse("/admin/users", 303)


async def grant(request: Request) -> Response:
    """Grant a user an action on the topics of a pattern, or show the form again. Raises NotFound, Unauthorized."""
    context, by, fields = context_of(request), await rights.changer_of_users(request), await fields_of(request)
    user_id: str = request.path_params["id"]
    try:
        right = _right(fields.get("action", ""))
        pattern, hides = fields.get("topic_pattern", "").strip(), "hides_payloads" in fields
        await rights.grant(context, user_id, right, pattern, by, hides_payloads=hides)
    except FAULTS as error:
        return await _page(request, error.status, granting=form_with_fault(fields, error))
    return RedirectResponse(f"/admin/users/{user_id}", 303)


async def take_back(request: Request) -> Response:
    """Revoke a grant. Raises NotFound, Forbidden."""
    by = await rights.changer_of_users(request)
    user_id: str = request.path_params["id"]
    await rights.take_back(context_of(request), user_id, request.path_params["grant"], by)
    return RedirectResponse(f"/admin/users/{user_id}", 303)


async def _page(
    request: Request, status: int = 200, *, changing: TypedForm = BLANK, granting: TypedForm = BLANK
) -> Response:
    db, user_id = context_of(request).pools.rest, request.path_params["id"]
    account = await users.get(db, user_id)
    return page(
        request,
        "user.html",
        status,
        title=account.username,
        user=_row(account),
        grants=await users.grants(db, user_id),
        rights=[right.value for right in Right],
        changing=changing,
        granting=granting,
        may_change=allows(request, CHANGE_USERS),
    )


def _right(word: str) -> Right:
    try:
        return Right(word)
    except ValueError:
        words = ", ".join(right.value for right in Right)
        raise InvalidRequest(f"action must be one of {words}.", {"field": "action"}) from None


def _row(account: Account) -> UserRow:
    created, updated = ms_of(account.created_at), ms_of(account.updated_at)
    return UserRow(account.id, account.username, account.is_admin, created, updated)
