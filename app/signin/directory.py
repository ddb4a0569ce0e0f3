"""What a process knows of the keys, so that a request is checked without asking PostgreSQL. docs/semantics.md, 21."""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import logging
import time
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Final

from app.db import sql
from app.db.pool import UNREACHABLE
from app.keys import Key, scopes_of
from app.signin.store import MOST_KEYS

if TYPE_CHECKING:
    from app.db.pool import Pool

_LIVE = sql.load(__package__, "live")
_COUNT = sql.load(__package__, "count")

TTL_SECONDS: Final = 30.0
LOOK_SECONDS: Final = 1.0  # how often unknown keys can make the process ask
RETRY_SECONDS: Final = 1.0
LOAD_SECONDS: Final = 5.0  # waiting for a connection included

log = logging.getLogger(__name__)


class Directory:
    """All live keys, by the digests of their secrets: those of the environment, and those of the database as of a load
    at most TTL_SECONDS ago. Where the database is away, the last known ones count on.

    It never opens what was closed: a process that has known of a key needs one for as long as it runs, whatever becomes
    of the keys.
    """

    def __init__(self, pool: Pool, fixed: Sequence[Key], *, ttl: float = TTL_SECONDS) -> None:
        self._pool = pool
        self._fixed = {key.digest: key for key in fixed}
        self._ttl = ttl
        self._known = dict(self._fixed)
        self._wanted = asyncio.Event()
        self._loading = asyncio.Lock()
        self._asked = self._answered = 0
        self._look: asyncio.Task[bool] | None = None
        self._no_look_before = 0.0
        self._keeping: asyncio.Task[None] | None = None
        self.loads = 0  # how often the database was asked
        # Whether a request needs a key at all. Read on every request.
        self.guarded = bool(fixed)
        # Called after each load: some keys may be good no more.
        self.on_loaded: Callable[[], None] = lambda: None
        # Told of a change that this process has made: others want to know.
        self.on_changed: Callable[[], None] = lambda: None

    @property
    def live(self) -> int:
        """How many secrets are known."""
        return len(self._known)

    def find(self, digest: bytes) -> Key | None:
        """The key whose secret has this digest, if it is good now. The time it takes tells nothing of a secret: which
        digest is looked for can't be steered towards a known one."""
        key = self._known.get(digest)
        if key is None or not hmac.compare_digest(key.digest, digest):
            return None
        if key.until is not None and time.monotonic() >= key.until:
            return None
        return key

    def start(self) -> None:
        """Begin to load again and again."""
        self._keeping = asyncio.create_task(self._keep())

    async def stop(self) -> None:
        """Stop that."""
        for task in (self._keeping, self._look):
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

    def refresh(self) -> None:
        """Keys have changed elsewhere, perhaps: load soon. Never waits."""
        self._wanted.set()

    async def changed(self, gone: str = "") -> None:
        """This process has changed keys: know that before it answers, and tell the others. `gone`: the id of a key that
        is good no more, whether or not the database can be asked."""
        if gone:
            self._known = {digest: key for digest, key in self._known.items() if key.id != gone}
        self.guarded = True  # a key exists, whatever became of it
        self.on_changed()
        if not await self._reload_or_say():
            self.refresh()
            self.on_loaded()

    async def look_again(self) -> None:
        """Somebody has come with a key that is not known: it may have been made elsewhere a moment ago.

        Asks PostgreSQL at most once in LOOK_SECONDS, for all who come meanwhile.
        """
        if self._look is None or self._look.done():
            if time.monotonic() < self._no_look_before:
                return
            self._no_look_before = time.monotonic() + LOOK_SECONDS
            self._look = asyncio.create_task(self._reload_or_say())
        await asyncio.wait({self._look})

    async def reload(self) -> None:
        """Know the keys as they are at some moment after this call; who calls meanwhile shares a load.

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
        self.on_loaded()

    async def _load(self) -> None:
        asked_at = time.monotonic()  # before the database looks at its clock: a key never lives longer here than there
        self.loads += 1
        rows = await self._pool.fetch(_LIVE, 2 * MOST_KEYS)
        known = {}
        for row in rows:
            until = None if row["seconds"] is None else asked_at + row["seconds"]
            key = Key(row["digest"], scopes_of(row["scopes"]), tuple(row["prefixes"]), row["id"], row["name"], until)
            known[key.digest] = key
        if not self.guarded:
            count = await self._pool.fetchrow(_COUNT)
            # Keys that were revoked or have expired close the service as well: it must not open when the last one ends.
            self.guarded = count is not None and count["kept"] > 0
        self._known = known | self._fixed

    async def _keep(self) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._ttl):
                    await self._wanted.wait()
            self._wanted.clear()
            if not await self._reload_or_say():
                await asyncio.sleep(RETRY_SECONDS)
                self._wanted.set()

    async def _reload_or_say(self) -> bool:
        """Load; what goes wrong is logged. Whether it went well."""
        try:
            await self.reload()
        except UNREACHABLE as error:
            log.warning("can't load keys at the moment: %r; those known last count on", error)
        except Exception:
            log.exception("loading keys failed; those known last count on")
        else:
            return True
        return False
