"""Write docs/pictures anew, some admin pages of a service that has had a bad quarter of an hour: make pictures."""

from __future__ import annotations

import asyncio
import sys
from typing import Final, Literal

import httpx
from playwright.async_api import async_playwright

from tests.admin.browser import ROOT, Hand, Tab, chromium, visitor
from tests.admin.depth import service_of_its_own
from tests.api import minutes
from tests.api.dialect import Topic

FOLDER: Final = ROOT / "docs/pictures"
WIDTH, HEIGHT = 1280, 800
TRACEBACK: Final = (
    'Traceback (most recent call last):\n  File "shop/mail.py", line 41, in send\n    address = customer["address"]\n'
    "KeyError: 'address'"
)
SHOWN: Final[dict[str, tuple[str, str, Literal["light", "dark"]]]] = {  # by file: where, what to click there, theme
    "home": ("/admin/", "", "light"),
    "dead-letters": ("/admin/topics/mail/dead", "KeyError", "light"),
    "job": ("/admin/topics/orders/jobs/3", "", "dark"),
}


async def live(http: httpx.AsyncClient) -> None:
    """Orders of which some are slow, mail that fails, and pictures that nobody makes."""
    orders, mail, thumbnails = (Topic(http, name) for name in ("orders", "mail", "thumbnails"))
    await Topic(http, "mail.dead").put()
    await orders.put(max_deliveries=5)
    await mail.put(max_deliveries=1, dead_letter="mail.dead", replayable=True)
    await thumbnails.put()
    await orders.append(
        *({"data": {"order": 4711 + n, "total": 12.5 * n, "items": [{"sku": "a-7", "count": n}]}} for n in range(60)),
        *({"data": {"order": 4800 + n}, "delay_ms": 3_600_000} for n in range(8)),
    )
    held = [job["$seq"] for job in (await orders.claim("worker-2", max=30))["claimed"]]
    await orders.nack("worker-2", held[2:3], errors=["Timeout: the till did not answer"], delay_ms=600_000)
    await orders.ack("worker-2", [seq for seq in held[:20] if seq != held[2]])
    await mail.append(*({"data": {"to": f"customer {n}", "address": f"{n}@example.com"}} for n in range(40)))
    await mail.ack("mailer-1", [job["$seq"] for job in (await mail.claim("mailer-1", max=40))["claimed"]])
    await mail.append(*({"data": {"to": f"customer {n}"}} for n in range(12)))
    lost = [job["$seq"] for job in (await mail.claim("mailer-1", max=12))["claimed"]]
    await mail.nack("mailer-1", lost, errors=[TRACEBACK] * len(lost))
    await thumbnails.append(*({"data": {"file": f"{n}.jpg"}} for n in range(25)))


async def main() -> int:
    """The exit code."""
    FOLDER.mkdir(exist_ok=True)
    async with service_of_its_own() as (service, _), httpx.AsyncClient(base_url=service.url, timeout=60) as http:
        await live(http)
        await minutes.tell(service.context.pools)
        async with async_playwright() as playwright:
            browser = await playwright.chromium.launch(executable_path=chromium())
            async with visitor(browser, proxied=False) as context:
                for name, (path, link, theme) in SHOWN.items():
                    page = await context.new_page()
                    await page.set_viewport_size({"width": WIDTH, "height": HEIGHT})
                    await page.emulate_media(color_scheme=theme)
                    one = Tab(page, service.url)
                    await one.open(path)
                    if link:
                        await Hand(one).goes(page.get_by_role("link", name=link).first)
                    await page.screenshot(path=FOLDER / f"admin-{name}.png")
            await browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
