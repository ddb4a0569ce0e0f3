"""/v0/views: saved views of the admin pages."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Final

import msgspec
from msgspec import Meta

from app.base.times import ms_of
from app.features.saved_views import store
from app.features.saved_views.store import ADDRESS, MAX_ADDRESS, MAX_NAME, MOST, View
from app.http.bounds import about
from app.http.openapi import path
from app.http.route import Call

if TYPE_CHECKING:
    from app.base.db.pool import Pool

NAME: Final = {
    **path("name", "The view's name.", {"type": "string", "maxLength": MAX_NAME, "pattern": store.NAME}),
    "example": "late orders",
}


class SaveBody(msgspec.Struct, forbid_unknown_fields=True):
    """The address of a view."""

    address: Annotated[
        str,
        Meta(
            description="The address of an admin page, starting with /admin/.",
            extra_json_schema={"maxLength": MAX_ADDRESS, "pattern": ADDRESS},
        ),
    ]


class SavedView(msgspec.Struct):
    """A saved view. `created_at` is in ms since 1970."""

    name: str
    address: str
    created_at: int


class SavedViewAnswer(SavedView):
    """A saved view."""


class SavedViewsAnswer(msgspec.Struct):
    """The caller's views, by name."""

    views: Annotated[list[SavedView], about(f"At most {MOST}.")]


async def page(call: Call) -> SavedViewsAnswer:
    """List the saved views of the calling user or key."""
    return SavedViewsAnswer([SavedView(*_fields(one)) for one in await store.page(*_mine(call))])


async def put(call: Call, body: SaveBody) -> SavedViewAnswer:
    """Save a view, or change its address. Only the calling user or key sees it."""
    return SavedViewAnswer(*_fields(await store.put(*_mine(call), call.request.path_params["name"], body.address)))


async def delete(call: Call) -> SavedViewAnswer:
    """Delete a view. Returns it."""
    return SavedViewAnswer(*_fields(await store.delete(*_mine(call), call.request.path_params["name"])))


def _mine(call: Call) -> tuple[Pool, str]:
    return call.context.pools.rest, call.context.access.actor_with(call.key, call.request).id


def _fields(view: View) -> tuple[str, str, int]:
    return view.name, view.address, ms_of(view.created_at)
