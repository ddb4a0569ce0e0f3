"""Creates, lists, rotates and revokes API keys in PostgreSQL. Each change is recorded in the audit trail."""

from __future__ import annotations

import re
import secrets
from collections.abc import Sequence
from datetime import UTC, datetime
from enum import Enum
from typing import TYPE_CHECKING, Final

import msgspec

from app.base.db import sql
from app.base.keys import HIDDEN, Key, Scope, digest_of, scopes_of
from app.errors import Forbidden, InvalidRequest, KeyNotLive, NotFound, Throttled, Unauthorized
from app.kernel.audit import trail
from app.kernel.audit.trail import Action, Actor
from app.kernel.model import Connection

if TYPE_CHECKING:
    import asyncpg

    from app.base.db.pool import Pool

_SQL: Final = sql.load_all(__package__)
_LOCK = _SQL["lock"]
_COUNT = _SQL["count"]
_INSERT = _SQL["insert"]
_GET = _SQL["get"]
_PAGE = _SQL["page"]
_ROTATE = _SQL["rotate"]
_REVOKE = _SQL["revoke"]

MOST_KEYS: Final = 10_000  # live ones; every process has all of them in memory
MOST_PREFIXES: Final = 100
MOST_NAME_BYTES: Final = 128
MAX_TENANT: Final = 128  # characters
NEWEST: Final = (datetime.max.replace(tzinfo=UTC), "")  # a place before all keys
_ID: Final = re.compile(r"key_[0-9a-f]{16}\Z")
_PREFIX: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{0,254}\Z")


class KeyState(Enum):
    LIVE = "live"
    EXPIRED = "expired"
    REVOKED = "revoked"


class StoredKey(msgspec.Struct, frozen=True):
    """A key without its secret. `old_until`: until when the previous secret is valid; None if it is not."""

    id: str
    name: str
    scopes: Scope
    prefixes: tuple[str, ...]
    tenant: str | None
    hides_payloads: bool
    created_at: datetime
    created_by: str
    rotated_at: datetime | None
    expires_at: datetime | None
    revoked_at: datetime | None
    old_until: datetime | None
    state: KeyState


class NewKey(msgspec.Struct, frozen=True):
    """A request for a key. Without prefixes it covers every topic. `expires_in_ms`: None for never. `tenant`: restricts
    it to one tenant's jobs; None for all. `hides_payloads`: it sees jobs without their payloads."""

    name: str
    scopes: Scope
    prefixes: tuple[str, ...] = ()
    expires_in_ms: int | None = None
    tenant: str | None = None
    hides_payloads: bool = False


class Changer(msgspec.Struct, frozen=True):
    """The author of a change of keys or users. It can't grant or change anything beyond the rights of `key`. None: no
    such limit, at the command line and while no sign-in is needed."""

    actor: Actor
    key: Key | None = None

    @property
    def in_the_open(self) -> bool:
        return self.actor.id == trail.OPEN

    def reaches(self, scopes: Scope, prefixes: Sequence[str], *, hides_payloads: bool) -> bool:
        """Whether the changer itself has all these rights."""
        return self.key is None or self.key.may_grant(scopes, prefixes, hides_payloads=hides_payloads)


async def create(pool: Pool, new: NewKey, by: Changer) -> tuple[StoredKey, str]:
    """Make a key. Returns it and its secret, which can't be read again.

    Raises InvalidRequest; Forbidden for rights beyond the changer's; Unauthorized if sign-in is needed by now;
    Throttled if MOST_KEYS are live.
    """
    _check(new)
    if not by.reaches(new.scopes, new.prefixes, hides_payloads=new.hides_payloads):
        raise Forbidden("A key can't make a key with more rights than its own.")
    key_id, secret = f"key_{secrets.token_hex(8)}", _new_secret()
    scopes, prefixes = new.scopes.words, list(new.prefixes)
    async with pool.acquire() as db, db.transaction():
        await db.execute(_LOCK)
        count = await db.fetchrow(_COUNT)
        assert count is not None
        if by.in_the_open:
            if count["kept"]:
                raise needs_sign_in()
            if Scope.ADMIN not in new.scopes or new.prefixes or new.hides_payloads:
                raise InvalidRequest(
                    "The first key must have the scope admin, no prefixes, and see payloads. From then on every route "
                    "needs a key, and only such a key can make others."
                )
        if count["live"] >= MOST_KEYS:
            raise Throttled(f"There can be at most {MOST_KEYS} live keys.", {"limit": "max_keys", "max": MOST_KEYS})
        digest, expires, maker = digest_of(secret.encode()), new.expires_in_ms, by.actor.id
        limits = new.tenant, new.hides_payloads
        await db.execute(_INSERT, key_id, new.name, digest, scopes, prefixes, expires, maker, *limits)
        detail = {"name": new.name, "scopes": scopes, "prefixes": prefixes, "expires_in_ms": expires}
        if new.tenant is not None:
            detail["tenant"] = new.tenant
        if new.hides_payloads:
            detail["payloads"] = HIDDEN
        await trail.record(db, by.actor, Action.KEY_MADE, key_id, detail)
        return await get(db, key_id, by), secret


