"""How the v0 dialect shows an error."""

from __future__ import annotations

import logging

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match

from app.api.calls import LEFT, ended_with
from app.api.openapi import ErrorAnswer, ErrorBody
from app.api.v0.fields import encode
from app.db.pool import as_unavailable
from app.edge.context import context_of
from app.errors import HoldfastError, InvalidRequest, MethodNotAllowed, NotFound

log = logging.getLogger(__name__)


async def nobody_reads(request: Request, _error: Exception) -> Response:
    """For a client that left before its request had arrived: no fault of anybody's here."""
    ended_with(request, LEFT)
    return Response(status_code=499)


async def look_again(request: Request, error: Exception) -> Response:
    """For a key that this process does not know. One that was made elsewhere a moment ago is found in the database, and
    the route runs again: it had not begun to read the body."""
    if not await context_of(request).access.knows_by_now(request):
        return await show(request, error)
    try:
        answer: Response = await request.scope["endpoint"](request)
    except ClientDisconnect as left:
        return await nobody_reads(request, left)
    except Exception as again:
        return await show(request, again)
    return answer


async def show(request: Request, error: Exception) -> Response:
    """The envelope for any error that a route lets go."""
    shown = _known(request, error)
    if shown is None:
        log.error("%s %s failed", request.method, request.url.path, exc_info=error)
        shown = HoldfastError("Something went wrong here; the service's log says what.")
    ended_with(request, shown.code)
    body = ErrorBody(shown.code, shown.message)
    if shown.detail:
        body.detail = dict(shown.detail)
    headers = {} if shown.retry_after is None else {"retry-after": str(shown.retry_after)}
    if isinstance(shown, MethodNotAllowed):
        headers["allow"] = ", ".join(_allowed(request))
    return Response(encode(ErrorAnswer(body)), shown.status, headers, "application/json")


def _allowed(request: Request) -> list[str]:
    """The methods that the request's path has. Starlette names those of the first route that it finds there."""
    found = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    return sorted({method for route in found for method in getattr(route, "methods", None) or ()})


def _known(request: Request, error: Exception) -> HoldfastError | None:
    if isinstance(error, HoldfastError):
        return error
    if isinstance(error, HTTPException):
        in_topics = f"{request.url.path}/".startswith("/v0/topics/")
        if in_topics and b"%2f" in request.scope.get("raw_path", b"").lower():
            return InvalidRequest("A topic's name can't have a '/'.")
        if error.status_code == MethodNotAllowed.status:
            return MethodNotAllowed(f"{request.method} is not for {request.url.path}.")
        if f"{request.url.path}/".startswith("/v0/topics//"):
            return InvalidRequest("A topic's name can't be empty.")
        return NotFound(f"There is nothing at {request.url.path}.")
    return as_unavailable(error)
