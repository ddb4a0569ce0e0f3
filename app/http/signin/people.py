"""What a user may do: grants of actions on patterns of topics, and how a key with scopes and prefixes says the same."""

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
    """What a grant is of. WRITE includes CONSUME: to take jobs and to settle them."""

    READ = "read"
    WRITE = "write"
    CONSUME = "consume"
    ADMIN = "admin"

    @property
    def scopes(self) -> Scope:
        """The scopes that a key needs to do the same, and so to grant it."""
        match self:
            case Right.READ:
                return Scope.READ
            case Right.WRITE | Right.CONSUME:
                return Scope.READ | Scope.WRITE  # a claim shows jobs
            case Right.ADMIN:
                return Scope.ADMIN | Scope.DELETE
            case _:
                assert_never(self)


class GrantMissing(Forbidden):
    """The user has no such grant for any topic."""


@dataclass(frozen=True, slots=True)
class UserKey(Key):
    """A user's key for one request: it covers the topics for which they are granted all that the request needs.

    `epoch`: of the password that they signed in with; `asked` and `consumes`: what the request needs; `sight`: how the
    names of those topics begin whose payloads they may see, "" for all.
    """

    epoch: int = 0
    asked: Scope = NOTHING
    consumes: bool = False
    sight: tuple[str, ...] = ("",)

    def sees_payloads(self, topic: str) -> bool:
        """Whether they may see the payloads of a topic's jobs."""
        return (topic + END).startswith(self.sight)

    def sees_payloads_below(self, starts: Iterable[str]) -> bool:
        """Whether they may see payloads in all topics whose names begin with one of these; "" is every topic."""
        return all(start.startswith(self.sight) for start in starts)


class User:
    """A user as a process knows them. It never changes: each load makes new ones."""

    def __init__(
        self, user_id: str, name: str, epoch: int, *, is_admin: bool, grants: Iterable[tuple[Right, str, bool]]
    ):
        """`grants`: action, pattern of topics, and whether it hides payloads. A grant that hides them lets nobody take
        jobs."""
        self.id = user_id
        self.name = name
        self.epoch = epoch
        self.is_admin = is_admin
        starts: dict[Right, set[str]] = {right: set() for right in Right}
        sight, takes = set[str](), set[str]()
        grants = frozenset(grants)
        self.rights = is_admin, grants  # equal for those who may do the same
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
        """The key for a request that needs these scopes; where it `consumes`, a grant of write or consume is enough.

        `until`: as a key's. Raises GrantMissing where there is no topic for which the user has all of it.
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
            raise GrantMissing(f"Nothing that is granted to this user allows this: it needs {words}.")
        may = scopes
        for scope, starts in self._starts.items():
            if all(one.startswith(tuple(starts)) for one in reach):
                may |= scope
        return self._key(may, _prefixes(reach), scopes, consumes)

    def _key(self, may: Scope, prefixes: tuple[str, ...], asked: Scope, consumes: bool) -> UserKey:
        return UserKey(b"", may, prefixes, self.id, self.name, None, self.epoch, asked, consumes, self._sight)


def check_pattern(text: str) -> str:
    """The pattern, if it is `*`, a start with `.*` behind it, or a topic's name. Raises InvalidRequest."""
    if _PATTERN.match(text) is None:
        raise InvalidRequest(
            "topic_pattern must be *, or a start of names and .* (such as mail.*), or a topic's name.",
            {"field": "topic_pattern"},
        )
    return text


def _start(pattern: str) -> str:
    """The pattern as a key's prefix; "" is every topic's."""
    if pattern == EVERYTHING:
        return ""
    return pattern[:-1] if pattern.endswith(".*") else pattern + END


def _prefixes(reach: set[str]) -> tuple[str, ...]:
    return () if "" in reach else tuple(sorted(reach))
