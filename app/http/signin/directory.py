"""A process's copy of keys and users, so that requests are checked without a query. docs/semantics.md, section 21."""

from __future__ import annotations

import asyncio
import hmac
import logging
import secrets
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from app.base.db import sql
from app.base.fresh import Fresh
from app.base.keys import Key, scopes_of
from app.base.loops import Loop
from app.base.outages import UNREACHABLE
from app.base.signals import Signal
from app.http.signin.api_keys import MOST_KEYS
from app.http.signin.people import Right, User
from app.http.signin.tokens import Tokens
from app.http.signin.users import MOST_USERS
from app.settings import LEAST_SECRET_BYTES

if TYPE_CHECKING:
    from app.base.db.pool import Pool

_SQL: Final = sql.load_all(__package__)
_LIVE = _SQL["live"]
_COUNT = _SQL["count"]
_PEOPLE = _SQL["people"]
_SECRET = _SQL["secret"]
_KEEP_SECRET = _SQL["keep_secret"]

TTL_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 1.0  # least time between loads caused by unknown keys
RETRY_SECONDS: Final = 1.0
LOAD_SECONDS: Final = 5.0  # including the wait for a connection

log = logging.getLogger(__name__)


class Directory:
    """All live keys, by the digests of their secrets, and all users with their grants. Loaded from the database every
    TTL_SECONDS; keys of the environment are added. While the database is unreachable, the last load stays valid.

    Once a process has seen a key or user, it requires sign-in for as long as it runs, even if they are deleted. The
    service never becomes open by itself.
    """

    def __init__(
        self, pool: Pool, fixed: Sequence[Key], *, ttl: float = TTL_SECONDS, token_secret: bytes | None = None
    ) -> None:
        """`token_secret` signs users' tokens; None: use the one in the database."""
        self._pool = pool
        self._fixed = {key.digest: key for key in fixed}
        self._known = dict(self._fixed)
        self._by_id: tuple[dict[bytes, Key], dict[str, list[bytes]]] = {}, {}  # digests by id, of the known keys
        self._users: dict[str, User] = {}
        self._token_secret = token_secret
        self.tokens: Tokens | None = None  # None until first needed
        self._loading = asyncio.Lock()
        self._asked = self._answered = 0
        self._look: Fresh[None, bool] = Fresh(LOOK_SECONDS)
        self._loop = Loop("load keys and users", self.reload, ttl, first=ttl, retry=RETRY_SECONDS)
        self.loads = 0  # count of queries
        # Whether requests need sign-in. Read on every request.
        self.guarded = bool(fixed)
        self.loaded: Signal[()] = Signal()  # keys and sessions may have become invalid
        self.keys_changed: Signal[()] = Signal()  # by this process

    @property
    def live(self) -> int:
        """How many secrets and users are known."""
        return len(self._known) + len(self._users)

    def user(self, user_id: str) -> User | None:
        """The user with this id; None if there is none."""
        return self._users.get(user_id)

    def find(self, digest: bytes) -> Key | None:
        """The key whose secret has this digest, if it is valid now. Its timing reveals nothing about secrets, because
        callers can't steer a digest towards a known one."""
        key = self._known.get(digest)
        if key is None or not hmac.compare_digest(key.digest, digest):
            return None
        if key.until is not None and time.monotonic() >= key.until:
            return None
        return key

    def key(self, key_id: str, fits: Callable[[bytes], bool]) -> Key | None:
        """The key with this id whose digest `fits`, if it is valid now. Keys of the environment have the id ""."""
        if self._by_id[0] is not self._known:
            by_id: dict[str, list[bytes]] = {}
            for one in self._known.values():
                by_id.setdefault(one.id, []).append(one.digest)
            self._by_id = self._known, by_id
        found = (digest for digest in self._by_id[1].get(key_id, ()) if fits(digest))
        return next((self.find(digest) for digest in found), None)

    async def signer(self) -> Tokens:
        """The tokens' signer, even if there are no users. Raises asyncpg's errors."""
        if self.tokens is None:
            self.tokens = Tokens(self._token_secret or await self._load_secret())
        return self.tokens

    def start(self) -> None:
        """Start the periodic loads."""
        self._loop.start()

    async def stop(self) -> None:
        """Stop the periodic loads."""
        await self._loop.stop()
        await self._look.stop()

    def refresh(self) -> None:
        """Load soon, because keys or users may have changed elsewhere. Does not wait."""
        self._loop.wake()

    async def reload_after_change(self, gone: str = "", user: str = "") -> None:
        """Load a change of this process before it answers, and notify the other processes.

        `gone`: the id of a key that is no longer valid. `user`: the id of a user with fewer rights. If the load fails,
        the key is dropped all the same, and the user loses all rights.
        """
        if gone:
            self._known = {digest: key for digest, key in self._known.items() if key.id != gone}
        self.guarded = True  # a key or user exists, whatever became of it
        self.keys_changed.emit()
        if not await self._reload_or_say():
            self._users = {user_id: one for user_id, one in self._users.items() if user_id != user}
            self.refresh()
            self.loaded.emit()

    async def look_again(self) -> None:
        """Load for a request with an unknown key, which another process may have just made. All such requests together
        cause at most one load in LOOK_SECONDS.
        """
        await self._look.get(None, self._reload_or_say)

    async def reload(self) -> None:
        """Load keys and users. Concurrent callers share a load. Changes nothing if it raises asyncpg's errors."""
        self._asked = mine = self._asked + 1
        async with self._loading:
            if self._answered >= mine:
                return
            covers = self._asked
            async with asyncio.timeout(LOAD_SECONDS):
                await self._load()
            self._answered = covers
        self.loaded.emit()

    async def _load(self) -> None:
        asked_at = time.monotonic()  # before the database reads its clock, so that no key lives longer here than there
        self.loads += 1
        rows = await self._pool.fetch(_LIVE, 2 * MOST_KEYS)
        known = {}
        for row in rows:
            until = None if row["seconds"] is None else asked_at + row["seconds"]
            scopes, prefixes = scopes_of(row["scopes"]), tuple(row["prefixes"])
            named = row["id"], row["name"], until
            limits = {"tenant": row["tenant"], "hides_payloads": row["hides_payloads"]}
            key = Key(row["digest"], scopes, prefixes, *named, **limits)
            known[key.digest] = key
        users = await self._load_users()
        if not self.guarded:
            count = await self._pool.fetchrow(_COUNT)
            # Revoked and expired keys and deleted users count as well: the service must not open when the last one
            # ends.
            self.guarded = count is not None and count["kept"] > 0
        self._known = known | self._fixed
        self._users = users

    async def _load_users(self) -> dict[str, User]:
        users = {}
        for row in await self._pool.fetch(_PEOPLE, MOST_USERS):
            grants = zip(map(Right, row["actions"]), row["patterns"], row["hides"], strict=True)
            user = User(row["id"], row["username"], row["epoch"], is_admin=row["is_admin"], grants=grants)
            users[user.id] = user
        if users or self.tokens is not None:
            secret = self._token_secret or await self._load_secret()
            if self.tokens is None or self.tokens.secret != secret:
                self.tokens = Tokens(secret)
        return users

    async def _load_secret(self) -> bytes:
        secret = await self._pool.fetchval(_SECRET)
        if secret is None:
            await self._pool.execute(_KEEP_SECRET, secrets.token_bytes(LEAST_SECRET_BYTES))
            secret = await self._pool.fetchval(_SECRET)
        return bytes(secret)

    async def _reload_or_say(self) -> bool:
        """Load, and log errors. Returns whether it succeeded."""
        try:
            await self.reload()
        except UNREACHABLE as error:
            log.warning("can't load keys and users right now: %r. The last known ones stay valid", error)
        except Exception:
            log.exception("loading keys and users failed. The last known ones stay valid")
        else:
            return True
        return False
