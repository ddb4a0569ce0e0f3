"""Users, their passwords and grants in PostgreSQL. Each change is recorded in the audit trail."""

from __future__ import annotations

import asyncio
import re
import uuid
from collections.abc import Callable, Iterable
from datetime import datetime
from typing import TYPE_CHECKING, Final, TypeVar

import asyncpg
import bcrypt
import msgspec

from app.base.db import sql
from app.base.keys import HIDDEN, Scope
from app.errors import AlreadyExists, Forbidden, InvalidRequest, NotFound, Throttled, Unavailable
from app.http.signin.api_keys import Changer, needs_sign_in
from app.http.signin.people import Right, check_pattern
from app.kernel.audit import trail
from app.kernel.audit.trail import Action
from app.kernel.model import Connection

if TYPE_CHECKING:
    from app.base.db.pool import Pool

T = TypeVar("T")

_SQL: Final = sql.load_all(__package__)
_LOCK = _SQL["lock"]
_COUNT = _SQL["count"]
_FIND = _SQL["find_user"]
_INSERT = _SQL["insert_user"]
_GET = _SQL["get_user"]
_LOCK_USER = _SQL["lock_user"]
_PAGE = _SQL["page_users"]
_UPDATE = _SQL["update_user"]
_DELETE = _SQL["delete_user"]
_GRANTS = _SQL["grants"]
_INSERT_GRANT = _SQL["insert_grant"]
_DELETE_GRANT = _SQL["delete_grant"]

MOST_USERS: Final = 10_000  # every process has all of them in memory
MOST_GRANTS: Final = 100  # of a user
MOST_NAME_BYTES: Final = 128
LEAST_CHARACTERS: Final = 12
MOST_PASSWORD_BYTES: Final = 72  # bcrypt ignores the rest
BCRYPT_COST: Final = 12
HASHES_AT_ONCE: Final = 2
MOST_HASHES_WAITING: Final = 100
_IN_PASSWORD: Final = {"field": "password"}
_UUID: Final = re.compile(r"[0-9a-fA-F]{8}(-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\Z")


class Account(msgspec.Struct, frozen=True):
    """A user without password and grants."""

    id: str
    username: str
    is_admin: bool
    created_at: datetime
    updated_at: datetime


class Grant(msgspec.Struct, frozen=True):
    """Allows a user an action in the topics of a pattern. `hides_payloads`: without seeing payloads, unless another
    grant allows that."""

    id: str
    user_id: str
    action: Right
    topic_pattern: str
    hides_payloads: bool
    created_at: datetime


class UserLogin(msgspec.Struct, frozen=True):
    """A user's password hash, and the epoch of tokens made with this password."""

    id: str
    epoch: int
    password_hash: str


async def find(db: Connection, name: str) -> UserLogin | None:
    """The user with this name; None if there is none."""
    row = None if "\0" in name else await db.fetchrow(_FIND, name)
    return None if row is None else UserLogin(**row)


async def create(pool: Pool, name: str, password_hash: str, by: Changer, *, is_admin: bool) -> Account:
    """Make a user. Only an admin has any rights at first.

    Raises InvalidRequest; Forbidden for rights beyond the changer's; AlreadyExists; Unauthorized if sign-in is needed
    by now; Throttled if there are MOST_USERS."""
    check_name(name)
    if is_admin:
        _must_reach(by, Scope.ALL, hides_payloads=False)
    user_id = str(uuid.uuid4())
    async with pool.acquire() as db, db.transaction():
        await db.execute(_LOCK)
        count = await db.fetchrow(_COUNT)
        assert count is not None
        if by.in_the_open:
            if count["kept"]:
                raise needs_sign_in()
            if not is_admin:
                raise InvalidRequest(
                    "The first user must be an admin. From then on every route needs sign-in, and only an admin can "
                    "make others."
                )
        if count["users"] >= MOST_USERS:
            raise Throttled(f"There can be at most {MOST_USERS} users.", {"limit": "max_users", "max": MOST_USERS})
        if await db.fetchval(_INSERT, user_id, name, password_hash, is_admin, by.actor.id) is None:
            raise _name_taken(name)
        await trail.record(db, by.actor, Action.USER_MADE, user_id, {"username": name, "is_admin": is_admin})
        return await get(db, user_id)


async def get(db: Connection, user_id: str) -> Account:
    """A user. Raises NotFound."""
    row = await db.fetchrow(_GET, user_id) if _UUID.match(user_id) else None
    if row is None:
        raise _no_user(user_id)
    return Account(**row)


