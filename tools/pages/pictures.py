"""Write docs/pictures anew, some admin pages of a service that has had a bad quarter of an hour: make pictures."""

from __future__ import annotations

import asyncio
import math
import random
import sys
from typing import Final, Literal

import httpx
from playwright.async_api import async_playwright

from app.base.db.pool import Pools
from tests.admin.browser import ROOT, Tab, chromium, visitor
from tests.api import minutes
from tests.api.dialect import Topic
from tools.pages.depth import service_of_its_own

FOLDER: Final = ROOT / "docs/pictures"
WIDTH, HEIGHT = 1280, 800
TRACEBACK: Final = (
    'Traceback (most recent call last):\n  File "shop/mail.py", line 41, in send\n    address = customer["address"]\n'
    "KeyError: 'address'"
)
SHOWN: Final[dict[str, tuple[str, str, Literal["light", "dark"]]]] = {  # by file: where, what to click there, theme
    "topic": ("/admin/topics/payments", "", "light"),
    "dead-letters": ("/admin/topics/mail/dead", "KeyError", "light"),
    "job": ("/admin/topics/orders/jobs/3", "", "dark"),
}

# The ledger has partitions of today and the days to come: within MINUTES after midnight, in UTC, what is older than a
# minute was yesterday.
_YESTERDAY: Final = """
DO $$
DECLARE
    day timestamptz := date_trunc('day', now(), 'UTC') - interval '1 day';
BEGIN
    EXECUTE format('CREATE TABLE holdfast.lease_events_%s PARTITION OF holdfast.lease_events
                    FOR VALUES FROM (%L) TO (%L)',
                   to_char(day AT TIME ZONE 'UTC', 'YYYYMMDD'), day, day + interval '1 day');
END $$
"""
# As if a minute had gone by since all that is there.
_LATER: Final = """
WITH jobs AS (
    UPDATE holdfast.jobs SET visible_at = visible_at - interval '1 min', created_at = created_at - interval '1 min',
                             failed_at = failed_at - interval '1 min'
)
UPDATE holdfast.lease_events SET at = at - interval '1 min', began_at = began_at - interval '1 min'
"""
MINUTES: Final = 40


async def pay(http: httpx.AsyncClient, pools: Pools) -> None:
    """Payments as they come and go, minute by minute; for a while there is but one worker, and what comes waits."""
    payments = Topic(http, "payments")
    await Topic(http, "payments.dead").put()
    await payments.put(max_deliveries=2, dead_letter="payments.dead")
    dice = random.Random(7)  # the same picture each time
    await pools.rest.execute(_YESTERDAY)
    for minute in range(MINUTES):
        await pools.rest.execute(_LATER)
        await minutes.looked_before(pools)
        come = 60 + int(25 * math.sin(minute / 5)) + dice.randrange(12)
        tenants = dice.choices(["acme", "globex", "initech"], [5, 3, 1], k=come)
        await payments.append(
            *({"data": {"invoice": minute * 100 + n}, "tenant": one} for n, one in enumerate(tenants))
        )
        for worker in ("till-1",) if 12 <= minute < 20 else ("till-1", "till-2", "till-3"):
            held = [job["$seq"] for job in (await payments.claim(worker, max=40))["claimed"]]
            if held:
                await asyncio.sleep(dice.random() / 20)  # which is the work
                await payments.nack(worker, held[:1], errors=["CardDeclined: the bank did not say why"])
                await payments.ack(worker, held[1 : 10 if minute == MINUTES - 1 else None])
        await minutes.look(pools)
    await payments.append(*({"data": {"invoice": 9000 + n}, "tenant": "acme"} for n in range(14)))
    await payments.append(*({"data": {"invoice": 9100 + n}, "delay_ms": 3_600_000} for n in range(6)))


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
        await pay(http, service.context.pools)
        await live(http)
        await minutes.tell(service.context.pools, MINUTES + 5)
        await minutes.look(service.context.pools)
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
                        await one.go(page.get_by_role("link", name=link).first)
                    await page.screenshot(path=FOLDER / f"admin-{name}.png")
            await browser.close()
    return 0


if __name__ == "__main__":
    sys.exit(asyncio.run(main()))
