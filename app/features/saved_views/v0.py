"""/v0/views: addresses of the admin pages that users, and holders of keys, have saved for themselves."""

from __future__ import annotations

import time
from typing import Annotated

import msgspec
from msgspec import Meta
from starlette.requests import Request
from starlette.responses import Response

from app.base.keys import Scope
from app.features.saved_views import requests as saved_views
from app.features.saved_views.requests import ADDRESS, MAX_ADDRESS, MAX_NAME, NAME
from app.features.saved_views.store import MOST, View
from app.http import direct
from app.http.body import read_json
from app.http.bounds import about
from app.http.context import context_of
from app.http.fields import encode, known_parameters
from app.http.openapi import operation, path
from app.http.v0.bodies import Performance
from app.http.v0.fields import answer

router = direct.router("views")

NAME_IN_PATH = {
    **path("name", "The view's name.", {"type": "string", "maxLength": MAX_NAME, "pattern": NAME}),
    "example": "late orders",
}


class SaveBody(msgspec.Struct, forbid_unknown_fields=True):
    """What the name is to stand for."""

    address: Annotated[
        str,
        Meta(
            description="Of an admin page, from the slash on.",
            extra_json_schema={"maxLength": MAX_ADDRESS, "pattern": ADDRESS},
        ),
    ]


class SavedView(msgspec.Struct):
    """A view. Times are in ms since 1970."""

    name: str
    address: str
    created_at: int


class SavedViewAnswer(SavedView):
    """A view."""

    performance: Performance


class SavedViewsAnswer(msgspec.Struct):
    """The caller's views, by name."""

    views: Annotated[list[SavedView], about(f"{MOST} at most.")]
    performance: Performance


_body = msgspec.json.Decoder(SaveBody)


@router.get(
    "/v0/views",
    response_class=Response,
    openapi_extra=operation(answers={200: SavedViewsAnswer}, errors=[400, 401, 403, 503]),
)
async def page(request: Request) -> Response:
    """The views that the user or key has saved."""
    began = time.perf_counter()
    context_of(request).access.check(request, Scope.READ)
    known_parameters(request, ())
    return answer(encode({"views": [_shown(one) for one in await saved_views.every(request)]})[1:-1], began)


@router.put(
    "/v0/views/{name}",
    response_class=Response,
    openapi_extra=operation(
        parameters=[NAME_IN_PATH],
        body=SaveBody,
        answers={200: SavedViewAnswer},
        errors=[400, 401, 403, 413, 415, 429, 503],
    ),
)
async def put(request: Request) -> Response:
    """Save a view, or change what its name stands for. Nobody else sees it."""
    began = time.perf_counter()
    context = context_of(request)
    context.access.check(request, Scope.READ)
    body = await read_json(request, _body, context.settings.max_body_bytes)
    view = await saved_views.save(request, request.path_params["name"], body.address)
    return answer(encode(_shown(view))[1:-1], began)


@router.delete(
    "/v0/views/{name}",
    response_class=Response,
    openapi_extra=operation(
        parameters=[NAME_IN_PATH], answers={200: SavedViewAnswer}, errors=[400, 401, 403, 404, 503]
    ),
)
async def delete(request: Request) -> Response:
    """Delete a view: as it was."""
    began = time.perf_counter()
    context_of(request).access.check(request, Scope.READ)
    return answer(encode(_shown(await saved_views.delete(request, request.path_params["name"])))[1:-1], began)


def _shown(view: View) -> dict[str, object]:
    return {"name": view.name, "address": view.address, "created_at": int(view.created_at.timestamp() * 1000)}