async def page(db: Connection, after: str, limit: int) -> list[Account]:
    """Up to `limit` users whose names sort after `after`, by name."""
    return [Account(**row) for row in await db.fetch(_PAGE, after, limit)]


async def change(
    pool: Pool,
    user_id: str,
    by: Changer,
    *,
    name: str | None = None,
    password_hash: str | None = None,
    is_admin: bool | None = None,
) -> Account:
    """Change the given fields. A new password ends all tokens made with the old one.

    Raises NotFound; InvalidRequest; Forbidden if the user has or would have rights beyond the changer's; AlreadyExists.
    """
    if name is not None:
        check_name(name)
    async with pool.acquire() as db, db.transaction():
        account = await _lock_account(db, user_id, by)
        if is_admin:
            _must_reach(by, Scope.ALL, hides_payloads=False)
        if is_admin is False and account.is_admin and _is_self(by, account):
            raise InvalidRequest("Admins can't remove their own admin right. Another admin can.")
        try:
            async with db.transaction():
                await db.execute(_UPDATE, account.id, name, password_hash, is_admin)
        except asyncpg.UniqueViolationError:
            raise _name_taken(name or "") from None
        after = await get(db, account.id)
        changes = trail.changes(_fields(account), _fields(after))
        if password_hash is not None:
            changes |= {"password": "changed"}  # never the password itself
        if changes:
            detail = {"username": account.username, **changes}
            await trail.record(db, by.actor, Action.USER_CHANGED, account.id, detail)
        return after


async def delete(pool: Pool, user_id: str, by: Changer) -> None:
    """Delete a user and their grants. Raises NotFound; InvalidRequest for oneself; Forbidden as `change`."""
    async with pool.acquire() as db, db.transaction():
        account = await _lock_account(db, user_id, by)
        if _is_self(by, account):
            raise InvalidRequest("Users can't delete themselves.")
        await db.execute(_DELETE, account.id)
        await trail.record(db, by.actor, Action.USER_DELETED, account.id, {"username": account.username})


async def grants(db: Connection, user_id: str) -> list[Grant]:
    """A user's grants, by action and pattern. Raises NotFound."""
    account = await get(db, user_id)
    return [_grant(row) for row in await db.fetch(_GRANTS, account.id)]


async def grant(
    pool: Pool, user_id: str, right: Right, pattern: str, by: Changer, *, hides_payloads: bool = False
) -> Grant:
    """Grant a user an action in the topics of a pattern.

    Raises NotFound; InvalidRequest; AlreadyExists; Forbidden for rights beyond the changer's; Throttled.
    """
    check_pattern(pattern)
    if hides_payloads and right is Right.CONSUME:
        raise InvalidRequest("A grant of consume can't hide payloads: a claim shows them.", {"field": "payloads"})
    async with pool.acquire() as db, db.transaction():
        account = await _lock_account(db, user_id, by)
        _must_reach(by, right.scopes, hides_payloads=hides_payloads)
        if len(await db.fetch(_GRANTS, account.id)) >= MOST_GRANTS:
            raise Throttled(
                f"A user can have at most {MOST_GRANTS} grants.", {"limit": "max_grants", "max": MOST_GRANTS}
            )
        given = str(uuid.uuid4()), account.id, right.value, pattern, by.actor.id, hides_payloads
        row = await db.fetchrow(_INSERT_GRANT, *given)
        if row is None:
            raise AlreadyExists(f"This user already has a grant of {right.value} on {pattern}.")
        made = _grant(row)
        await trail.record(db, by.actor, Action.GRANT_MADE, account.id, _detail(account, made))
        return made


async def revoke(pool: Pool, user_id: str, grant_id: str, by: Changer) -> None:
    """Revoke a grant. Raises NotFound; Forbidden as `change`."""
    async with pool.acquire() as db, db.transaction():
        account = await _lock_account(db, user_id, by)
        row = await db.fetchrow(_DELETE_GRANT, grant_id, account.id) if _UUID.match(grant_id) else None
        if row is None:
            raise NotFound(f"This user has no grant {grant_id[:80]!r}.")
        await trail.record(db, by.actor, Action.GRANT_REVOKED, account.id, _detail(account, _grant(row)))


def check_name(name: str) -> str:
    """The name, if valid. Raises InvalidRequest. It has no colon, which would end it in HTTP Basic."""
    if not name or len(name.encode()) > MOST_NAME_BYTES or not name.isprintable() or ":" in name:
        raise InvalidRequest(
            f"username must be 1 to {MOST_NAME_BYTES} bytes of text on one line, without a colon.",
            {"field": "username"},
        )
    return name


