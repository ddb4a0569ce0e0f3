"""API keys: scopes, prefixes of topics, and the syntax of HOLDFAST_API_KEYS.

`HOLDFAST_API_KEYS` is a list of `key`, `key:scopes`, `key:scopes:prefixes` or `key::prefixes`, separated by commas or
line ends. Scopes are joined by '+', prefixes of topics by '|'. Without scopes a key has all scopes; without prefixes it
covers every topic.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from enum import Flag, auto
from typing import Final

END: Final = "$"  # ends a prefix that is a whole topic's name; no name has it
OWN: Final = "holdfast."  # prefix of the service's own topics
ACCESS_KEY: Final = "HFKA"  # prefix of access key ids of AWS clients
HIDDEN: Final = "hidden"  # label of a key or grant that hides payloads


class Scope(Flag):
    READ = auto()
    WRITE = auto()
    DELETE = auto()
    ADMIN = auto()
    ALL = READ | WRITE | DELETE | ADMIN

    @property
    def words(self) -> list[str]:
        """The names of its scopes, in a fixed order."""
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
    """A key, without its secret. A key of the environment has no id and no name.

    - until: end of its validity on the monotonic clock; None: no end.
    - tenant: restricts it to this tenant's jobs; None: all tenants.
    - hides_payloads: it sees jobs without their payloads.
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
        """Its name in the audit trail and the log: its id, or the start of the digest for a key of the environment."""
        return self.id or f"environment key {self.digest.hex()[:6]}"

    def covers(self, topic: str) -> bool:
        """Whether the key covers this topic. The service's own topics need the scope admin."""
        if topic.startswith(OWN) and Scope.ADMIN not in self.scopes:
            return False
        return not self.prefixes or (topic + END).startswith(self.prefixes)

    def sees_payloads(self, topic: str) -> bool:
        """Whether the key may see payloads of a topic's jobs."""
        return not self.hides_payloads

    def sees_payloads_below(self, starts: Iterable[str]) -> bool:
        """Whether the key may see payloads in all topics with these prefixes; "" is every topic."""
        return not self.hides_payloads

    def may_grant(self, scopes: Scope, prefixes: Iterable[str], *, hides_payloads: bool = True) -> bool:
        """Whether this key has all rights of a key with these scopes and prefixes."""
        prefixes = list(prefixes)
        within = not self.prefixes or (bool(prefixes) and all(one.startswith(self.prefixes) for one in prefixes))
        return not scopes & ~self.scopes and within and (hides_payloads or self.sees_payloads_below(prefixes or ("",)))


def covers(key: Key | None) -> Callable[[str], bool]:
    """A function that says whether the key covers a topic; None, on an open server, covers every topic."""
    return _every if key is None else key.covers


def _every(_topic: str) -> bool:
    return True


def digest_of(secret: bytes) -> bytes:
    """The stored digest of a secret. A fast hash is enough: secrets have 256 random bits."""
    return hashlib.sha256(secret).digest()


def access_key_id(key_id: str) -> str:
    """The access key id of a key for AWS clients."""
    return ACCESS_KEY + key_id.removeprefix("key_").upper()


def key_id_of(access_key: str) -> str:
    """The id of the key with this access key id; "" for the access key id of another service."""
    return f"key_{access_key[len(ACCESS_KEY) :].lower()}" if access_key.startswith(ACCESS_KEY) else ""


def secret_access_key(secret: bytes, key_id: str, digest: bytes) -> str:
    """The secret access key of a key for AWS clients, 43 characters: an HMAC of the key's id and digest under the
    service's own secret. It is not stored, and changes when the key is rotated."""
    made = hmac.digest(secret, b"sqs\0" + key_id.encode() + b"\0" + digest, "sha256")
    return base64.urlsafe_b64encode(made).decode().rstrip("=")


def scopes_of(words: Iterable[str]) -> Scope:
    """The scopes with these names. Raises ValueError for an unknown name."""
    scopes = Scope(0)
    for word in words:
        if word not in _WORDS:
            raise ValueError(f"{word!r} is not a scope. Scopes are read, write, delete, admin and rw, joined by '+'")
        scopes |= _WORDS[word]
    return scopes


def parse(text: str) -> list[Key]:
    """Parse a list of keys. Raises ValueError for a malformed entry, and for a list of commas only: that must not open
    a service."""
    keys = [_key(entry) for entry in entries(text)]
    if text and not keys:
        raise ValueError("the list has no entries")
    return keys


def entries(text: str) -> list[str]:
    """Split a list into its entries."""
    return [entry.strip() for entry in text.replace("\n", ",").split(",") if entry.strip()]


def _key(entry: str) -> Key:
    text, _, rest = entry.partition(":")
    words, _, prefixes = rest.partition(":")
    if not text:
        raise ValueError("an entry has no key before its first colon")
    scopes = scopes_of(filter(None, words.split("+")))
    return Key(digest_of(text.encode()), scopes or Scope.ALL, tuple(filter(None, prefixes.split("|"))))
