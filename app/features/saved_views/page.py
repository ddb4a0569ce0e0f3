"""Saved views on the lists of admin pages."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Final
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.errors import InvalidRequest, NotFound
from app.features.saved_views import store
from app.features.saved_views.store import MAX_ADDRESS, MAX_NAME, MOST, View
from app.http.context import context_of
from app.pages.forms import FAULTS
from app.pages.permissions import KEEP_VIEWS, allows
from app.pages.render import asks_for_live_part
from app.pages.session import fields_of

if TYPE_CHECKING:
    from app.base.db.pool import Pool

_NAMING: Final = "naming"  # the query parameter with a refused name


class SavedViews(msgspec.Struct, frozen=True):
    """The saved views of a list. `address`: the first page of the list with the current filter. `typed`, `fault`: a
    refused name, and the error."""

    views: list[View]
    address: str
    may_keep: bool
    may_save: bool
    typed: str = ""
    fault: str = ""


async def of(request: Request, address: str, *, worth: bool) -> SavedViews:
    """Return the saved views of the list at an address. `worth`: whether it has a filter to save."""
    views = [] if asks_for_live_part(request) else await every(request)  # they are outside the live part
    if len(address) > MAX_ADDRESS:
        address, worth = _list_of(address), False
    typed = request.query_params.get(_NAMING, "")
    may_keep = allows(request, KEEP_VIEWS)
    return SavedViews(
        [one for one in views if _list_of(one.address) == _list_of(address)],
        address,
        may_keep,
        may_keep and worth,
        typed,
        _fault(typed, views) if _NAMING in request.query_params else "",
    )


async def every(request: Request) -> list[View]:
    return await store.page(*_mine(request))


async def save(request: Request) -> Response:
    """Save a view, and go to its list. An error is shown there beside the field."""
    fields = await fields_of(request)
    there, name = store.check_address(fields.get("address", "")), fields.get("name", "").strip()
    try:
        await store.put(*_mine(request), name, there)
    except FAULTS:
        there += ("&" if "?" in there else "?") + urlencode({_NAMING: name[: MAX_NAME + 1]})
    return RedirectResponse(there, 303)


async def delete(request: Request) -> Response:
    """Delete a view if it exists, and go back to the list."""
    fields = await fields_of(request)
    with contextlib.suppress(NotFound):  # already deleted
        await store.delete(*_mine(request), fields.get("name", ""))
    return RedirectResponse(store.check_address(fields.get("address", "")), 303)


def _mine(request: Request) -> tuple[Pool, str]:
    context = context_of(request)
    return context.pools.rest, context.access.actor(request).id


def _list_of(address: str) -> str:
    return address.partition("?")[0]


def _fault(name: str, views: list[View]) -> str:
    try:
        store.check_name(name)
    except InvalidRequest as error:
        return error.message
    full = len(views) >= MOST and name not in {one.name for one in views}
    return f"You have {MOST} saved views, which is the limit." if full else ""
