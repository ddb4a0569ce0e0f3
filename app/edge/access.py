"""Who may do what: API keys, checked before anything else. docs/semantics.md, section 21."""

from __future__ import annotations

import base64
from collections.abc import Callable
from typing import TYPE_CHECKING

from starlette.requests import Request

from app.audit import trail
from app.audit.trail import Actor
from app.errors import Forbidden, HoldfastError, Unauthorized
from app.keys import Key, Scope, digest_of

if TYPE_CHECKING:
    from app.edge.quota import Quota
    from app.signin.directory import Directory

_NEEDED = "An API key is needed: Authorization: Bearer <key>."


class UnknownKey(Unauthorized):
    """A key was given, and this process does not know it: worth a look at the database before the answer.

    Raised by a route's first check only, before its body is read: the route can be run again.
    """


class Access:
    """Checks requests against the keys that the process knows. While there are none, everything is open, and
    credentials that are sent are ignored."""

    def __init__(self, directory: Directory, quota: Quota) -> None:
        self.directory = directory
        self._quota = quota
        # Open streams, by the digest of the secret that each was opened with; None: it was opened without a key.
        self._watched: dict[bytes | None, set[Callable[[HoldfastError], None]]] = {}
        directory.on_loaded = self._cut_off

    def check(
        self,
        request: Request,
        scopes: Scope,
        topic: str | None = None,
        *,
        query_token: bool = False,
        basic: bool = False,
    ) -> Key | None:
        """Refuse a request that may not do this; else its key, or None where none is needed.

        Raises Unauthorized, Forbidden, Throttled. `query_token`: the route also takes the key as ?token=, for browsers'
        EventSource; `basic`: as HTTP Basic's password, for browsers' pages.
        """
        if not self.directory.guarded:
            return None
        key = self._key(request, query_token=query_token, basic=basic)
        if scopes not in key.scopes:
            missing = "+".join((scopes & ~key.scopes).words)
            raise Forbidden(f"This key lacks the scope {missing}.")
        if topic is not None:
            must_cover(key, topic)
        if self._quota.requests_per_key:
            self._quota.take_request(request.scope, key)
        return key

    def check_server(self, request: Request, *, basic: bool = False) -> None:
        """Refuse who may not look at the server as a whole: that takes admin, and a key for every topic.

        `basic`: the route also takes the key as HTTP Basic's password, for browsers. Raises Unauthorized, Forbidden.
        """
        key = self.check(request, Scope.ADMIN, basic=basic)
        if key is not None and key.prefixes:
            raise Forbidden("This key is for some topics only, and this is about the whole server.")

    def may_name(self, request: Request, topic: str) -> None:
        """Refuse a key that may not write to a topic that its request names. Raises Unauthorized, Forbidden."""
        self.check(request, Scope.WRITE, topic)

    def prefixes(self, request: Request) -> tuple[str, ...]:
        """Which topics a list may show to the request's key, by the starts of their names; none for all."""
        key = self.check(request, Scope(0))
        return () if key is None else key.prefixes

    def actor(self, request: Request) -> Actor:
        """Who a change is made by, for the audit trail. Raises Unauthorized."""
        return actor_of(self.check(request, Scope(0)), request)

    def still_good(self, key: Key | None) -> bool:
        """Whether a request that was let in a while ago would be let in now."""
        return not self.directory.guarded if key is None else self.directory.find(key.digest) is not None

    def watch(self, key: Key | None, end: Callable[[HoldfastError], None]) -> Callable[[], None]:
        """Call `end` once the key is good no more, soon after or already now; what is returned calls that off."""
        digest = None if key is None else key.digest
        watchers = self._watched.setdefault(digest, set())
        watchers.add(end)

        def call_off() -> None:
            watchers.discard(end)
            if not watchers and self._watched.get(digest) is watchers:
                del self._watched[digest]

        if not self.still_good(key):
            end(_ended(digest))
        return call_off

    async def knows_by_now(self, request: Request) -> bool:
        """Whether a key that was unknown is known once the database was asked, which happens once a second at most."""
        await self.directory.look_again()
        # The given key, wherever the route takes it from: the route checks again.
        return any(
            self.directory.find(digest_of(given))
            for given in (_bearer(request), _token(request), _password(request))
            if given
        )

    def _key(self, request: Request, *, query_token: bool, basic: bool) -> Key:
        given = _bearer(request) or (_token(request) if query_token else _password(request) if basic else b"")
        if not given:
            raise Unauthorized(_NEEDED)
        key = self.directory.find(digest_of(given))
        if key is None:
            raise UnknownKey(_NEEDED)
        return key

    def _cut_off(self) -> None:
        for digest, watchers in list(self._watched.items()):
            if not self.directory.guarded if digest is None else self.directory.find(digest) is not None:
                continue
            for end in list(watchers):
                end(_ended(digest))


def must_cover(key: Key | None, topic: str) -> None:
    """Refuse a key that was let in, and is not for this topic. Raises Forbidden."""
    if key is not None and not key.covers(topic):
        raise Forbidden("This key is not for this topic.", {"topic": topic})


def actor_of(key: Key | None, request: Request) -> Actor:
    """Whoever showed this key, as the audit trail names them."""
    address = None if request.client is None else request.client.host
    if key is None:
        return Actor(trail.OPEN, None, address)
    return Actor(key.id or f"environment key {key.digest.hex()[:6]}", key.name or None, address)


def _bearer(request: Request) -> bytes:
    # From the scope as it came: on every request, and a quarter of the time that a look by name takes.
    for name, value in request.scope["headers"]:
        if name == b"authorization":
            given: bytes = value[7:].strip()
            return _utf8(given) if value[:7].lower() == b"bearer " else b""
    return b""


def _password(request: Request) -> bytes:
    """The password of HTTP Basic (RFC 7617); empty when there is none. The user's name is free."""
    scheme, _, credentials = request.headers.get("authorization", "").partition(" ")
    if scheme.lower() != "basic":
        return b""
    try:
        return base64.b64decode(credentials, validate=True).partition(b":")[2]
    except ValueError:
        return b""


def _utf8(given: bytes) -> bytes:
    return given if given.isascii() else given.decode("latin-1").encode()


def _token(request: Request) -> bytes:
    # Of several, the first counts.
    return next(iter(request.query_params.getlist("token")), "").strip().encode()


def _ended(digest: bytes | None) -> Unauthorized:
    return Unauthorized(_NEEDED if digest is None else "This key was revoked or has expired.")
