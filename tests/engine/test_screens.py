"""What open pages show: who shares a look, when there is one, who is told what, and who is not."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

import pytest

from app.errors import HoldfastError, NotFound, ShuttingDown, Throttled, Unauthorized
from app.pages import screens
from app.pages.screens import MOST_STREAMS, Screen, Screens, Watcher
from tests.engine.machines import Machine
from tests.queue.calls import until


@pytest.fixture(autouse=True)
def _soon(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(screens, "LEAST_SECONDS", 0.005)
    monkeypatch.setattr(screens, "IDLE_SECONDS", 0.02)


class Page:
    """What is looked at; `error`: what looking raises; `gone`: those who may not see it any more."""

    def __init__(self) -> None:
        self.text = b"0"
        self.looks = 0
        self.error: Exception | None = None
        self.gone: set[str] = set()
        self.marks = 0

    async def look(self) -> bytes:
        self.looks += 1
        if self.error is not None:
            raise self.error
        return self.text

    def watcher(self, who: str) -> Watcher:
        def check() -> None:
            if who in self.gone:
                raise Unauthorized("You are gone.")

        return Watcher(who, self.look, check)

    async def watched_by(self, all_of: Screens, who: str, key: str = "k") -> Watcher:
        watcher = self.watcher(who)
        await all_of.open(key, watcher, lambda: self.marks)
        return watcher


async def told(watcher: Watcher) -> bytes:
    """What they are given next."""
    while True:
        found = watcher.next()
        if found is not None:
            return found
        watcher.more.clear()
        await asyncio.wait_for(watcher.more.wait(), 10)


async def test_one_look_is_for_all_and_there_is_none_for_nobody(machine: Machine) -> None:
    page, every = Page(), Screens(machine.engine)
    watchers = [await page.watched_by(every, f"w{n}") for n in range(50)]
    assert page.looks <= 2  # the first one's; the others came before the next
    page.text = b"1"
    for watcher in watchers:
        while await told(watcher) != b"1":
            pass
    assert every.count() == 50
    for watcher in watchers:
        every.close(watcher)
        every.close(watcher)  # once is enough
    await idle(every)
    before = page.looks
    await asyncio.sleep(0.05)
    assert (page.looks, every.count()) == (before, 0)


async def idle(every: Screens) -> None:
    async def nothing_runs() -> bool:
        return not every._tasks

    await until(nothing_runs, "nobody looks")


async def test_only_what_has_changed_is_told_and_never_what_is_older_than_ones_page(machine: Machine) -> None:
    page, every = Page(), Screens(machine.engine)
    first = await page.watched_by(every, "a")
    assert await told(first) == b"0"
    looks = page.looks

    async def looked_again() -> bool:
        return page.looks > looks + 2

    await until(looked_again, "some more looks")
    assert first.next() is None
    page.text = b"1"
    late = await page.watched_by(every, "b")
    assert late.next() is None  # what is known is from before they came
    assert await told(late) == b"1"
    assert await told(first) == b"1"
    # What one has not fetched is not kept for them: the latest is.
    for text in (b"2", b"3"):
        page.text = text
        assert await told(first) == text
    assert late.next() == b"3"
    every.close(first)
    every.close(late)
    await idle(every)


async def test_what_is_known_to_have_moved_is_looked_at_before_its_time(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screens, "IDLE_SECONDS", 1000.0)
    page, every = Page(), Screens(machine.engine)
    watcher = await page.watched_by(every, "a")
    assert await told(watcher) == b"0"
    looks = 0

    async def rests() -> bool:  # longer and longer
        nonlocal looks
        before, looks = looks, page.looks
        await asyncio.sleep(0.1)
        return page.looks == before == looks

    await until(rests, "nothing moves")
    page.text, page.marks = b"1", 1
    assert await asyncio.wait_for(told(watcher), 10) == b"1"
    every.close(watcher)
    await idle(every)


async def test_ages_are_no_news(machine: Machine) -> None:
    screen = Screen(lambda: 0)
    assert screen.shows(b'<p>1 <span class="age">1 s</span></p>', 1)
    before = screen.digest
    assert not screen.shows(b'<p>1 <span class="age">2 s</span></p>', 2)
    assert screen.digest != before  # and told all the same
    assert screen.shows(b'<p>2 <span class="age">2 s</span></p>', 3)


async def test_a_session_has_so_many_and_gives_back(machine: Machine) -> None:
    page, every = Page(), Screens(machine.engine)
    mine = [await page.watched_by(every, "a", f"k{n}") for n in range(MOST_STREAMS)]
    with pytest.raises(Throttled) as refused:
        await page.watched_by(every, "a")
    assert refused.value.detail == {"limit": "page_streams", "max": MOST_STREAMS}
    other = await page.watched_by(every, "b")
    every.close(mine.pop())
    mine.append(await page.watched_by(every, "a"))
    for watcher in (other, *mine):
        every.close(watcher)
    await idle(every)


async def test_who_may_see_it_no_more_is_sent_away_and_the_others_stay(machine: Machine) -> None:
    page, every = Page(), Screens(machine.engine)
    gone, stays = await page.watched_by(every, "a"), await page.watched_by(every, "b")
    page.gone.add("a")
    page.text = b"1"
    assert await told(stays) == b"1"
    await asyncio.wait_for(ended(gone), 10)
    assert isinstance(gone.error, Unauthorized)
    assert stays.error is None
    every.close(gone)
    every.close(stays)
    await idle(every)


async def ended(watcher: Watcher) -> None:
    while watcher.error is None:
        watcher.more.clear()
        await watcher.more.wait()


@pytest.mark.parametrize("error", [NotFound("It is gone."), OSError("away"), ValueError("a fault")])
async def test_a_page_that_fails_ends_for_all_and_can_be_opened_again(machine: Machine, error: Exception) -> None:
    page, every = Page(), Screens(machine.engine)
    watcher = await page.watched_by(every, "a")
    page.error = error
    await asyncio.wait_for(ended(watcher), 10)
    every.close(watcher)
    await idle(every)
    with pytest.raises(HoldfastError) as raised:
        await page.watched_by(every, "a")
    assert raised.value.status == {NotFound: 404, OSError: 503, ValueError: 500}[type(error)]
    assert every.count() == 0
    page.error = None
    again = await page.watched_by(every, "a")
    assert await told(again) == b"0"
    every.close(again)
    await idle(every)


async def test_a_stop_ends_all_at_once_also_those_whose_look_hangs(machine: Machine) -> None:
    hangs, every = asyncio.Event(), Screens(machine.engine)

    async def look() -> bytes:
        await hangs.wait()
        return b""

    check: Callable[[], None] = lambda: None  # noqa: E731
    coming = asyncio.create_task(every.open("h", Watcher("a", look, check), lambda: 0))
    watcher = await Page().watched_by(every, "b")
    every.stop()
    assert isinstance(watcher.error, ShuttingDown)
    with pytest.raises(ShuttingDown):
        await coming
    with pytest.raises(ShuttingDown):
        await Page().watched_by(every, "c", "k2")
    every.close(watcher)
    await asyncio.wait_for(every.drain(), 10)
    assert every.count() == 0
