"""API keys: who may do what to which topics, and how an operator writes that.

`HOLDFAST_API_KEYS` is a list, by commas or lines, of `key`, `key:scopes`, `key:scopes:prefixes` or `key::prefixes`;
scopes are joined by '+', prefixes of topic names by '|'. Empty scopes are all scopes, no prefixes every topic.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Final

# Behind the last character of a prefix that is a whole name; no topic's name has it.
END: Final = "$"
# How the names of topics begin that the service keeps for itself.
OWN: Final = "holdfast."
# How a key or grant that hides payloads is described.
HIDDEN: Final = "hidden"


class Scope(Flag):
    READ = auto()
    WRITE = auto()
    DELETE = auto()
    ADMIN = auto()
    ALL = READ | WRITE | DELETE | ADMIN

    @property
    def words(self) -> list[str]:
        """Its parts by name, always in the same order."""
        return [scope.name.lower() for scope in self if scope.name]


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
    """A key as it is known here, without its text. A key of the environment has neither id nor name.

    `until`: of the process's monotonic clock; it is not valid from then on. None: no end is known. `tenant`: it sees
    and touches jobs of this tenant alone; None: of all. `hides_payloads`: it sees jobs, and not what is in them.
    """

    digest: bytes
    scopes: Scope
    prefixes: tuple[str, ...]
    id: str = ""
    name: str = ""
    until: float | None = None
    tenant: str | None = field(default=None, kw_only=True)
    hides_payloads: bool = field(default=False, kw_only=True)

    @property
    def label(self) -> str:
        """How the audit trail and the log name it: by its id; one of the environment by the start of its digest."""
        return self.id or f"environment key {self.digest.hex()[:6]}"

    def covers(self, topic: str) -> bool:
        """Whether the key may touch this topic at all; the service's own take admin."""
        if topic.startswith(OWN) and Scope.ADMIN not in self.scopes:
            return False
        return not self.prefixes or (topic + END).startswith(self.prefixes)

    def sees_payloads(self, topic: str) -> bool:
        """Whether it may see the payloads of a topic's jobs."""
        return not self.hides_payloads

    def sees_payloads_below(self, starts: Iterable[str]) -> bool:
        """Whether it may see payloads in all topics whose names begin with one of these; "" is every topic."""
        return not self.hides_payloads

    def may_grant(self, scopes: Scope, prefixes: Iterable[str], *, hides_payloads: bool = True) -> bool:
        """Whether this key can do all that a key with these could."""
        prefixes = list(prefixes)
        within = not self.prefixes or (bool(prefixes) and all(one.startswith(self.prefixes) for one in prefixes))
        return not scopes & ~self.scopes and within and (hides_payloads or self.sees_payloads_below(prefixes or ("",)))


def covers(key: Key | None) -> Callable[[str], bool]:
    """Which topics a caller may touch at all; every one, where no key is asked for."""
    return _every if key is None else key.covers


def _every(_topic: str) -> bool:
    return True


def digest_of(secret: bytes) -> bytes:
    """What is kept of a secret. Fast is right: there are 256 random bits in it, and nothing to guess."""
    return hashlib.sha256(secret).digest()


def scopes_of(words: Iterable[str]) -> Scope:
    """The scopes that these words name; none for no words. Raises ValueError for a word that is no scope."""
    scopes = Scope(0)
    for word in words:
        if word not in _WORDS:
            raise ValueError(f"{word!r} is no scope; scopes are read, write, delete, admin and rw, joined by '+'")
        scopes |= _WORDS[word]
    return scopes


def parse(text: str) -> list[Key]:
    """The keys of a list; none for an empty one. Raises ValueError for an entry that makes no sense.

    A list of nothing but commas is no list: it must not open a service that was meant to be closed.
    """
    keys = [_key(entry) for entry in entries(text)]
    if text and not keys:
        raise ValueError("it has no entry")
    return keys


def entries(text: str) -> list[str]:
    """The entries of a list, as they stand there."""
    return [entry.strip() for entry in text.replace("\n", ",").split(",") if entry.strip()]


def _key(entry: str) -> Key:
    text, _, rest = entry.partition(":")
    words, _, prefixes = rest.partition(":")
    if not text:
        raise ValueError("an entry has no key before its first colon")
    scopes = scopes_of(filter(None, words.split("+")))
    return Key(digest_of(text.encode()), scopes or Scope.ALL, tuple(filter(None, prefixes.split("|"))))
