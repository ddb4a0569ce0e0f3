"""A list's filter under a name: the same on every list. Saved, and deleted, by the functions of the API's verbs."""

from __future__ import annotations

import contextlib
from typing import Final
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.errors import InvalidRequest, NotFound
from app.features.saved_views import requests as saved_views
from app.features.saved_views.requests import MAX_ADDRESS, MAX_NAME
from app.features.saved_views.store import MOST, View
from app.pages.forms import FAULTS
from app.pages.permissions import KEEP_VIEWS, allows
from app.pages.render import is_of_what_moves
from app.pages.session import fields_of

_NAMING: Final = "naming"  # in an address: the name that was refused


class Kept(msgspec.Struct, frozen=True):
    """The views of a list, and what to save it as. `address`: of the list as it is filtered now, from its beginning;
    `typed` and `fault`: a name that was refused, and why."""

    views: list[View]
    address: str
    may_keep: bool
    may_save: bool
    typed: str = ""
    fault: str = ""


async def of(request: Request, address: str, *, worth: bool) -> Kept:
    """Those of the list at this address. `worth`: it is filtered, in a way that makes sense."""
    every = [] if is_of_what_moves(request) else await saved_views.every(request)  # they are no part of that
    if len(address) > MAX_ADDRESS:
        address, worth = _list_of(address), False
    typed = request.query_params.get(_NAMING, "")
    may_keep = allows(request, KEEP_VIEWS)
    return Kept(
        [one for one in every if _list_of(one.address) == _list_of(address)],
        address,
        may_keep,
        may_keep and worth,
        typed,
        _fault(typed, every) if _NAMING in request.query_params else "",
    )


async def save(request: Request) -> Response:
    """Save it, and go there; what is refused is said there, beside the field."""
    fields = await fields_of(request)
    there, name = saved_views.address_of(fields.get("address", "")), fields.get("name", "").strip()
    try:
        await saved_views.save(request, name, there)
    except FAULTS:
        there += ("&" if "?" in there else "?") + urlencode({_NAMING: name[: MAX_NAME + 1]})
    return RedirectResponse(there, 303)


async def delete(request: Request) -> Response:
    """Delete it, if it is there, and go back to the list."""
    fields = await fields_of(request)
    with contextlib.suppress(NotFound):  # by now
        await saved_views.delete(request, fields.get("name", ""))
    return RedirectResponse(saved_views.address_of(fields.get("address", "")), 303)


def _list_of(address: str) -> str:
    return address.partition("?")[0]


def _fault(name: str, views: list[View]) -> str:
    try:
        saved_views.checked(name)
    except InvalidRequest as error:
        return error.message
    full = len(views) >= MOST and name not in {one.name for one in views}
    return f"You have {MOST} saved views, and can have no more." if full else ""
