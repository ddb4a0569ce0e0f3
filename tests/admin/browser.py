"""A Chromium for the tests of pages: where it is, and what a test of a page has of it."""

from __future__ import annotations

import itertools
import os
import re
import shutil
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, ConsoleMessage, Page

ROOT: Final = Path(__file__).parents[2]
SHOTS: Final = ROOT / "var/screens"
PATIENCE_MS: Final = 25_000
PHONE, WALL = 375, 2560
WCAG: Final = ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa"]
_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "chrome")
_OF_MACS: Final = "/Applications/Google Chrome.app/Contents/MacOS/Google Chrome"
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
        await self.ready()

    async def ready(self) -> None:
        """Wait until the page's scripts have run."""
        await self.page.wait_for_selector("html[data-ready]", state="attached")

    async def text(self) -> str:
        """What stands on the page."""
        return await self.page.inner_text("body")

    async def wait_for(self, text: str) -> None:
        """Wait until this stands there."""
        await self.page.get_by_text(text).first.wait_for()

    async def press(self, *keys: str) -> None:
        """One after the other."""
        for key in keys:
            await self.page.keyboard.press(key)

    async def focused(self) -> str:
        """The text of what has the focus."""
        return str(await self.page.evaluate("document.activeElement.textContent"))

    async def faults(self, axe: Axe | None) -> list[str]:
        """Where it is too wide, and where axe finds it not to be as WCAG 2.2 AA wants it."""
        over = await self.page.evaluate("document.documentElement.scrollWidth - document.documentElement.clientWidth")
        wide = [f"{self.page.url} is {over} px too wide"] if over > 0 else []
        if axe is None:
            return wide
        options: dict[str, Any] = {"resultTypes": ["violations"], "runOnly": WCAG}
        found = (await axe.run(self.page, options=options)).response["violations"]
        told = [f"{one['id']}: {node['html'][:160]} {node['failureSummary']}" for one in found for node in one["nodes"]]
        return wide + [f"{self.page.url}: {one}" for one in told]

    async def keep(self, name: str) -> None:
        """Keep how it looks, as an artefact."""
        SHOTS.mkdir(parents=True, exist_ok=True)
        await self.page.screenshot(path=SHOTS / f"{name}.png")


@asynccontextmanager
async def tab(browser: Browser, base: str, *, width: int = 1280, theme: str = "light") -> AsyncIterator[Tab]:
    """A page with cookies and an address of its own, of a viewer in Tokyo. It must not have complained at the end."""
    context = await browser.new_context(
        extra_http_headers={"x-real-ip": f"10.2.0.{next(_addresses)}"},  # tries to sign in are counted by them
        viewport={"width": width, "height": 900},
        color_scheme="dark" if theme == "dark" else "light",
        timezone_id="Asia/Tokyo",
        locale="en-GB",
    )
    try:
        one = Tab(await context.new_page(), base)
        yield one
        assert one.complaints == []
    finally:
        await context.close()
