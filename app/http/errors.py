"""How errors are answered: what went wrong is the same in each dialect, and each shows it in its own way."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final

from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import Match

from app.base.log import ID, route_of
from app.base.outages import as_unavailable
from app.errors import HoldfastError, InvalidRequest, MethodNotAllowed, NotFound
from app.http.calls import LEFT, ended_with
from app.http.context import context_of
from app.http.dialect import Dialect

log = logging.getLogger(__name__)

# Where a topic's name follows, which has no slash and is not empty.
BEFORE_TOPICS: Final = ("/v0/topics/", "/api/topics/", "/api/topic-configs/", "/api/topic-schemas/")


class Errors:
    """The application's handlers of whatever its routes let go."""

    def __init__(self, otherwise: Dialect, dialects: Mapping[str, Dialect]) -> None:
        """`dialects`: by the start of their paths; all other paths are shown their errors by `otherwise`."""
        self._otherwise = otherwise
        self._dialects = tuple(dialects.items())

    async def nobody_reads(self, request: Request, _error: Exception) -> Response:
        """For a client that left before its request had arrived: no fault of anybody's here."""
        ended_with(request, LEFT)
        return Response(status_code=499)

    async def look_again(self, request: Request, error: Exception) -> Response:
        """For a key, token or password that this process does not know. One that was made elsewhere a moment ago is
        found in the database, a password is looked at, and the route runs again: it had not begun to read the body."""
        try:
            if not await context_of(request).access.knows_by_now(request):
                return await self.show(request, error)
            answer: Response = await request.scope["endpoint"](request)
        except ClientDisconnect as left:
            return await self.nobody_reads(request, left)
        except Exception as again:
            return await self.show(request, again)
        return answer

    async def show(self, request: Request, error: Exception) -> Response:
        """The answer to any error that a route lets go."""
        shown = _error_of(request, error)
        if shown is None:
            shown = fault_of(request, error)
        dialect = self.dialect(request.url.path)
        shown = dialect.error_of(shown)
        ended_with(request, shown.code)
        headers = {} if shown.retry_after is None else {"retry-after": str(shown.retry_after)}
        if isinstance(shown, MethodNotAllowed):
            headers["allow"] = ", ".join(_other_methods(request))
        return Response(dialect.write_error(shown), shown.status, headers, "application/json")

    def dialect(self, path: str) -> Dialect:
        """The one that a path is of."""
        for start, dialect in self._dialects:
            if path == start or path.startswith(f"{start}/"):
                return dialect
        return self._otherwise


def fault_of(request: Request, error: Exception) -> HoldfastError:
    """Log an error that is none of this service's own; what its caller is told, by which the line can be found."""
    log.error("%s %s failed", request.method, route_of(request.scope) or "an unknown path", exc_info=error)
    named = request.scope[ID].decode()
    return HoldfastError(f"Something went wrong here; the service's log says what, of request {named}.")


def _other_methods(request: Request) -> list[str]:
    """The methods that the request's path has. Starlette names those of the first route that it finds there."""
    found = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    # A path of its own, which one with an id in this place would match as well.
    found = [route for route in found if route.path == request.url.path] or found
    return sorted({method for route in found for method in getattr(route, "methods", None) or ()} - {request.method})


def _error_of(request: Request, error: Exception) -> HoldfastError | None:
    if isinstance(error, HoldfastError):
        return error
    if isinstance(error, HTTPException):
        path = f"{request.url.path}/"
        in_topics = path.startswith(BEFORE_TOPICS)
        if in_topics and b"%2f" in request.scope.get("raw_path", b"").lower():
            return InvalidRequest("A topic's name can't have a '/'.")
        if error.status_code == MethodNotAllowed.status:
            return MethodNotAllowed(f"{request.method} is not for {request.url.path}.")
        if in_topics and any(path.startswith(f"{start}/") for start in BEFORE_TOPICS):
            return InvalidRequest("A topic's name can't be empty.")
        routers = " There are no routers here." if path.startswith("/v0/routers/") else ""
        return NotFound(f"There is nothing at {request.url.path}.{routers}")
    return as_unavailable(error)