async def get(db: Connection, key_id: str, by: Changer) -> StoredKey:
    """A key. Raises NotFound, also for a key with rights beyond the changer's."""
    row = await db.fetchrow(_GET, key_id) if _ID.match(key_id) else None
    kept = None if row is None else _key_of(row)
    if kept is None or not by.reaches(kept.scopes, kept.prefixes, hides_payloads=kept.hides_payloads):
        raise NotFound("There is no such key.", {"id": key_id[:100]})
    return kept


async def page(db: Connection, before: tuple[datetime, str], limit: int, by: Changer) -> list[StoredKey]:
    """Up to `limit` keys made before another key, newest first. Only keys with no rights beyond the changer's."""
    scopes, prefixes = (Scope.ALL, ()) if by.key is None else (by.key.scopes, by.key.prefixes)
    sees = by.key is None or by.key.sees_payloads_below(prefixes or ("",))
    return [_key_of(row) for row in await db.fetch(_PAGE, *before, limit, scopes.words, list(prefixes), sees)]


async def rotate(pool: Pool, key_id: str, grace_ms: int, by: Changer) -> tuple[StoredKey, str]:
    """Give a key a new secret. Returns the key and the secret. The previous secret stays valid for `grace_ms`; older
    ones are no longer valid. Raises NotFound, KeyNotLive; Unauthorized if sign-in is needed by now."""
    secret = _new_secret()
    async with pool.acquire() as db, db.transaction():
        kept = await get(db, key_id, by)
        if by.in_the_open:
            raise needs_sign_in()
        if await db.fetchval(_ROTATE, key_id, digest_of(secret.encode()), grace_ms) is None:
            state = KeyState.REVOKED if kept.revoked_at else KeyState.EXPIRED
            raise KeyNotLive(f"This key is {state.value}. Make a new one.", {"id": key_id, "state": state.value})
        await trail.record(db, by.actor, Action.KEY_ROTATED, key_id, {"name": kept.name, "grace_ms": grace_ms})
        return await get(db, key_id, by), secret


async def revoke(pool: Pool, key_id: str, by: Changer) -> StoredKey:
    """Revoke a key for good. Idempotent. Raises NotFound; Unauthorized if sign-in is needed by now."""
    async with pool.acquire() as db, db.transaction():
        kept = await get(db, key_id, by)
        if by.in_the_open:
            raise needs_sign_in()
        if await db.fetchval(_REVOKE, key_id) is not None:
            await trail.record(db, by.actor, Action.KEY_REVOKED, key_id, {"name": kept.name})
        return await get(db, key_id, by)


def _check(new: NewKey) -> None:
    if not new.name or len(new.name.encode()) > MOST_NAME_BYTES or not new.name.isprintable():
        raise _invalid("name", f"name must be 1 to {MOST_NAME_BYTES} bytes of text on one line.")
    if not new.scopes:
        raise _invalid("scopes", "scopes must have at least one of read, write, delete and admin.")
    if new.tenant is not None:
        if not 1 <= len(new.tenant) <= MAX_TENANT or "\0" in new.tenant:
            raise _invalid("tenant", f"tenant must be 1 to {MAX_TENANT} characters without NUL.")
        if new.scopes & (Scope.ADMIN | Scope.DELETE):
            raise _invalid("tenant", "A key for one tenant can have only the scopes read and write.")
    if len(new.prefixes) > MOST_PREFIXES:
        raise _invalid("prefixes", f"A key can have at most {MOST_PREFIXES} prefixes.")
    for prefix in new.prefixes:
        if _PREFIX.match(prefix) is None:
            raise _invalid("prefixes", f"No topic's name can start with {prefix[:300]!r}.")


def _invalid(field: str, message: str) -> InvalidRequest:
    return InvalidRequest(message, {"field": field})


def _new_secret() -> str:
    return f"hf_{secrets.token_urlsafe(32)}"


def needs_sign_in() -> Unauthorized:
    """The error for a request during which another one made the first key or user."""
    return Unauthorized("Sign-in is needed now: send an API key, or a user's name and password.")


def _key_of(row: asyncpg.Record) -> StoredKey:
    scopes, state = scopes_of(row["scopes"]), KeyState(row["state"])
    return StoredKey(**{**dict(row), "scopes": scopes, "prefixes": tuple(row["prefixes"]), "state": state})