class Passwords:
    """Makes and checks bcrypt hashes, which take a quarter of a second by design. Runs in threads, HASHES_AT_ONCE at a
    time per process."""

    def __init__(self, cost: int = BCRYPT_COST) -> None:
        """`cost`: the binary logarithm of bcrypt's rounds, for new hashes."""
        self._cost = cost
        # A well-formed hash that no password matches. Checked for an unknown user, so that it takes as long.
        self._nobody = f"$2b${cost:02}${'.' * 53}"
        self._room = asyncio.Semaphore(HASHES_AT_ONCE)
        self._waiting = 0

    async def hash(self, password: str) -> str:
        """Hash a password with a new salt. Raises InvalidRequest, Unavailable."""
        given = check_password(password)
        return (await self._in_turn(lambda: bcrypt.hashpw(given, bcrypt.gensalt(self._cost)))).decode()

    async def matches(self, kept: str | None, password: str) -> bool:
        """Whether the password matches the hash `kept`. None, for an unknown user, takes as long. Raises
        Unavailable."""
        given = password.encode()
        fits = len(given) <= MOST_PASSWORD_BYTES
        against = (self._nobody if kept is None else kept).encode()
        matched = await self._in_turn(lambda: bcrypt.checkpw(given[:MOST_PASSWORD_BYTES], against))
        return matched and fits and kept is not None

    async def _in_turn(self, work: Callable[[], T]) -> T:
        if self._waiting >= MOST_HASHES_WAITING:
            raise Unavailable(
                "Too many passwords are being checked right now. Try again.",
                {"limit": "passwords", "max": MOST_HASHES_WAITING},
            )
        self._waiting += 1
        try:
            async with self._room:
                return await asyncio.to_thread(work)
        finally:
            self._waiting -= 1


def check_password(password: str) -> bytes:
    """The password's bytes, if it is acceptable. Raises InvalidRequest."""
    given = password.encode()
    if len(password) < LEAST_CHARACTERS:
        raise InvalidRequest(f"A password must have at least {LEAST_CHARACTERS} characters.", _IN_PASSWORD)
    if len(given) > MOST_PASSWORD_BYTES:
        raise InvalidRequest(
            f"A password can have at most {MOST_PASSWORD_BYTES} bytes of UTF-8. This one has {len(given)}.",
            _IN_PASSWORD,
        )
    if "\0" in password:
        raise InvalidRequest("A password can't have a NUL character (U+0000).", _IN_PASSWORD)
    return given


async def _lock_account(db: Connection, user_id: str, by: Changer) -> Account:
    """Lock a user for a change. The changer needs all rights of the user, because a new password gives access to
    them."""
    row = await db.fetchrow(_LOCK_USER, user_id) if _UUID.match(user_id) else None
    if row is None:
        raise _no_user(user_id)
    if by.in_the_open:
        raise needs_sign_in()
    account = Account(**row)
    granted = [] if by.key is None else [_grant(row) for row in await db.fetch(_GRANTS, account.id)]
    if account.is_admin:
        _must_reach(by, Scope.ALL, hides_payloads=False)
    else:
        scopes = _scopes(one.action for one in granted)
        _must_reach(by, scopes, hides_payloads=all(one.hides_payloads for one in granted))
    return account


def _scopes(rights: Iterable[Right]) -> Scope:
    scopes = Scope(0)
    for right in rights:
        scopes |= right.scopes
    return scopes


def _must_reach(by: Changer, scopes: Scope, *, hides_payloads: bool) -> None:
    if not by.reaches(scopes, (), hides_payloads=hides_payloads):
        raise Forbidden("You can't grant rights that you don't have, or change a user with more rights than yours.")


def _is_self(by: Changer, account: Account) -> bool:
    return by.key is not None and by.key.id == account.id


def _fields(account: Account) -> dict[str, object]:
    return {"username": account.username, "is_admin": account.is_admin}


def _detail(account: Account, made: Grant) -> dict[str, object]:
    detail: dict[str, object] = {
        "username": account.username,
        "action": made.action.value,
        "topic_pattern": made.topic_pattern,
    }
    if made.hides_payloads:
        detail["payloads"] = HIDDEN
    return detail


def _grant(row: asyncpg.Record) -> Grant:
    return Grant(**{**dict(row), "action": Right(row["action"])})


def _name_taken(name: str) -> AlreadyExists:
    return AlreadyExists(f"A user named {name!r} already exists.", {"field": "username"})


def _no_user(user_id: str) -> NotFound:
    return NotFound(f"There is no user {user_id[:80]!r}.")
