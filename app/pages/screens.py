"""What open admin pages show: one look for all who see the same, for as long as anybody does. ADR 0057.

A look follows what this process knows to have moved, LEAST_SECONDS after the one before at the soonest. Where it knows
of nothing, another process may: it looks again after LEAST_SECONDS where the last look found news, and later and later,
up to IDLE_SECONDS, where it did not.
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
SHARE: Final = 10  # where two looks take s seconds or more, the next comes no sooner than SHARE * s later
AT_ONCE: Final = 2  # looks, of the pool's connections: what else it is for must find some
MOST_STREAMS: Final = 4  # of one session: a browser has six connections to a host, for all its tabs
_AGES: Final = re.compile(rb'<span class="age">[^<]*</span>')

log = logging.getLogger(__name__)


class Watcher:
    """Somebody who has a page open. `more`: there may be something for them, or it has to end; `error`: why it has to.

    `look` reads what the page shows to them, and to all who see the same; `check` raises HoldfastError once that is not
    for them any more. `who`: their session.
    """

    def __init__(self, who: str, look: Callable[[], Awaitable[bytes]], check: Callable[[], None]) -> None:
        self.who = who
        self.look = look
        self.check = check
        self.more = asyncio.Event()
        self.error: HoldfastError | None = None
        self.screen: Screen | None = None
        self._after = 0  # only what was looked at after they came is newer than the page that they have
        self._has = b""

    def sees(self, screen: Screen) -> None:
        """They look at this from now on."""
        self.screen, self._after = screen, screen.begun

    def next(self) -> bytes | None:
        """What the page shows now, whatever it showed in between; None where they have seen that."""
        screen = self.screen
        if screen is None or screen.ended <= self._after or screen.digest == self._has:
            return None
        self._has = screen.digest
        return screen.content

    def end(self, error: HoldfastError) -> None:
        """It has to end, and this is why."""
        self.error = error
        self.more.set()


class Screen:
    """What one page shows to those who see the same. `moved`: what is known to have moved, equal where nothing did."""

    def __init__(self, moved: Callable[[], Hashable]) -> None:
        self.moved = moved
        self.watchers: set[Watcher] = set()
        self.content = self.digest = b""
        self.begun = self.ended = 0  # looks: how many, and which one `content` is of
        self.asked = False  # somebody came since the last one began
        self.first: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._facts = b""  # the digest without ages, which go on by themselves

    def check(self) -> None:
        """End those for whom it is no more."""
        for watcher in list(self.watchers):
            try:
                watcher.check()
            except HoldfastError as error:
                self.watchers.discard(watcher)
                watcher.end(error)

    def shows(self, content: bytes, look: int) -> bool:
        """It shows what this look has found: whether that is news."""
        self.digest, facts = _digest(content), _digest(_AGES.sub(b"", content))
        self.content, self.ended = content, look
        news, self._facts = facts != self._facts, facts
        for watcher in self.watchers:
            watcher.more.set()
        if not self.first.done():
            self.first.set_result(None)
        return news

    def fails(self, error: HoldfastError) -> None:
        """Nothing can be shown any more: those who watch are told so, and those who have just come."""
        if not self.first.done():
            self.first.set_exception(error)
            self.first.exception()  # seen, also where all who came have left
        for watcher in self.watchers:
            watcher.end(error)


class Screens(Core):
    """Looks at pages for those who have them open, MOST_STREAMS of one session in all processes of the service."""

    def __init__(self, engine: Engine) -> None:
        super().__init__(engine)
        self._most = max(1, MOST_STREAMS // engine.processes)
        self._screens: dict[Hashable, Screen] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._streams: Counter[str] = Counter()
        self._turn = asyncio.Semaphore(AT_ONCE)
        self._stopping = False
        self.looks = 0  # that were begun
        engine.metrics.levels.append(lambda: [(catalogue.PAGE_STREAMS, (), self.count())])

    def count(self) -> int:
        """How many watch."""
        return self._streams.total()

    async def open(self, key: Hashable, watcher: Watcher, moved: Callable[[], Hashable]) -> None:
        """Let somebody watch, until `close`. `key` is the same for those alone who see the same.

        Raises Throttled, ShuttingDown, and what looking raises; then they don't watch.
        """
        if self._stopping:
            raise _stopping()
        if self._streams[watcher.who] >= self._most:
            raise Throttled(
                f"This session has too many pages open that move by streams; {self._most} are the most.",
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
        watcher.sees(screen)
        try:
            await asyncio.shield(screen.first)
        except BaseException:
            self.close(watcher)
            raise

    def close(self, watcher: Watcher) -> None:
        """A watcher has left. A page that nobody watches is not read any more."""
        if watcher.screen is not None:
            watcher.screen.watchers.discard(watcher)
            watcher.screen = None
            self._streams[watcher.who] -= 1
            self._streams += Counter()  # who has none is not kept

    def stop(self) -> None:
        """The service is stopping: all of them have to end."""
        self._stopping = True
        for screen in self._screens.values():
            screen.fails(_stopping())

    async def drain(self) -> None:
        """Stop looking."""
        await end_tasks(*self._tasks)

    async def _run(self, key: Hashable, screen: Screen) -> None:
        pause, before = LEAST_SECONDS, 0.0
        try:
            while screen.watchers and not self._stopping:
                moved = screen.moved()
                news, took = await self._look(screen)
                # One that was held up by something else is not what looks cost.
                least, before = max(LEAST_SECONDS, SHARE * min(took, before)), took
                pause = least if news else max(least, min(2 * pause, IDLE_SECONDS))
                await _rest(screen, moved, least, pause)
        except Exception as error:
            known = error if isinstance(error, HoldfastError) else as_unavailable(error)
            if known is None:
                log.exception("can't look at a page")
                known = HoldfastError("Internal error. The service's log has the details.")
            screen.fails(known)
        finally:
            del self._screens[key]

    async def _look(self, screen: Screen) -> tuple[bool, float]:
        """Whether there is news, and how long that took. The first is somebody's who opens a page: it waits for no
        turn, as the page itself did not."""
        if not screen.begun:
            return await self._look_now(screen)
        async with self._turn:
            return await self._look_now(screen)

    async def _look_now(self, screen: Screen) -> tuple[bool, float]:
        screen.check()  # it may have waited for its turn
        watcher = next(iter(screen.watchers), None)
        if watcher is None:
            return False, 0.0
        screen.begun += 1
        screen.asked = False
        self.looks += 1
        look, began = screen.begun, time.monotonic()
        content = await watcher.look()
        screen.check()  # or it may have been slow
        return screen.shows(content, look), time.monotonic() - began


async def _rest(screen: Screen, moved: Hashable, least: float, most: float) -> None:
    """Wait for `least` seconds, and then until something is known to have moved, or somebody comes, or `most` are
    over. Nothing of this asks the database."""
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
