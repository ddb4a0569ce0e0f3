"""What a process knows of keys and users, so that a request is checked without asking PostgreSQL.

docs/semantics.md, section 21.
"""

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
LOOK_SECONDS: Final = 1.0  # how often unknown keys can make the process ask
RETRY_SECONDS: Final = 1.0
LOAD_SECONDS: Final = 5.0  # waiting for a connection included

log = logging.getLogger(__name__)


class Directory:
    """All live keys, by the digests of their secrets: those of the environment, and those of the database as of a load
    at most TTL_SECONDS ago. All users with their grants, of the same load. Where the database is away, the last known
    ones count on.

    A process that has known a key or user requires sign-in for as long as it runs, even when they are deleted: the
    service never becomes open by itself.
    """

    def __init__(
        self, pool: Pool, fixed: Sequence[Key], *, ttl: float = TTL_SECONDS, token_secret: bytes | None = None
    ) -> None:
        """`token_secret`: signs users' tokens; None for one that is kept in the database."""
        self._pool = pool
        self._fixed = {key.digest: key for key in fixed}
        self._known = dict(self._fixed)
        self._users: dict[str, User] = {}
        self._token_secret = token_secret
        # What makes and reads tokens; None as long as nobody needed it.
        self.tokens: Tokens | None = None
        self._loading = asyncio.Lock()
        self._asked = self._answered = 0
        self._look: Fresh[None, bool] = Fresh(LOOK_SECONDS)
        self._loop = Loop("load keys and users", self.reload, ttl, first=ttl, retry=RETRY_SECONDS)
        self.loads = 0  # how often the database was asked
        # Whether a request needs sign-in at all. Read on every request.
        self.guarded = bool(fixed)
        self.loaded: Signal[()] = Signal()  # some keys and sessions may be good no more
        self.keys_changed: Signal[()] = Signal()  # by this process

    @property
    def live(self) -> int:
        """How many secrets and users are known."""
        return len(self._known) + len(self._users)

    def user(self, user_id: str) -> User | None:
        """The user of this id; None if there is none any more."""
        return self._users.get(user_id)

    def find(self, digest: bytes) -> Key | None:
        """The key whose secret has this digest, if it is good now. The time it takes tells nothing of a secret: which
        digest is looked for can't be steered towards a known one."""
        key = self._known.get(digest)
        if key is None or not hmac.compare_digest(key.digest, digest):
            return None
        if key.until is not None and time.monotonic() >= key.until:
            return None
        return key

    def key(self, key_id: str, fits: Callable[[bytes], bool]) -> Key | None:
        """The key of this id, "" for those of the environment, of which the digest fits, if it is good now."""
        found = (one.digest for one in self._known.values() if one.id == key_id and fits(one.digest))
        return next((self.find(digest) for digest in found), None)

    async def signer(self) -> Tokens:
        """Makes and reads tokens, whether or not there is a user here. Raises asyncpg's errors."""
        if self.tokens is None:
            self.tokens = Tokens(self._token_secret or await self._load_secret())
        return self.tokens

    def start(self) -> None:
        """Begin to load again and again."""
        self._loop.start()

    async def stop(self) -> None:
        """Stop that."""
        await self._loop.stop()
        await self._look.stop()

    def refresh(self) -> None:
        """Load soon, as keys or users may have changed elsewhere. Does not wait."""
        self._loop.wake()

    async def reload_after_change(self, gone: str = "", user: str = "") -> None:
        """Load what this process has changed before it answers, and tell the others. `gone`: the id of a key that is no
        longer valid, even where the database can't be asked; `user`: the id of a user who may do less from now on, and
        nothing where the database can't be asked how much."""
        if gone:
            self._known = {digest: key for digest, key in self._known.items() if key.id != gone}
        self.guarded = True  # a key or user exists, whatever became of it
        self.keys_changed.emit()
        if not await self._reload_or_say():
            self._users = {user_id: one for user_id, one in self._users.items() if user_id != user}
            self.refresh()
            self.loaded.emit()

    async def look_again(self) -> None:
        """Load again for a request with an unknown key: it may have been made elsewhere a moment ago.

        Asks PostgreSQL at most once in LOOK_SECONDS, for all such requests.
        """
        await self._look.get(None, self._reload_or_say)

    async def reload(self) -> None:
        """Load keys and users as they are after this call. Concurrent callers share a load.

        Raises asyncpg's errors, and then changes nothing.
        """
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
        asked_at = time.monotonic()  # before the database looks at its clock: a key never lives longer here than there
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
            # Keys that were revoked or have expired and users who were deleted close the service as well: it must not
            # open when the last one ends.
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
            log.warning("can't load keys and users at the moment: %r; those known last count on", error)
        except Exception:
            log.exception("loading keys and users failed; those known last count on")
        else:
            return True
        return False
