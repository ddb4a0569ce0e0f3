"""Turns exceptions into responses. Each dialect renders the same error in its own format."""

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

# Paths that continue with a topic's name, which is not empty and has no slash.
BEFORE_TOPICS: Final = ("/v0/topics/", "/api/topics/", "/api/topic-configs/", "/api/topic-schemas/")


class Errors:
    """The application's exception handlers."""

    def __init__(self, otherwise: Dialect, dialects: Mapping[str, Dialect]) -> None:
        """`dialects` maps path prefixes to dialects; other paths use `otherwise`."""
        self._otherwise = otherwise
        self._dialects = tuple(dialects.items())

    async def nobody_reads(self, request: Request, _error: Exception) -> Response:
        """Handle a client that disconnected before its request had arrived."""
        ended_with(request, LEFT)
        return Response(status_code=499)

    async def look_again(self, request: Request, error: Exception) -> Response:
        """Handle a key, token or password that this process does not know.

        Loads recent keys and users from the database and checks the password. If one is valid, the route runs again;
        it has not read the body yet."""
        try:
            if not await context_of(request).access.reauthenticate(request):
                return await self.show(request, error)
            answer: Response = await request.scope["endpoint"](request)
        except ClientDisconnect as left:
            return await self.nobody_reads(request, left)
        except Exception as again:
            return await self.show(request, again)
        return answer

    async def show(self, request: Request, error: Exception) -> Response:
        """Render any exception of a route."""
        known = _error_of(request, error)
        if known is None:
            known = fault_of(request, error)
        dialect = self.dialect(request.url.path)
        known = dialect.error_of(known)
        ended_with(request, known.code)
        headers = {} if known.retry_after is None else {"retry-after": str(known.retry_after)}
        if isinstance(known, MethodNotAllowed):
            headers["allow"] = ", ".join(_other_methods(request))
        return Response(dialect.write_error(known), known.status, headers, "application/json")

    def dialect(self, path: str) -> Dialect:
        """The dialect of a path."""
        for start, dialect in self._dialects:
            if path == start or path.startswith(f"{start}/"):
                return dialect
        return self._otherwise


def fault_of(request: Request, error: Exception) -> HoldfastError:
    """Log an unexpected exception. Returns the error for the caller, which names the request's id."""
    log.error("%s %s failed", request.method, route_of(request.scope) or "an unknown path", exc_info=error)
    named = request.scope[ID].decode()
    return HoldfastError(f"Internal error. The service's log has the details under request {named}.")


def _other_methods(request: Request) -> list[str]:
    """The other methods of the request's path. Starlette names only those of the first route that matches."""
    found = [route for route in request.app.routes if route.matches(request.scope)[0] is not Match.NONE]
    # A literal path takes precedence over a template that matches as well.
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
            return MethodNotAllowed(f"{request.url.path} does not support {request.method}.")
        if in_topics and any(path.startswith(f"{start}/") for start in BEFORE_TOPICS):
            return InvalidRequest("A topic's name can't be empty.")
        routers = " There are no routers here." if path.startswith("/v0/routers/") else ""
        return NotFound(f"There is nothing at {request.url.path}.{routers}")
    return as_unavailable(error)
