"""Routes that FastAPI describes and does not stand between."""

from __future__ import annotations

from typing import Any

from fastapi import APIRouter
from fastapi.routing import APIRoute
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from app.http.context import context_of

LARGE_BYTES = 64 * 1024  # an answer up to this size is sent and forgotten


class Direct(APIRoute):
    """A route whose function takes the request and answers with a response.

    What FastAPI does around a function (dependencies, exit stacks, serialisation) would be done for nothing, and takes
    a third of the time of a single claim. Errors go to the application's handlers as ever.
    """

    def __init__(self, path: str, endpoint: Any, **options: Any) -> None:
        super().__init__(path, endpoint, **options)

        async def app(scope: Scope, receive: Receive, send: Send) -> None:
            request = Request(scope, receive, send)
            response = await endpoint(request)
            if len(getattr(response, "body", b"")) > LARGE_BYTES:
                await _send_large(request, response, send)
            else:
                await response(scope, receive, send)

        self.app = app


async def _send_large(request: Request, response: Response, send: Send) -> None:
    """Send an answer whose bytes count as held until its client has read them. Raises Throttled for a GET, which has
    changed nothing, where too many are held already."""
    quota = context_of(request).quota
    if request.method == "GET":
        quota.must_have_room(0)
    quota.add_bytes(request.scope, len(response.body))
    await send({"type": "http.response.start", "status": response.status_code, "headers": response.raw_headers})
    await send({"type": "http.response.body", "body": response.body, "more_body": True})
    await send({"type": "http.response.body", "body": b""})  # the server waits here for a slow reader


def router(*tags: str) -> APIRouter:
    """For direct routes. Not to be included in another router: its routes are mounted as they are."""
    return APIRouter(tags=list(tags), route_class=Direct)
