"""How users sign in: by a password for a token, by a token, or by the password with each request."""

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

REMEMBER_SECONDS: Final = 60.0  # how long a password that was right needs no look at its hash
MOST_REMEMBERED: Final = 10_000  # tokens, and passwords
MOST_TRIES: Final = 10  # of one name from one address; of keys, which have none, from one address
MOST_TRIES_OF_ADDRESS: Final = 50  # whatever the names: an office behind one address is let in, a list of names is not
TRY_SECONDS: Final = 60
AGAIN_SECONDS: Final = 1  # that a process remembers of an address that has no more: good tries are taken back meanwhile
MOST_COUNTED: Final = 100_000  # names and addresses in the database
MOST_REFUSED: Final = 10_000  # that a process remembers; beyond, it asks the database about the oldest again


class TooManyTries(Throttled):
    """Somebody has tried too often to sign in."""

    retry_after: ClassVar[int] = TRY_SECONDS


class Limiter:
    """How often somebody may try to sign in within TRY_SECONDS: as one name from one address, and from one address in
    all. The database counts, for all processes. Tries are never counted by name alone: a stranger elsewhere could lock
    a user out."""

    def __init__(self, pool: Pool, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._pool = pool
        self._clock = clock
        self._refused: dict[bytes, float] = {}  # until when; a flood costs the database nothing

    async def take(self, name: str, address: str) -> None:
        """Count a try, before it is known how it ends, and alike for names that there are and those that there are not.
        Raises TooManyTries, Unavailable."""
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
        """After a good try: the name begins anew at this address, whose other tries stay."""
        await self._pool.execute(_UNCOUNT, _keys(name, address), True)

    async def give_back(self, name: str, address: str) -> None:
        """Take back a try that told nothing about the password."""
        await self._pool.execute(_UNCOUNT, _keys(name, address), False)


class _RightPassword(msgspec.Struct, frozen=True):
    user_id: str
    epoch: int
    until: float


class Sessions:
    """Checks tokens and passwords against the users that the process knows.

    Neither is kept: of a token its digest, of a password one under a key that is the process's own.
    """

    def __init__(self, pool: Pool, directory: Directory, passwords: Passwords, *, seconds: int = SECONDS) -> None:
        """`seconds`: how long a new token is good."""
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
        """A token for the user of this name and password. Raises Unauthorized, TooManyTries, Unavailable."""
        await self._limiter.take(name, address)
        verified = await self._verify(name, password)
        user = None if verified is None else await self._user(verified, name)
        if user is None:
            raise Unauthorized("invalid credentials")
        await self._limiter.reset(name, address)
        return self.token_for(user)

    async def open(self, name: str, secret: str, address: str) -> str:
        """A session of the admin pages: for a user by name and password, or without a name for an API key.

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
        raise Unauthorized("Name and password don't match." if name else "There is no such API key.")

    async def by_session(self, session: bytes) -> tuple[User | Key, float] | None:
        """The owner of a session of the admin pages, and when it ends; None if it is not valid, or over: its owner can
        sign in again."""
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
        """What a form of this session has to send along."""
        return (await self._directory.signer()).proof(session)

    def token_for(self, user: User) -> str:
        """A new token for a user that the directory has."""
        tokens = self._directory.tokens
        assert tokens is not None, "loaded with the first user"
        return tokens.make(user, self._seconds)

    def by_token(self, token: bytes) -> tuple[User, float] | None:
        """The owner of a token, and when it ends; None if it is not valid.

        Raises Unauthorized for one that has expired.
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
        """The user, if the password was found to be right a moment ago."""
        verified = self._right.peek(self._digest(name, password))
        if verified is None:
            return None
        user = self._directory.user(verified.user_id)
        return user if user is not None and (user.epoch, user.name) == (verified.epoch, name) else None

    async def knows_by_now(self, name: str, password: str, address: str) -> bool:
        """Check the password, and remember it if it is right. Only wrong ones count as tries.

        Raises TooManyTries, Unavailable.
        """
        digest = self._digest(name, password)
        if self._right.peek(digest) is not None:
            self._right.forget(digest)  # of a user who was changed since
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
        """The user whose password this is, or None. Takes as long where there is no user of this name."""
        found = await users.find(self._pool, name)
        until = time.monotonic() + REMEMBER_SECONDS
        if not await self.passwords.matches(None if found is None else found.password_hash, password):
            return None
        assert found is not None
        return _RightPassword(found.id, found.epoch, until)

    async def _user(self, verified: _RightPassword, name: str) -> User | None:
        """The user as the directory knows them. It may have to load: they may have been made elsewhere a moment ago."""
        user = self._directory.user(verified.user_id)
        if user is None or (user.epoch, user.name) != (verified.epoch, name):
            await self._directory.reload()
            user = self._directory.user(verified.user_id)
        return user if user is not None and user.epoch == verified.epoch else None

    def _digest(self, name: str, password: str) -> bytes:
        return hmac.digest(self._key, b"%b\0%b" % (name.encode(), password.encode()), hashlib.sha256)


async def sweep_tries(db: Connection, limit: int) -> int:
    """Forget up to `limit` names and addresses whose time is over, and those above MOST_COUNTED: how many."""
    count: int = await db.fetchval(_SWEEP, MOST_COUNTED, limit)
    return count


def _refuse(most: int) -> None:
    raise TooManyTries(
        f"At most {most} tries to sign in within {TRY_SECONDS} s.", {"limit": "sign_in_tries", "max": most}
    )


def _keys(name: str, address: str) -> list[bytes]:
    """A name at an address, and the address, as digests: what is typed for a name may be long, or a password."""
    who = _who(address).encode()
    return [hashlib.sha256(part).digest() for part in (b"name\0%b\0%b" % (who, name.encode()), b"address\0%b" % who)]


def _who(address: str) -> str:
    """An address; of IPv6 its network of 64 bits, all of which are one customer's."""
    try:
        parsed = ipaddress.ip_address(address)
    except ValueError:
        return address
    if isinstance(parsed, ipaddress.IPv6Address):
        mapped = parsed.ipv4_mapped
        return str(mapped) if mapped else str(ipaddress.ip_network((int(parsed) >> 64 << 64, 64)))
    return address
