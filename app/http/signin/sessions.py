"""Sign-in: a password for a token, a token, or a password with each request."""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import secrets
import time
from collections.abc import Callable
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, ClassVar, Final

import msgspec

from app.base.db import sql
from app.base.fresh import Fresh
from app.base.keys import Key, digest_of
from app.errors import Throttled, Unauthorized
from app.http.signin import users
from app.http.signin.tokens import SECONDS, TokenClaims, Tokens

if TYPE_CHECKING:
    from app.base.db.pool import Pool
    from app.http.signin.directory import Directory
    from app.http.signin.people import User
    from app.http.signin.users import Passwords
    from app.kernel.model import Connection

_SQL: Final = sql.load_all(__package__)
_COUNT = _SQL["count_tries"]
_UNCOUNT = _SQL["uncount_tries"]
_SWEEP = _SQL["sweep_tries"]

REMEMBER_SECONDS: Final = 60.0  # how long a correct password is accepted without hashing it again
MOST_REMEMBERED: Final = 10_000  # tokens; also passwords
MOST_TRIES: Final = 10  # of one name from one address. Keys count as one name
MOST_TRIES_OF_ADDRESS: Final = 50  # of all names: enough for an office behind one address, not for a list of names
TRY_SECONDS: Final = 60
AGAIN_SECONDS: Final = 1  # how long a process refuses an address by itself: good tries are taken back meanwhile
MOST_COUNTED: Final = 100_000  # names and addresses in the database
MOST_REFUSED: Final = 10_000  # remembered by a process; for older ones it asks the database again


class TooManyTries(Throttled):
    """Too many attempts to sign in."""

    retry_after: ClassVar[int] = TRY_SECONDS


