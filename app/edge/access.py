"""Who may do what: API keys, checked before anything else. docs/semantics.md, section 21."""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Sequence

from starlette.requests import Request

from app.errors import Forbidden, Unauthorized
from app.keys import Key, Scope


class Access:
    """The keys of a process. Without any, everything is open, and credentials that are sent are ignored."""

    def __init__(self, keys: Sequence[Key]) -> None:
        self._keys = keys

    def check(self, request: Request, scopes: Scope, topic: str | None = None, *, query_token: bool = False) -> None:
        """Refuse a request that may not do this. Raises Unauthorized, Forbidden.

        `query_token`: the route also takes the key as ?token=, for browsers' EventSource.
        """
        if self._keys:
            key = self._key(request, query_token)
            if scopes & ~key.scopes:
                raise Forbidden(f"This key lacks the scope {_names(scopes & ~key.scopes)}.")
            if topic is not None and not key.covers(topic):
                raise Forbidden("This key is not for this topic.", {"topic": topic})

    def check_server(self, request: Request, *, basic: bool = False) -> None:
        """Refuse who may not look at the server as a whole: that takes admin, and a key for every topic.

        `basic`: the route also takes the key as HTTP Basic's password, for browsers. Raises Unauthorized, Forbidden.
        """
        if self._keys:
            key = self._key(request, query_token=False, basic=basic)
            if Scope.ADMIN not in key.scopes:
                raise Forbidden(f"This key lacks the scope {_names(Scope.ADMIN)}.")
            if key.prefixes:
                raise Forbidden("This key is for some topics only, and this is about the whole server.")

    def may_name(self, request: Request, topic: str) -> None:
        """Refuse a key that may not write to a topic that its request names. Raises Unauthorized, Forbidden."""
        self.check(request, Scope.WRITE, topic)

    def prefixes(self, request: Request) -> tuple[str, ...]:
        """Which topics a list may show to the request's key, by the starts of their names; none for all."""
        return self._key(request, query_token=False).prefixes if self._keys else ()

    def _key(self, request: Request, query_token: bool, basic: bool = False) -> Key:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if basic and scheme.lower() == "basic":
            given = _password(given)
        elif scheme.lower() != "bearer" or not given:
            # Of several, the first counts.
            given = next(iter(request.query_params.getlist("token")), "") if query_token else ""
        digest = hashlib.sha256(given.strip().encode()).digest()
        found = None
        for key in self._keys:  # all of them, however soon one fits: the time taken tells nothing
            if hmac.compare_digest(key.digest, digest):
                found = key
        if found is None or not given:
            raise Unauthorized("An API key is needed: Authorization: Bearer <key>.")
        return found


def _password(credentials: str) -> str:
    """The password of HTTP Basic (RFC 7617); empty when these are no such credentials. The user's name is free."""
    try:
        return base64.b64decode(credentials, validate=True).decode().partition(":")[2]
    except ValueError:
        return ""


def _names(scopes: Scope) -> str:
    return "+".join(scope.name.lower() for scope in scopes if scope.name)
