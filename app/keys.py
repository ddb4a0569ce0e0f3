"""API keys as an operator writes them: who may do what to which topics.

`HOLDFAST_API_KEYS` is a comma list of `key`, `key:scopes`, `key:scopes:prefixes` or `key::prefixes`; scopes are joined
by '+', prefixes of topic names by '|'. Empty scopes are all scopes, no prefixes every topic.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from enum import Flag, auto


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


def parse(text: str) -> list[Key]:
    """The keys of a list; none for an empty one. Raises ValueError for an entry that makes no sense.

    A list of nothing but commas is no list: it must not open a service that was meant to be closed.
    """
    keys = [_key(entry.strip()) for entry in text.split(",") if entry.strip()]
    if text and not keys:
        raise ValueError("it has no entry")
    return keys


def _key(entry: str) -> Key:
    text, _, rest = entry.partition(":")
    words, _, prefixes = rest.partition(":")
    if not text:
        raise ValueError("an entry has no key before its first colon")
    scopes = Scope(0)
    for word in filter(None, words.split("+")):
        if word not in _WORDS:
            raise ValueError(f"{word!r} is no scope; scopes are read, write, delete, admin and rw, joined by '+'")
        scopes |= _WORDS[word]
    return Key(hashlib.sha256(text.encode()).digest(), scopes or Scope.ALL, tuple(filter(None, prefixes.split("|"))))
