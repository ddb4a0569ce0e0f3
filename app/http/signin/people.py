"""Users' rights: grants of actions on patterns of topics, and their translation to keys with scopes and prefixes."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from enum import Enum
from typing import Final, assert_never

from app.base.keys import END, Key, Scope
from app.errors import Forbidden, InvalidRequest

NOTHING: Final = Scope(0)
EVERYTHING: Final = "*"
PATTERN: Final = r"^(\*|[A-Za-z0-9][A-Za-z0-9._:-]{0,252}\.\*|[A-Za-z0-9][A-Za-z0-9._:-]{0,254})$"
_PATTERN: Final = re.compile(PATTERN.replace("$", r"\Z"))


class Right(Enum):
    """The action of a grant. WRITE includes CONSUME, which is to claim and settle jobs."""

    READ = "read"
    WRITE = "write"
    CONSUME = "consume"
    ADMIN = "admin"

    @property
    def scopes(self) -> Scope:
        """The scopes that a key needs to do or grant the same."""
        match self:
            case Right.READ:
                return Scope.READ
            case Right.WRITE | Right.CONSUME:
                return Scope.READ | Scope.WRITE  # a claim reads jobs
            case Right.ADMIN:
                return Scope.ADMIN | Scope.DELETE
            case _:
                assert_never(self)


class GrantMissing(Forbidden):
    """The user has the needed grant for no topic."""


@dataclass(frozen=True, slots=True)
class UserKey(Key):
    """A user's key for one request. It covers the topics in which the user has all grants that the request needs.

    - epoch: of the password that the user signed in with.
    - asked, consumes: the needs of the request.
    - sight: prefixes of the topics whose payloads the user may see; "" for all.
    """

    epoch: int = 0
    asked: Scope = NOTHING
    consumes: bool = False
    sight: tuple[str, ...] = ("",)

    def sees_payloads(self, topic: str) -> bool:
        """Whether the user may see payloads of a topic's jobs."""
        return (topic + END).startswith(self.sight)

    def sees_payloads_below(self, starts: Iterable[str]) -> bool:
        """Whether the user may see payloads in all topics with these prefixes; "" is every topic."""
        return all(start.startswith(self.sight) for start in starts)


class User:
    """A user with their rights. Immutable: each load makes new ones."""

    def __init__(
        self, user_id: str, name: str, epoch: int, *, is_admin: bool, grants: Iterable[tuple[Right, str, bool]]
    ):
        """`grants`: action, pattern of topics, and whether payloads are hidden. Such a grant does not allow to claim
        jobs."""
        self.id = user_id
        self.name = name
        self.epoch = epoch
        self.is_admin = is_admin
        starts: dict[Right, set[str]] = {right: set() for right in Right}
        sight, takes = set[str](), set[str]()
        grants = frozenset(grants)
        self.rights = is_admin, grants  # equal for users with the same rights
        for right, pattern, hides in grants:
            start = _start(pattern)
            starts[right].add(start)
            if not hides:
                sight.add(start)
                if right in {Right.WRITE, Right.CONSUME}:
                    takes.add(start)
        self._consume = takes
        self._sight = ("",) if is_admin else tuple(sorted(sight))
        admin = starts[Right.ADMIN]
        self._starts = {
            Scope.READ: starts[Right.READ],
            Scope.WRITE: starts[Right.WRITE],
            Scope.DELETE: admin,
            Scope.ADMIN: admin,
        }
        self._keys: dict[tuple[Scope, bool], UserKey] = {}

    def key(self, scopes: Scope, *, consumes: bool = False, until: float | None = None) -> UserKey:
        """The key for a request that needs these scopes. If it `consumes`, a grant of write or consume is enough.

        `until`: when the key ends, as Key.until. Raises GrantMissing if the user has the scopes in no topic.
        """
        key = self._keys.get((scopes, consumes))
        if key is None:
            key = self._keys[scopes, consumes] = self._make_key(scopes, consumes)
        return key if until is None else replace(key, until=until)

    def _make_key(self, scopes: Scope, consumes: bool) -> UserKey:
        if self.is_admin:
            return self._key(Scope.ALL, (), scopes, consumes)
        reach = {""}
        for granted in [self._consume] if consumes else [self._starts[scope] for scope in scopes]:
            reach = {max(a, b, key=len) for a in reach for b in granted if a.startswith(b) or b.startswith(a)}
        if not reach:
            words = "consume" if consumes else "+".join(scopes.words)
            raise GrantMissing(f"This user has no grant that allows this. It needs {words}.")
        may = scopes
        for scope, starts in self._starts.items():
            if all(one.startswith(tuple(starts)) for one in reach):
                may |= scope
        return self._key(may, _prefixes(reach), scopes, consumes)

    def _key(self, may: Scope, prefixes: tuple[str, ...], asked: Scope, consumes: bool) -> UserKey:
        return UserKey(b"", may, prefixes, self.id, self.name, None, self.epoch, asked, consumes, self._sight)


def check_pattern(text: str) -> str:
    """The pattern, if it is `*`, a prefix and `.*`, or a topic's name. Raises InvalidRequest."""
    if _PATTERN.match(text) is None:
        raise InvalidRequest(
            "topic_pattern must be *, a prefix and .* (such as mail.*), or a topic's name.",
            {"field": "topic_pattern"},
        )
    return text


def _start(pattern: str) -> str:
    """The pattern as a key's prefix; "" is every topic."""
    if pattern == EVERYTHING:
        return ""
    return pattern[:-1] if pattern.endswith(".*") else pattern + END


def _prefixes(reach: set[str]) -> tuple[str, ...]:
    return () if "" in reach else tuple(sorted(reach))
