"""What moves on open pages, in a real browser: by a stream, for as long as somebody looks; without one, by a tick."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager

import httpx
import pytest
from playwright.async_api import Browser, BrowserContext, Page, Request, Route, expect

from app.errors import Unavailable
from app.pages import screens
from app.pages.screens import Screens
from tests.admin.browser import PHONE, Tab, tab, visitor
from tests.api.dialect import Topic
from tests.api.keyring import client
from tests.conftest import Running
from tests.queue.calls import until

# As a browser says it of a tab that goes behind another, and comes back.
HIDDEN = """(hidden) => {
    Object.defineProperty(document, "hidden", { configurable: true, value: hidden });
    document.dispatchEvent(new Event("visibilitychange"));
}"""


@pytest.fixture(scope="module", autouse=True)
def _soon() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(screens, "LEAST_SECONDS", 0.1)
        yield


@pytest.fixture(scope="module")
async def nobody(browser: Browser) -> AsyncIterator[BrowserContext]:
    async with visitor(browser, proxied=False) as context:
        yield context


@pytest.fixture
async def http(empty: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with client(empty) as made:
        yield made


@asynccontextmanager
async def without_ticks(context: BrowserContext, service: Running, path: str) -> AsyncIterator[Tab]:
    """A page that must not have fetched anything by itself at the end, but its stream."""
    ticks = []

    def asked(request: Request) -> None:
        if "hx-target" in request.headers:
            ticks.append(request.url)

    async with tab(context, service.url) as one:
        one.page.on("request", asked)
        await one.open(path)
        await streams(service, 1)
        yield one
        assert ticks == []


async def streams(service: Running, count: int) -> None:
    async def so_many() -> bool:
        return service.context.core(Screens).count() == count

    await until(so_many, f"{count} streams are open")


async def test_a_job_shows_without_a_tick_and_nothing_else_moves(
    nobody: BrowserContext, empty: Running, http: httpx.AsyncClient, topic: str
) -> None:
    queue = Topic(http, topic)
    await queue.put()
    await queue.add(1)
    async with without_ticks(nobody, empty, f"/admin/topics/{topic}") as one:
        ready = one.page.locator(".figures .count").first
        await expect(ready).to_have_text("1")
        await one.page.set_viewport_size({"width": PHONE, "height": 300})
        await one.page.evaluate(
            """() => {
                document.querySelector('#live [aria-current=true]').focus();
                getSelection().selectAllChildren(document.querySelector('#live .reasons'));
                scrollTo(0, 200);
                window.was = document.activeElement;
                window.canvas = document.querySelector('canvas');
            }"""
        )
        await queue.add(2)
        await expect(ready).to_have_text("3")
        assert await one.page.evaluate(
            "[document.activeElement === was, was.isConnected, scrollY, canvas === document.querySelector('canvas')]"
        ) == [True, True, 200, True]
        assert await one.page.evaluate("getSelection().isCollapsed") is False
        await one.keep("live-topic-375-light")
        # Behind a dialog it waits.
        await one.press("?")
        await queue.add(1)
        seen = empty.context.core(Screens).looks

        async def looked_again() -> bool:
            return empty.context.core(Screens).looks > seen + 2

        await until(looked_again, "some more looks")
        await expect(ready).to_have_text("3")
        await one.press("Escape")
        await expect(ready).to_have_text("4")
    await streams(empty, 0)


async def test_rows_hold_still_beneath_the_pointer_until_they_are_asked_for(
    nobody: BrowserContext, empty: Running, http: httpx.AsyncClient, topic: str
) -> None:
    queue = Topic(http, topic)
    await queue.put()
    await queue.add(3)
    async with without_ticks(nobody, empty, f"/admin/topics/{topic}/jobs") as one:
        rows = one.page.locator("[data-row]")
        assert await rows.all_inner_texts() == ["3", "2", "1"]
        await one.page.locator("#row-2").focus()
        claimed = await queue.take()
        await queue.ack("n", [claimed["$seq"]])
        await queue.take()
        await queue.add(2)
        await one.wait_for("2 more, 1 gone")
        assert await rows.all_inner_texts() == ["3", "2", "1"]
        await expect(one.page.locator("tr", has=one.page.locator("#row-2"))).to_contain_text("leased")
        await expect(one.page.locator("tr[data-gone]")).to_have_count(1)
        assert await one.focused() == "2"
        for theme in ("light", "dark"):
            await one.page.emulate_media(color_scheme=theme)
            await one.keep(f"live-jobs-1280-{theme}")
        assert await one.faults() == []
        await one.page.get_by_role("button", name="Show").click()
        await expect(rows).to_have_text(["5", "4", "3", "2"])
        await expect(one.page.locator("[data-news]")).to_be_hidden()


async def test_a_tab_that_nobody_sees_has_no_stream(
    nobody: BrowserContext, empty: Running, http: httpx.AsyncClient, topic: str
) -> None:
    queue = Topic(http, topic)
    await queue.put()
    async with without_ticks(nobody, empty, f"/admin/topics/{topic}") as one:
        await one.page.evaluate(HIDDEN, True)
        await streams(empty, 0)
        await queue.add(7)
        await one.page.evaluate("new Promise((told) => setTimeout(told, 200))")
        assert empty.context.core(Screens).count() == 0  # and stays so
        await one.page.evaluate(HIDDEN, False)
        await streams(empty, 1)
        await expect(one.page.locator(".figures .count").first).to_have_text("7")


async def test_without_a_stream_a_tick_moves_the_page_and_nothing_is_said(
    nobody: BrowserContext, empty: Running, http: httpx.AsyncClient, topic: str
) -> None:
    queue = Topic(http, topic)
    await queue.put()
    async with tab(nobody, empty.url) as one:
        await one.page.clock.install()
        refused = await refuse_streams(one.page)
        await one.open(f"/admin/topics/{topic}")
        await queue.add(5)
        await one.page.clock.run_for(5_000)
        await expect(one.page.locator(".figures .count").first).to_have_text("5")
        assert not await one.page.is_visible("#lost")
        assert refused


async def refuse_streams(page: Page) -> list[str]:
    """As a service does that has too many: which were refused."""
    refused: list[str] = []

    async def answer(route: Route) -> None:
        if "text/event-stream" in route.request.headers.get("accept", ""):
            refused.append(route.request.url)
            await route.fulfill(status=429)
        else:
            await route.continue_()

    await page.route("**/admin/topics/*", answer)
    return refused


async def test_a_stream_that_ends_is_opened_again(
    nobody: BrowserContext, empty: Running, http: httpx.AsyncClient, topic: str
) -> None:
    queue = Topic(http, topic)
    await queue.put()
    async with tab(nobody, empty.url) as one:
        await one.open(f"/admin/topics/{topic}")
        await streams(empty, 1)
        for screen in list(empty.context.core(Screens)._screens.values()):
            await screen.first  # before it, the page would be refused a stream, and the browser say so
            screen.fails(Unavailable("Away."))
        await streams(empty, 0)
        await streams(empty, 1)
        await queue.add(2)
        await expect(one.page.locator(".figures .count").first).to_have_text("2")
        assert not await one.page.is_visible("#lost")