class Limiter:
    """Limits attempts to sign in within TRY_SECONDS: per name and address, and per address. The database counts for all
    processes. Attempts are never counted by name alone, or a stranger could lock a user out."""

    def __init__(self, pool: Pool, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._pool = pool
        self._clock = clock
        self._refused: dict[bytes, float] = {}  # until when; saves queries during a flood

    async def take(self, name: str, address: str) -> None:
        """Count an attempt before its result is known. Existing and unknown names are treated alike. Raises
        TooManyTries, Unavailable."""
        keys, now = _keys(name, address), self._clock()
        for key, most in zip(keys, (MOST_TRIES, MOST_TRIES_OF_ADDRESS), strict=True):
            if now < self._refused.get(key, 0):
                _refuse(most)
        found = await self._pool.fetch(_COUNT, *keys, timedelta(seconds=TRY_SECONDS), MOST_TRIES)
        rows = {row["who"]: row for row in found}
        for key, most, longest in zip(
            keys, (MOST_TRIES, MOST_TRIES_OF_ADDRESS), (TRY_SECONDS, AGAIN_SECONDS), strict=True
        ):
            if key in rows and rows[key]["tries"] > most:
                self._refused.pop(key, None)
                self._refused[key] = now + min(rows[key]["left_s"], longest)
                if len(self._refused) > MOST_REFUSED:
                    del self._refused[next(iter(self._refused))]
                _refuse(most)

    async def reset(self, name: str, address: str) -> None:
        """After a success, forget the name's attempts from this address. Attempts of other names stay counted."""
        await self._pool.execute(_UNCOUNT, _keys(name, address), True)

    async def give_back(self, name: str, address: str) -> None:
        """Uncount an attempt that did not check the password."""
        await self._pool.execute(_UNCOUNT, _keys(name, address), False)


class _RightPassword(msgspec.Struct, frozen=True):
    user_id: str
    epoch: int
    until: float


class Sessions:
    """Checks tokens and passwords against the users that the process knows.

    Keeps only digests of them. The digest of a password uses a random key of the process.
    """

    def __init__(self, pool: Pool, directory: Directory, passwords: Passwords, *, seconds: int = SECONDS) -> None:
        """`seconds`: how long a new token is valid."""
        self._pool = pool
        self._directory = directory
        self.passwords = passwords
        self._limiter = Limiter(pool)
        self._seconds = seconds
        self._key = secrets.token_bytes(32)
        self._tokens: dict[bytes, tuple[Tokens, TokenClaims]] = {}
        # A wrong password is never remembered.
        self._right: Fresh[bytes, _RightPassword | None] = Fresh(
            REMEMBER_SECONDS, most=MOST_REMEMBERED, until=lambda verified: 0.0 if verified is None else verified.until
        )

    async def login(self, name: str, password: str, address: str) -> str:
        """A token for the user with this name and password. Raises Unauthorized, TooManyTries, Unavailable."""
        await self._limiter.take(name, address)
        verified = await self._verify(name, password)
        user = None if verified is None else await self._user(verified, name)
        if user is None:
            raise Unauthorized("invalid credentials")
        await self._limiter.reset(name, address)
        return self.token_for(user)

    async def open(self, name: str, secret: str, address: str) -> str:
        """Open a session of the admin pages for a user's name and password. Without a name, `secret` is an API key.

        Raises Unauthorized, TooManyTries, Unavailable.
        """
        await self._limiter.take(name, address)
        if name:
            verified = await self._verify(name, secret)
            user = None if verified is None else await self._user(verified, name)
            if user is not None:
                await self._limiter.reset(name, address)
                return (await self._directory.signer()).make_for_pages(user)
        else:
            digest = digest_of(secret.encode())
            if self._directory.find(digest) is None:
                await self._directory.look_again()
            if (key := self._directory.find(digest)) is not None:
                await self._limiter.reset(name, address)
                return (await self._directory.signer()).make_for_pages(key)
        raise Unauthorized("The name or password is wrong." if name else "The API key does not exist.")

    async def by_session(self, session: bytes) -> tuple[User | Key, float] | None:
        """The owner of a session of the admin pages, and when it ends on the monotonic clock; None if it is not
        valid."""
        tokens = await self._directory.signer()
        try:
            visits = tokens.read_for_pages(session)
        except Unauthorized:
            return None
        if visits is None:
            return None
        if visits.seal:
            key = self._directory.key(visits.owner_id, lambda one: hmac.compare_digest(tokens.seal(one), visits.seal))
            return None if key is None else (key, visits.until)
        user = self._directory.user(visits.owner_id)
        return None if user is None or user.epoch != visits.epoch else (user, visits.until)

    async def proof(self, session: bytes) -> str:
        """The CSRF token that a form of this session must send."""
        return (await self._directory.signer()).proof(session)

    def token_for(self, user: User) -> str:
        """A new token for a user of the directory."""
        tokens = self._directory.tokens
        assert tokens is not None, "loaded with the first user"
        return tokens.make(user, self._seconds)

    def by_token(self, token: bytes) -> tuple[User, float] | None:
        """The owner of a token, and when it ends on the monotonic clock; None if it is not valid.

        Raises Unauthorized for an expired token.
        """
        tokens = self._directory.tokens
        if tokens is None:
            return None
        digest = digest_of(token)
        known = self._tokens.get(digest)
        if known is None or known[0] is not tokens or time.monotonic() >= known[1].until:
            claims = tokens.read(token)
            if claims is None:
                return None
            known = self._tokens[digest] = (tokens, claims)
            if len(self._tokens) > MOST_REMEMBERED:
                del self._tokens[next(iter(self._tokens))]
        claims = known[1]
        user = self._directory.user(claims.user_id)
        return None if user is None or user.epoch != claims.epoch else (user, claims.until)

    def by_password(self, name: str, password: str) -> User | None:
        """The user, if this password was verified recently."""
        verified = self._right.peek(self._digest(name, password))
        if verified is None:
            return None
        user = self._directory.user(verified.user_id)
        return user if user is not None and (user.epoch, user.name) == (verified.epoch, name) else None

    async def reauthenticate(self, name: str, password: str, address: str) -> bool:
        """Check a password and remember it if it is correct. Only wrong ones count as attempts.

        Raises TooManyTries, Unavailable.
        """
        digest = self._digest(name, password)
        if self._right.peek(digest) is not None:
            self._right.forget(digest)  # the user was changed since
        verified = await self._right.get(digest, partial(self._try, name, password, address))
        return verified is not None and await self._user(verified, name) is not None

    async def _try(self, name: str, password: str, address: str) -> _RightPassword | None:
        await self._limiter.take(name, address)
        try:
            verified = await self._verify(name, password)
        except BaseException:
            await self._limiter.give_back(name, address)
            raise
        if verified is not None:
            await self._limiter.reset(name, address)
        return verified

    async def _verify(self, name: str, password: str) -> _RightPassword | None:
        """The user with this name and password, or None. Takes as long for an unknown name."""
        found = await users.find(self._pool, name)
        until = time.monotonic() + REMEMBER_SECONDS
        if not await self.passwords.matches(None if found is None else found.password_hash, password):
            return None
        assert found is not None
        return _RightPassword(found.id, found.epoch, until)

    async def _user(self, verified: _RightPassword, name: str) -> User | None:
        """The directory's user. Reloads the directory if another process may have just made or changed the user."""
        user = self._directory.user(verified.user_id)
        if user is None or (user.epoch, user.name) != (verified.epoch, name):
            await self._directory.reload()
            user = self._directory.user(verified.user_id)
        return user if user is not None and user.epoch == verified.epoch else None

    def _digest(self, name: str, password: str) -> bytes:
        return hmac.digest(self._key, b"%b\0%b" % (name.encode(), password.encode()), hashlib.sha256)


async def sweep_tries(db: Connection, limit: int) -> int:
    """Delete up to `limit` counts that have expired or exceed MOST_COUNTED. Returns how many were deleted."""
    count: int = await db.fetchval(_SWEEP, MOST_COUNTED, limit)
    return count


def _refuse(most: int) -> None:
    raise TooManyTries(
        f"Too many attempts to sign in. The limit is {most} within {TRY_SECONDS} s.",
        {"limit": "sign_in_tries", "max": most},
    )


def _keys(name: str, address: str) -> list[bytes]:
    """Digests of the name at an address, and of the address. What a user types as a name may be long, or a password."""
    who = _who(address).encode()
    return [hashlib.sha256(part).digest() for part in (b"name\0%b\0%b" % (who, name.encode()), b"address\0%b" % who)]


def _who(address: str) -> str:
    """The address; for IPv6 its /64 network, which belongs to one customer."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        mapped = parsed.ipv4_mapped
        return str(mapped) if mapped else str(ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))
    return address
