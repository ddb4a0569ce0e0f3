"""The views that whoever asks has saved, for whichever edge they come by. docs/admin.md."""

from __future__ import annotations

import re
from typing import Final

from starlette.requests import Request

from app.errors import InvalidRequest, NotFound
from app.features.saved_views import store as saved_views
from app.features.saved_views.store import View
from app.http.context import context_of

MAX_NAME: Final = 80
MAX_ADDRESS: Final = 2_048
NAME: Final = r"^[^\s/.\u0000-\u001f\u007f][^/\u0000-\u001f\u007f]*$"
ADDRESS: Final = r"^/admin/[!-\[\]-~]*$"  # what an address can have as it stands
_NAME: Final = re.compile(NAME.replace("$", r"\Z"))
_ADDRESS: Final = re.compile(ADDRESS.replace("$", r"\Z"))


async def every(request: Request) -> list[View]:
    """All of them, by name."""
    context = context_of(request)
    return await saved_views.page(context.pools.rest, context.access.actor(request).id)


async def save(request: Request, name: str, address: str) -> View:
    """Save one, or change its address. Raises InvalidRequest, Throttled."""
    name, address = checked(name), address_of(address)
    context = context_of(request)
    return await saved_views.put(context.pools.rest, context.access.actor(request).id, name, address)


async def delete(request: Request, name: str) -> View:
    """Delete one: as it was. Raises InvalidRequest, NotFound."""
    context = context_of(request)
    gone = await saved_views.delete(context.pools.rest, context.access.actor(request).id, checked(name))
    if gone is None:
        raise NotFound(f"There is no saved view {name!r}.")
    return gone


def address_of(text: str) -> str:
    """A page's address. Raises InvalidRequest."""
    if len(text) > MAX_ADDRESS or not _ADDRESS.match(text):
        raise InvalidRequest(
            f"address begins with /admin/ and has {MAX_ADDRESS} characters at most, escaped as addresses are.",
            {"field": "address"},
        )
    return text


def checked(name: str) -> str:
    """A view's name. Raises InvalidRequest."""
    if len(name) > MAX_NAME or not _NAME.match(name):
        raise InvalidRequest(
            f"A view's name has 1 to {MAX_NAME} characters, none of them / or a control character; "
            "it begins with neither a dot nor a space.",
            {"field": "name"},
        )
    return name
