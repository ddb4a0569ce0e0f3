"""Who may do what on the pages: one table. docs/admin.md.

A permission takes what the JSON API asks for the same, so that nobody can do more here than there.
Where nobody can sign in, because there is neither key nor user, the pages are open on loopback, and change nothing.
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

_OF_PROXIES: Final = ("forwarded", "x-forwarded-for", "x-real-ip")
VISITOR: Final = "holdfast.visitor"  # in a request's scope


class Role(Enum):
    """A visitor's role, the least first. A user has the highest one whose scopes they have for any topic."""

    VIEWER = Scope.READ
    OPERATOR = Scope.READ | Scope.WRITE
    ADMIN = Scope.READ | Scope.ADMIN

    @property
    def title(self) -> str:
        """How a page names it."""
        return self.name.lower()


class Permission(msgspec.Struct, frozen=True):
    """An action that may be allowed. `server`: it is about the whole server, and takes a key for every topic."""

    action: str
    role: Role
    changes: bool = False
    server: bool = False


SEE: Final = Permission("see topics", Role.VIEWER)
SEE_SERVER: Final = Permission("see the server", Role.ADMIN, server=True)
CHANGE_JOBS: Final = Permission("release, cancel, change, clone and requeue jobs", Role.OPERATOR, changes=True)
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
    """Who asks for a page. `role` None: nobody has signed in; `open`: nobody needs to; `proof`: what forms send."""

    name: str = ""
    role: Role | None = None
    open: bool = False
    proof: str = ""


def check_permission(request: Request, permission: Permission, topic: str | None = None) -> Key | None:
    """Check that the visitor may do this, to this topic if given. Returns their key. Raises Unauthorized, Forbidden."""
    access = context_of(request).access
    if not access.directory.guarded:
        if permission.changes:
            raise Forbidden("Read only: there is neither key nor user. `users add --admin` makes the first user.")
        return None
    if permission.server:
        return access.check_server(request)
    return access.check(request, permission.role.value, topic)


def allows(request: Request, permission: Permission, topic: str | None = None) -> bool:
    """Whether the visitor may do this."""
    try:
        check_permission(request, permission, topic)
    except (Unauthorized, Forbidden):
        return False
    return True


def visitor_of(request: Request) -> Visitor:
    """The visitor, once they were let in."""
    known: Visitor = request.scope.get(VISITOR, Visitor())
    return known


def must_be_local(request: Request) -> None:
    """Where the pages are open, check that the visitor is on this machine. Raises Forbidden.

    The name that a browser came by counts too: another site's may be made to lead here (DNS rebinding). What a proxy
    of this machine passes on may come from anywhere.
    """
    passed_on = any(name in request.headers for name in _OF_PROXIES)
    here = is_loopback(context_of(request).settings.host) and not passed_on
    if not here or not names_this_machine(request.headers.get("host", "")):
        raise Forbidden("Without sign-in the pages are for this machine alone. `users add --admin` makes a first user.")


def visitor(request: Request, proof: str = "") -> Visitor:
    """The visitor by their credentials. Refusals, such as of an expired token, are left to the page."""
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
