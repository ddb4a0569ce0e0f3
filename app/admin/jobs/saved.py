"""The list's filter under a name: saved, and deleted, by the functions of the API's verbs."""

from __future__ import annotations

import contextlib

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from app.admin.forms import FAULTS, refused
from app.admin.jobs import listing
from app.admin.session import fields_of
from app.edge import saved_views
from app.errors import NotFound
from app.topics.config import check_name


async def save(request: Request) -> Response:
    """Save it, and go there; what is refused is said beside the field."""
    fields = await fields_of(request)
    there = _address(request, fields)
    try:
        await saved_views.save(request, fields.get("name", "").strip(), there)
    except FAULTS as error:
        return await listing.show_with(request, fields, refused(fields, error))
    return RedirectResponse(there, 303)


async def delete(request: Request) -> Response:
    """Delete it, if it is there, and go back to the list."""
    fields = await fields_of(request)
    with contextlib.suppress(NotFound):  # by now
        await saved_views.delete(request, fields.get("name", ""))
    return RedirectResponse(_address(request, fields), 303)


def _address(request: Request, fields: dict[str, str]) -> str:
    name = check_name(request.path_params["topic"])
    return listing.address(name, fields.get("q", ""), "oldest" if fields.get("order") == "oldest" else "")
