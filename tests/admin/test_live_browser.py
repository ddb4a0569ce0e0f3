"""What moves on open pages, in a real browser: by a stream, for as long as somebody looks; without one, by a tick."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Iterator
from contextlib import asynccontextmanager

import httpx
import pytest
from playwright.async_api import Browser, BrowserContext, Request, Route, expect

from app.errors import Unavailable
from app.pages import screens
from app.pages.screens import Screens
from tests.admin.browser import PHONE, Tab, tab, visitor
from tests.api.conftest import Serve
from tests.api.dialect import Topic
from tests.api.keyring import Services, client
from tests.conftest import Running
from tests.queue.calls import until

pytestmark = pytest.mark.slow

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
async def alone(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> Running:
    return await (await Services.make(serve, new_database)).start()


@pytest.fixture
async def nobody(browser: Browser) -> AsyncIterator[BrowserContext]:
    async with visitor(browser, proxied=False) as context:
        yield context


@pytest.fixture
async def http(alone: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with client(alone) as made:
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


async def test_a_page_that_nobody_reads_waits(
    nobody: BrowserContext, alone: Running, http: httpx.AsyncClient, topic: str
) -> None:
    queue = Topic(http, topic)
    await queue.put()
    await queue.add(3)
    screens_of = alone.context.core(Screens)
    async with without_ticks(nobody, alone, f"/admin/topics/{topic}") as one:
        ready = one.page.locator(".figures .count").first
        await one.page.set_viewport_size({"width": PHONE, "height": 300})
        await one.page.evaluate("getSelection().selectAllChildren(document.querySelector('#live .reasons'))")
        await one.page.evaluate("scrollTo(0, 200)")
        await one.press("?")  # behind a dialog
        seen = screens_of.looks
        await queue.add(1)

        async def looked_again() -> bool:
            return screens_of.looks > seen + 2

        await until(looked_again, "some more looks")
        await expect(ready).to_have_text("3")
        await one.page.keyboard.press("Escape")
        await expect(ready).to_have_text("4")
        assert await one.page.evaluate("[scrollY, getSelection().isCollapsed]") == [200, False]
        await one.page.evaluate(HIDDEN, True)  # behind another tab it has no stream
        await streams(alone, 0)
        await queue.add(7)
        await one.page.evaluate("new Promise((told) => setTimeout(told, 200))")
        assert screens_of.count() == 0  # and stays so
        await one.page.evaluate(HIDDEN, False)
        await streams(alone, 1)
        await expect(ready).to_have_text("11")


async def test_without_a_stream_a_tick_moves_the_page_until_there_is_one_again(
    nobody: BrowserContext, alone: Running, http: httpx.AsyncClient, topic: str
) -> None:
    queue = Topic(http, topic)
    await queue.put()
    async with tab(nobody, alone.url) as one:
        ready = one.page.locator(".figures .count").first
        await one.page.clock.install()

        async def refuse(route: Route) -> None:
            """As a service does that has too many streams."""
            if "text/event-stream" in route.request.headers.get("accept", ""):
                await route.fulfill(status=429)
            else:
                await route.continue_()

        await one.page.route("**/admin/topics/*", refuse)
        await one.open(f"/admin/topics/{topic}")
        await queue.add(5)
        await one.page.clock.run_for(5_000)
        await expect(ready).to_have_text("5")
        await one.page.unroute("**/admin/topics/*")
        await one.open(f"/admin/topics/{topic}")
        await streams(alone, 1)
        for screen in list(alone.context.core(Screens)._screens.values()):
            await screen.first  # before it, the page would be refused a stream, and the browser say so
            screen.fail(Unavailable("Away."))
        await streams(alone, 0)
        await one.page.clock.run_for(5_000)
        await streams(alone, 1)
        await queue.add(2)
        await expect(ready).to_have_text("7")
        assert not await one.page.is_visible("#lost")
