"""API keys: who may do what to which topics. docs/semantics.md, section 21.

`HOLDFAST_API_KEYS` is a comma list of `key`, `key:scopes`, `key:scopes:prefixes` or `key::prefixes`; scopes are joined
by '+', prefixes of topic names by '|'. Empty scopes are all scopes, no prefixes every topic.
"""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from enum import Flag, auto

from starlette.requests import Request

from app.errors import ConfigurationError, Forbidden, Unauthorized


class Scope(Flag):
    READ = auto()
    WRITE = auto()
    DELETE = auto()
    ADMIN = auto()
    ALL = READ | WRITE | DELETE | ADMIN


_WORDS = {
    "read": Scope.READ,
    "r": Scope.READ,
    "write": Scope.WRITE,
    "w": Scope.WRITE,
    "delete": Scope.DELETE,
    "del": Scope.DELETE,
    "d": Scope.DELETE,
    "admin": Scope.ADMIN,
    "a": Scope.ADMIN,
    "rw": Scope.READ | Scope.WRITE,
}


@dataclass(frozen=True, slots=True)
class Key:
    """What is kept of a key: never its text."""

    digest: bytes
    scopes: Scope
    prefixes: tuple[str, ...]

    def covers(self, topic: str) -> bool:
        """Whether the key may touch this topic at all."""
        return not self.prefixes or topic.startswith(self.prefixes)


class Access:
    """The keys of a process. Without any, everything is open, and credentials that are sent are ignored."""

    def __init__(self, keys: str) -> None:
        """Raises ConfigurationError for an entry that makes no sense."""
        self._keys = [_parse(entry.strip()) for entry in keys.split(",") if entry.strip()]

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

    def may_name(self, request: Request, topic: str) -> None:
        """Refuse a key that may not write to a topic that its request names. Raises Unauthorized, Forbidden."""
        self.check(request, Scope.WRITE, topic)

    def visible(self, request: Request, topic: str) -> bool:
        """Whether a list may show this topic to the request's key."""
        return not self._keys or self._key(request, query_token=False).covers(topic)

    def _key(self, request: Request, query_token: bool) -> Key:
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() != "bearer" or not given:
            given = request.query_params.get("token", "") if query_token else ""
        digest = hashlib.sha256(given.strip().encode()).digest()
        found = None
        for key in self._keys:  # all of them, however soon one fits: the time taken tells nothing
            if hmac.compare_digest(key.digest, digest):
                found = key
        if found is None or not given:
            raise Unauthorized("An API key is needed: Authorization: Bearer <key>.")
        return found


def _parse(entry: str) -> Key:
    text, _, rest = entry.partition(":")
    words, _, prefixes = rest.partition(":")
    if not text:
        raise ConfigurationError("HOLDFAST_API_KEYS: an entry has no key before its first colon")
    scopes = Scope(0)
    for word in filter(None, words.split("+")):
        if word not in _WORDS:
            raise ConfigurationError(
                f"HOLDFAST_API_KEYS: {word!r} is no scope; scopes are read, write, delete, admin and rw, joined by '+'"
            )
        scopes |= _WORDS[word]
    return Key(hashlib.sha256(text.encode()).digest(), scopes or Scope.ALL, tuple(filter(None, prefixes.split("|"))))


def _names(scopes: Scope) -> str:
    return "+".join(scope.name.lower() for scope in scopes if scope.name)
