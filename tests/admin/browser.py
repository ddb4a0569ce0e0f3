"""A Chromium for the tests of pages: where it is, and what a test of a page has of it.

What a page shows comes when it comes: by a navigation, a stream or a tick. So a test waits for what should stand there,
with patience, and reads nothing at once that may be on its way."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final, Literal

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext, ConsoleMessage, Locator, Page, expect

from tests.api.people import PASSWORD
from tests.conftest import Running

ROOT: Final = Path(__file__).parents[2]
SHOTS: Final = ROOT / "var/screens"
PATIENCE_MS: Final = 30_000
PHONE, WALL = 375, 2560
WCAG: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
LOOKS: Final[dict[tuple[int, Literal["light", "dark"]], list[str]]] = {  # and what axe looks for there
    (PHONE, "light"): [],
    (PHONE, "dark"): WCAG,
    (WALL, "dark"): [],
    (WALL, "light"): ["color-contrast"],
}
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
_OF_MACS: Final = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
# Once what is as wide as its place, as curves are, has had two frames to become so.
_OVER: Final = """() => new Promise((told) => {
    const { documentElement: root } = document;
    requestAnimationFrame(() => requestAnimationFrame(() => told(root.scrollWidth - root.clientWidth)));
})"""
# Keys that belong together come in one turn: between two that are pressed by themselves the machine may stand still for
# longer than the page waits for the second one.
_TYPED: Final = """(keys) => {
    for (const key of keys) document.activeElement.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true }));
}"""
expect.set_options(timeout=PATIENCE_MS)
_addresses = itertools.count(1)


def chromium() -> str | None:
    """Where one is: CHROMIUM_PATH, or a program of the machine."""
    named = os.environ.get("CHROMIUM_PATH")
    found = [named] if named else [shutil.which(name) for name in _NAMES] + [_OF_MACS]
    return next((path for path in found if path and Path(path).exists()), None)


class Tab:
    """A page that a test looks at, and what the browser complains of."""

    def __init__(self, page: Page, base: str) -> None:
        self.page = page
        self.main = page.locator("main")
        self.clicks = 0  # with fields that were filled in, which are clicks too
        self._base = base
        self.complaints: list[str] = []
        page.set_default_timeout(PATIENCE_MS)
        page.on("console", self._heard)
        page.on("pageerror", lambda error: self.complaints.append(f"{page.url}: {error}"))

    def _heard(self, message: ConsoleMessage) -> None:
        # That a page was refused is an answer, and the browser says so of each.
        refusal = re.search("responded with a status of 4|Response Status Error Code 4", message.text)
        if message.type in {"error", "warning"} and not refusal:
            self.complaints.append(f"{self.page.url}: {message.text}")

    async def open(self, path: str) -> None:
        """Go there, and wait for the scripts."""
        await self.page.goto(self._base + path)
        await self.page.wait_for_selector("html[data-ready]", state="attached")

    async def at(self, path: str) -> None:
        """Wait until this is the page, with its scripts."""
        await self.page.wait_for_url(self._base + path, wait_until="commit")
        await self.page.wait_for_selector("html[data-ready]", state="attached")

    async def says(self, *texts: str) -> None:
        """Wait until each of these stands on the page."""
        for text in texts:
            await expect(self.main).to_contain_text(text)

    def button(self, name: str) -> Locator:
        return self.main.get_by_role("button", name=name, exact=True)

    def link(self, name: str) -> Locator:
        return self.main.get_by_role("link", name=name).first

    async def click(self, what: Locator) -> None:
        """Click on what leads nowhere."""
        self.clicks += 1
        await what.click()

    async def fill(self, field: str, text: str) -> None:
        self.clicks += 1
        await self.page.fill(field, text)

    async def go(self, where: Locator, *, confirm: bool = False) -> None:
        """Click on what leads to another page; `confirm`: once a dialog has been answered with yes."""
        async with self.page.expect_navigation():
            await self.click(where)
            if confirm:
                await self.page.locator("#confirm[open] [value=yes]").click()
        await self.page.wait_for_selector("html[data-ready]", state="attached")

    async def press(self, keys: str) -> None:
        """Keys without a modifier, in one turn."""
        await self.page.evaluate(_TYPED, keys)

    async def looked_at(self, axe: Axe, name: str) -> list[str]:
        """Its faults at each width and in each theme; how it looks is kept. axe takes half a second a time: it looks
        once at all, and once at the other theme's colours."""
        found = []
        for (width, theme), rules in LOOKS.items():
            await self.page.set_viewport_size({"width": width, "height": 900})
            await self.page.emulate_media(color_scheme=theme)
            found += await self.faults(axe, rules) if rules else await self.faults()
            await self.keep(f"{name}-{width}-{theme}")
        return found

    async def faults(self, axe: Axe | None = None, rules: Sequence[str] = WCAG) -> list[str]:
        """Where it is too wide, and where axe finds it not to be as rules want it."""
        over = await self.page.evaluate(_OVER)
        wide = [f"{self.page.url} is {over} px too wide"] if over > 0 else []
        if axe is None:
            return wide
        options: dict[str, Any] = {"resultTypes": ["violations"], "runOnly": rules}
        found = (await axe.run(self.page, options=options)).response["violations"]
        told = [f"{one['id']}: {node['html'][:160]} {node['failureSummary']}" for one in found for node in one["nodes"]]
        return wide + [f"{self.page.url}: {one}" for one in told]

    async def keep(self, name: str) -> None:
        """Keep how it looks, as an artefact."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        await self.page.screenshot(path=SHOTS / f"{name}.png")


@asynccontextmanager
async def visitor(browser: Browser, *, proxied: bool = True) -> AsyncIterator[BrowserContext]:
    """A viewer in Tokyo with cookies of their own; `proxied`: and with an address of their own, by a proxy's word."""
    context = await browser.new_context(
        extra_http_headers={"x-real-ip": f"10.2.0.{next(_addresses)}"} if proxied else {},  # by which tries are counted
        viewport={"width": 1280, "height": 900},
        color_scheme="light",
        reduced_motion="reduce",  # axe must not see colours that are on their way to others
        timezone_id="Asia/Tokyo",
        locale="en-GB",
    )
    try:
        yield context
    finally:
        await context.close()


@asynccontextmanager
async def signed_in(browser: Browser, service: Running, name: str) -> AsyncIterator[Tab]:
    """A page of a viewer who has signed in as a user."""
    async with visitor(browser) as context:
        answer = await context.request.post(
            f"{service.url}/admin/sign-in",
            form={"name": name, "secret": PASSWORD},
            headers={"origin": service.url},
            max_redirects=0,
        )
        assert answer.status == 303
        async with tab(context, service.url) as one:
            yield one


@asynccontextmanager
async def tab(context: BrowserContext, base: str) -> AsyncIterator[Tab]:
    """A page of a viewer's. It must not have complained at the end."""
    one = Tab(await context.new_page(), base)
    try:
        yield one
        assert one.complaints == [], one.complaints  # said, as pytest looks into no assertion here
    finally:
        await one.page.close()
