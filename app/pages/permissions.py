"""Permissions of the admin pages, in one table. docs/admin.md.

A permission needs the same scopes as the same action in the JSON API. While the service has neither keys nor users,
the pages are open on loopback and read only.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

import msgspec
from starlette.requests import Request

from app.base.keys import Key, Scope
from app.errors import Forbidden, HoldfastError, Unauthorized
from app.http.context import context_of
from app.http.credentials import names_this_machine
from app.settings import is_loopback

_PROXY_HEADERS: Final = ("forwarded", "x-forwarded-for", "x-real-ip")
VISITOR: Final = "holdfast.visitor"  # in a request's scope


class Role(Enum):
    """A visitor's role, lowest first. A user has the highest role whose scopes they hold for any topic."""

    VIEWER = Scope.READ
    OPERATOR = Scope.READ | Scope.WRITE
    ADMIN = Scope.READ | Scope.ADMIN

    @property
    def title(self) -> str:
        return self.name.lower()


class Permission(msgspec.Struct, frozen=True):
    """A permission. `server`: it concerns the whole server, and needs a key for every topic."""

    action: str
    role: Role
    changes: bool = False
    server: bool = False


SEE: Final = Permission("see topics", Role.VIEWER)
SEE_SERVER: Final = Permission("see the server", Role.ADMIN, server=True)
CHANGE_JOBS: Final = Permission("test, release, cancel, change, clone and requeue jobs", Role.OPERATOR, changes=True)
KEEP_VIEWS: Final = Permission("keep views of their own", Role.VIEWER, changes=True)
CONTROL: Final = Permission("pause and resume topics", Role.ADMIN, changes=True)
REQUEUE: Final = Permission("requeue dead letters", Role.OPERATOR, changes=True)
PURGE: Final = Permission("purge dead letters", Role.ADMIN, changes=True)
SEE_COMPLETED: Final = Permission("see completed jobs", Role.ADMIN)
CONFIGURE: Final = Permission("change topics' settings", Role.ADMIN, changes=True)
SEE_SCHEDULES: Final = Permission("see schedules", Role.ADMIN)
SCHEDULE: Final = Permission("change schedules", Role.ADMIN, changes=True)
SEE_RIGHTS: Final = Permission("see keys and the audit trail", Role.ADMIN)
CHANGE_KEYS: Final = Permission("make, rotate and revoke keys", Role.ADMIN, changes=True)
CHANGE_USERS: Final = Permission("make, change and delete users", Role.ADMIN, changes=True, server=True)
REAP: Final = Permission("run and schedule reapers", Role.ADMIN, changes=True, server=True)


class Visitor(msgspec.Struct, frozen=True):
    """The visitor of a page. `role` is None if they are not signed in; `open`: sign-in is not needed; `proof`: the
    CSRF token that forms send."""

    name: str = ""
    role: Role | None = None
    open: bool = False
    proof: str = ""


def check_permission(request: Request, permission: Permission, topic: str | None = None) -> Key | None:
    """Check that the visitor has a permission, for a topic if given. Returns their key.

    Raises Unauthorized, Forbidden.
    """
    access = context_of(request).access
    if not access.directory.guarded:
        if permission.changes:
            raise Forbidden("Read only: there are no keys or users. Create a user with `users add --admin`.")
        return None
    if permission.server:
        return access.check_server(request)
    return access.check(request, permission.role.value, topic)


def allows(request: Request, permission: Permission, topic: str | None = None) -> bool:
    try:
        check_permission(request, permission, topic)
    except (Unauthorized, Forbidden):
        return False
    return True


def visitor_of(request: Request) -> Visitor:
    known: Visitor = request.scope.get(VISITOR, Visitor())
    return known


def must_be_local(request: Request) -> None:
    """Check that the visitor of open pages is on this machine. Raises Forbidden.

    The Host header must be a loopback name, against DNS rebinding. A request that came through a proxy is refused, as
    it may come from anywhere.
    """
    passed_on = any(name in request.headers for name in _PROXY_HEADERS)
    here = is_loopback(context_of(request).settings.host) and not passed_on
    if not here or not names_this_machine(request.headers.get("host", "")):
        raise Forbidden(
            "Until you create a user, the pages can be opened on this machine only. "
            "Create a user with `users add --admin`."
        )


def visitor(request: Request, proof: str = "") -> Visitor:
    """Identify the visitor by their credentials. Invalid credentials raise nothing: the page refuses them."""
    access = context_of(request).access
    if not access.directory.guarded:
        return Visitor("", Role.ADMIN, open=True)
    for role in reversed(Role):
        try:
            key = access.check(request, role.value)
        except HoldfastError:
            continue
        return Visitor("an API key" if key is None else key.name or "an API key", role, proof=proof)
    return Visitor(proof=proof)
