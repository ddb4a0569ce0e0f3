"""What open pages show: who shares a look, when there is one, who is told what, and who is not."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator

import pytest

from app.errors import HoldfastError, NotFound, ShuttingDown, Throttled, Unauthorized
from app.pages import screens
from app.pages.screens import MOST_STREAMS, Screen, Screens, Watcher
from tests.engine.machines import Machine
from tests.queue.calls import until


class Page:
    """What is looked at; `error`: what looking raises; `gone`: those who may not see it any more."""

    def __init__(self, all_of: Screens) -> None:
        self.all_of = all_of
        self.text = b"0"
        self.looks = 0
        self.error: Exception | None = None
        self.gone: set[str] = set()
        self.marks = 0
        self.hangs: asyncio.Event | None = None

    async def _look(self) -> bytes:
        self.looks += 1
        if self.hangs is not None:
            await self.hangs.wait()
        if self.error is not None:
            raise self.error
        return self.text

    async def watched_by(self, who: str, key: str = "k") -> Watcher:
        def check() -> None:
            if who in self.gone:
                raise Unauthorized("You are gone.")

        watcher = Watcher(who, self._look, check)
        await self.all_of.open(key, watcher, lambda: self.marks)
        return watcher


@pytest.fixture
async def page(machine: Machine, monkeypatch: pytest.MonkeyPatch) -> AsyncIterator[Page]:
    """One that is looked at often. When its watchers have gone, nobody looks any more."""
    monkeypatch.setattr(screens, "LEAST_SECONDS", 0.005)
    monkeypatch.setattr(screens, "IDLE_SECONDS", 0.02)
    page = Page(Screens(machine.engine))
    yield page
    assert page.all_of.count() == 0
    await idle(page)


async def idle(page: Page) -> None:
    async def nothing_runs() -> bool:
        return not page.all_of._tasks

    await until(nothing_runs, "nobody looks")


async def told(watcher: Watcher) -> bytes:
    """What they are given next."""
    while (found := watcher.next()) is None:
        watcher.more.clear()
        await asyncio.wait_for(watcher.more.wait(), 30)
    return found


async def ended(watcher: Watcher) -> None:
    while watcher.error is None:
        watcher.more.clear()
        await asyncio.wait_for(watcher.more.wait(), 30)


async def test_one_look_is_for_all_and_there_is_none_for_nobody(page: Page) -> None:
    watchers = [await page.watched_by(f"w{n}") for n in range(50)]
    assert page.looks <= 2  # the first one's; the others came before the next
    page.text = b"1"
    for watcher in watchers:
        while await told(watcher) != b"1":
            pass
    assert page.all_of.count() == 50
    for watcher in watchers:
        page.all_of.close(watcher)
        page.all_of.close(watcher)  # once is enough
    await idle(page)
    before = page.looks
    await asyncio.sleep(0.05)
    assert page.looks == before


async def test_only_what_has_changed_is_told_and_never_what_is_older_than_ones_page(page: Page) -> None:
    first = await page.watched_by("a")
    assert await told(first) == b"0"
    looks = page.looks

    async def looked_again() -> bool:
        return page.looks > looks + 2

    await until(looked_again, "some more looks")
    assert first.next() is None
    page.text = b"1"
    late = await page.watched_by("b")
    assert late.next() is None  # what is known is from before they came
    assert await told(late) == await told(first) == b"1"
    for text in (b"2", b"3"):
        page.text = text
        assert await told(first) == text
    assert late.next() == b"3", "the latest, not what came before it"
    page.all_of.close(first)
    page.all_of.close(late)


async def test_what_is_known_to_have_moved_is_looked_at_before_its_time(
    page: Page, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(screens, "IDLE_SECONDS", 1000.0)
    watcher = await page.watched_by("a")
    assert await told(watcher) == b"0"
    looks = 0

    async def rests() -> bool:  # longer and longer
        nonlocal looks
        before, looks = looks, page.looks
        await asyncio.sleep(0.1)
        return page.looks == before == looks

    await until(rests, "nothing moves")
    page.text, page.marks = b"1", 1
    assert await told(watcher) == b"1"
    page.all_of.close(watcher)


async def test_ages_are_no_news() -> None:
    screen = Screen(lambda: 0)
    assert screen.update(b'<p>1 <span class="age">1 s</span></p>', 1)
    before = screen.digest
    assert not screen.update(b'<p>1 <span class="age">2 s</span></p>', 2)
    assert screen.digest != before  # and told all the same
    assert screen.update(b'<p>2 <span class="age">2 s</span></p>', 3)


async def test_a_session_has_so_many_and_gives_back(page: Page) -> None:
    mine = [await page.watched_by("a", f"k{n}") for n in range(MOST_STREAMS)]
    with pytest.raises(Throttled) as refused:
        await page.watched_by("a")
    assert refused.value.detail == {"limit": "page_streams", "max": MOST_STREAMS}
    other = await page.watched_by("b")
    page.all_of.close(mine.pop())
    mine.append(await page.watched_by("a"))
    for watcher in (other, *mine):
        page.all_of.close(watcher)


async def test_who_may_see_it_no_more_is_sent_away_and_the_others_stay(page: Page) -> None:
    gone, stays = await page.watched_by("a"), await page.watched_by("b")
    page.gone.add("a")
    page.text = b"1"
    assert await told(stays) == b"1"
    await ended(gone)
    assert isinstance(gone.error, Unauthorized)
    assert stays.error is None
    page.all_of.close(gone)
    page.all_of.close(stays)


@pytest.mark.parametrize(
    ("error", "status"), [(NotFound("It is gone."), 404), (OSError("away"), 503), (ValueError("a fault"), 500)]
)
async def test_a_page_that_fails_ends_for_all_and_can_be_opened_again(
    page: Page, error: Exception, status: int
) -> None:
    watcher = await page.watched_by("a")
    page.error = error
    await ended(watcher)
    page.all_of.close(watcher)
    await idle(page)
    with pytest.raises(HoldfastError) as raised:
        await page.watched_by("a")
    assert raised.value.status == status
    assert page.all_of.count() == 0
    page.error = None
    again = await page.watched_by("a")
    assert await told(again) == b"0"
    page.all_of.close(again)


async def test_a_stop_ends_all_at_once_also_those_whose_look_hangs(page: Page) -> None:
    watcher = await page.watched_by("b")
    page.hangs = asyncio.Event()
    coming = asyncio.create_task(page.watched_by("a", "hangs"))
    await asyncio.sleep(0)
    page.all_of.stop()
    assert isinstance(watcher.error, ShuttingDown)
    with pytest.raises(ShuttingDown):
        await coming
    with pytest.raises(ShuttingDown):
        await page.watched_by("c", "another")
    page.all_of.close(watcher)
    await asyncio.wait_for(page.all_of.drain(), 30)
