"""Shared rendering of open admin pages: one look serves all watchers with the same rights. ADR 0057.

A page is rendered again when this process knows of a change, at most once in LEAST_SECONDS. Another process may know of
changes that this one does not. So the page is also rendered on a timer: LEAST_SECONDS after a look that found news, and
with growing pauses up to IDLE_SECONDS after looks that found none.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import re
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Hashable
from typing import TYPE_CHECKING, Final

from app.base.loops import end_tasks
from app.base.metrics import catalogue
from app.base.outages import as_unavailable
from app.errors import HoldfastError, ShuttingDown, Throttled
from app.kernel.engine import Core

if TYPE_CHECKING:
    from app.kernel.engine import Engine

LEAST_SECONDS: Final = 1.0
IDLE_SECONDS: Final = 5.0
SHARE: Final = 10  # if two looks in a row take s seconds or more, the next begins SHARE * s later at the earliest
AT_ONCE: Final = 2  # concurrent looks: the pool must keep connections for other work
MOST_STREAMS: Final = 4  # per session: a browser has six connections per host, shared by all tabs
_AGES: Final = re.compile(rb'<span class="age">[^<]*</span>')

log = logging.getLogger(__name__)


class Watcher:
    """One open page of a session.

    who: the session.
    look: renders the page's live part; the result is the same for all watchers of the screen.
    check: raises HoldfastError once the session may not see the page any more.
    more: is set when there may be new content, or when the stream must end.
    error: why the stream must end.
    """

    def __init__(self, who: str, look: Callable[[], Awaitable[bytes]], check: Callable[[], None]) -> None:
        self.who = who
        self.look = look
        self.check = check
        self.more = asyncio.Event()
        self.error: HoldfastError | None = None
        self.screen: Screen | None = None
        self._after = 0  # only later looks are newer than the page that was loaded
        self._has = b""

    def attach(self, screen: Screen) -> None:
        """Watch a screen from its next look on."""
        self.screen, self._after = screen, screen.begun

    def next(self) -> bytes | None:
        """Return the newest content, or None if it was returned before."""
        screen = self.screen
        if screen is None or screen.ended <= self._after or screen.digest == self._has:
            return None
        self._has = screen.digest
        return screen.content

    def end(self, error: HoldfastError) -> None:
        self.error = error
        self.more.set()


class Screen:
    """One page as seen with the same rights. `moved` returns a value that changes when the page's data may have."""

    def __init__(self, moved: Callable[[], Hashable]) -> None:
        self.moved = moved
        self.watchers: set[Watcher] = set()
        self.content = self.digest = b""
        self.begun = self.ended = 0  # looks begun; the number of the look that made `content`
        self.asked = False  # a watcher was added since the last look began
        self.first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._facts = b""  # the digest without ages, which always change

    def check(self) -> None:
        """End the watchers that may not see the page any more."""
        for watcher in list(self.watchers):
            try:
                watcher.check()
            except HoldfastError as error:
                self.watchers.discard(watcher)
                watcher.end(error)

    def update(self, content: bytes, look: int) -> bool:
        """Store the content of a look. Returns whether it is news."""
        self.digest, facts = _digest(content), _digest(_AGES.sub(b"", content))
        self.content, self.ended = content, look
        news, self._facts = facts != self._facts, facts
        for watcher in self.watchers:
            watcher.more.set()
        if not self.first.done():
            self.first.set_result(None)
        return news

    def fail(self, error: HoldfastError) -> None:
        """End all watchers with an error, and callers of `open` that wait for the first look."""
        if not self.first.done():
            self.first.set_exception(error)
            self.first.exception()  # marks it as retrieved, if all watchers have left
        for watcher in self.watchers:
            watcher.end(error)


class Screens(Core):
    """Renders open pages for their watchers. A session has at most MOST_STREAMS over all processes of the service."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._most = max(1, MOST_STREAMS // engine.processes)
        self._screens: dict[Hashable, Screen] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._streams: Counter[str] = Counter()
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._stopping = False
        self.looks = 0  # looks begun
        engine.metrics.levels.append(lambda: [(catalogue.PAGE_STREAMS, (), self.count())])

    def count(self) -> int:
        return self._streams.total()

    async def open(self, key: Hashable, watcher: Watcher, moved: Callable[[], Hashable]) -> None:
        """Add a watcher until `close`, and wait for the first look. Watchers with the same `key` share a screen.

        Raises Throttled, ShuttingDown, and the errors of looking. The watcher is not added then.
        """
        if self._stopping:
            raise _stopping()
        if self._streams[watcher.who] >= self._most:
            raise Throttled(
                f"This session has too many live pages open. The limit is {self._most}.",
                {"limit": "page_streams", "max": self._most},
            )
        self._streams[watcher.who] += 1
        screen = self._screens.get(key)
        if screen is None:
            screen = self._screens[key] = Screen(moved)
            task = asyncio.create_task(self._run(key, screen))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        screen.watchers.add(watcher)
        screen.asked = True
        watcher.attach(screen)
        try:
            await asyncio.shield(screen.first)
        except BaseException:
            self.close(watcher)
            raise

    def close(self, watcher: Watcher) -> None:
        """Remove a watcher. A page without watchers is not rendered any more."""
        if watcher.screen is not None:
            watcher.screen.watchers.discard(watcher)
            watcher.screen = None
            self._streams[watcher.who] -= 1
            self._streams += Counter()  # drops zero counts

    def stop(self) -> None:
        self._stopping = True
        for screen in self._screens.values():
            screen.fail(_stopping())

    async def drain(self) -> None:
        await end_tasks(*self._tasks)

    async def _run(self, key: Hashable, screen: Screen) -> None:
        pause, before = LEAST_SECONDS, 0.0
        try:
            while screen.watchers and not self._stopping:
                moved = screen.moved()
                news, took = await self._look(screen)
                # The smaller one of two looks: a single slow look may have waited for something else.
                least, before = max(LEAST_SECONDS, SHARE * min(took, before)), took
                pause = least if news else max(least, min(2 * pause, IDLE_SECONDS))
                await _rest(screen, moved, least, pause)
        except Exception as error:
            known = error if isinstance(error, HoldfastError) else as_unavailable(error)
            if known is None:
                log.exception("rendering a live page failed")
                known = HoldfastError("Internal error. The service's log has the details.")
            screen.fail(known)
        finally:
            del self._screens[key]

    async def _look(self, screen: Screen) -> tuple[bool, float]:
        """Returns whether there is news, and the seconds that the look took. The first look does not wait for a turn,
        as a visitor waits for it."""
        if not screen.begun:
            return await self._look_now(screen)
        async with self._turn:
            return await self._look_now(screen)

    async def _look_now(self, screen: Screen) -> tuple[bool, float]:
        screen.check()  # rights may have changed while it waited for its turn
        watcher = next(iter(screen.watchers), None)
        if watcher is None:
            return False, 0.0
        screen.begun += 1
        screen.asked = False
        self.looks += 1
        look, began = screen.begun, time.monotonic()
        content = await watcher.look()
        screen.check()  # rights may have changed during the look
        return screen.update(content, look), time.monotonic() - began


async def _rest(screen: Screen, moved: Hashable, least: float, most: float) -> None:
    """Wait `least` seconds, and then until a known change, a new watcher, or `most` seconds in all. It does not query
    the database."""
    now = time.monotonic()
    soonest, latest = now + least, now + most
    while screen.watchers and (now := time.monotonic()) < latest:
        if now >= soonest and (screen.asked or screen.moved() != moved):
            return
        await asyncio.sleep(min((soonest if now < soonest else latest) - now, LEAST_SECONDS))
        screen.check()


def _digest(content: bytes) -> bytes:
    return hashlib.blake2b(content, digest_size=16).digest()


def _stopping() -> ShuttingDown:
    return ShuttingDown("The service is stopping. Connect again.")
