"""Stored cross-site scripting: markup in everything that a producer, a worker or a caller can write, on every page.

A browser that has signed in follows the links of all pages. Wherever markup is not escaped, its element is in the page.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

import httpx
import pytest
from playwright.async_api import Browser

from app.main import ALL_PAGES
from tests.admin.browser import Tab, signed_in, tab
from tests.admin.conftest import BOSS
from tests.api import minutes
from tests.api.dialect import Body, Topic, accepted
from tests.api.keyring import Services, client
from tests.api.people import add_user
from tests.conftest import Running
from tests.webhooks.receiver import SECRET

if TYPE_CHECKING:
    from tests.api.conftest import Serve

MARKUP: Final = "'\"></script></textarea></title><img data-planted src=/x onerror=planted=1>"
URL: Final = f"http://example.com/{quote(MARKUP, safe='<>=/')}?javascript:planted=1"
EACH: Final = 2  # pages of a kind
PAYLOADS: Final[list[Body]] = [
    {"data": {MARKUP: [MARKUP]}},
    {"data": MARKUP, "content_type": "text/html"},
    {"data": MARKUP},
]
# What a page says by what is asked of it. /find is part of one.
STARTS: Final = [
    "/admin/",
    *(f"/admin/topics/{topic}/{tab}" for topic in ("shop", "failing") for tab in ("jobs", "dead", "config", "asof")),
    *(f"/admin/topics/shop/jobs/{seq}" for seq in range(1, 7)),
    "/admin/topics/failing/jobs/1",
    "/admin/topics/shop/jobs/cancel?tag=" + quote(MARKUP, safe=""),
]
ECHOES: Final = [
    "/admin/topics?q={}",
    "/admin/topics/shop/jobs?filter={}",
    "/admin/topics/shop/jobs?filter=tag:%22{}%22",
    "/admin/topics/shop/dead/jobs?filter={}",
    "/admin/topics/shop/asof?at={}",
    "/admin/topics/{}",
    "/admin/topics/shop/jobs/{}",
    "/admin/schedules?filter={}",
    "/admin/schedules/{}",
    "/admin/audit?filter={}",
    "/admin/find?q={}",
    "/admin/reapers/{}",
    "/admin/{}",
    "/admin/sign-in?back={}",
]


@pytest.fixture(scope="module")
async def planted(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> Running:
    """A service in which everything that can be markup is."""
    service = await (await Services.make(serve, new_database)).start(
        api_keys="root", bcrypt_cost=10, trusted_proxies="127.0.0.0/8", webhook_secret=SECRET
    )
    async with client(service, "root") as http:
        await add_user(http, name=BOSS, is_admin=True)
        await plant(http)
    await minutes.tell(service.context.pools)
    await minutes.look(service.context.pools)
    return service


async def plant(http: httpx.AsyncClient) -> None:
    await Topic(http, "shop.dead").put()
    shop = Topic(http, "shop")
    await shop.put(tenant_weights={MARKUP: 3})  # a change that can be undone
    await shop.put(max_deliveries=2, on_exhausted="dead_letter", dead_letter="shop.dead", tenant_weights={MARKUP: 2})
    labels = {"tag": MARKUP, "tenant": MARKUP, "group": MARKUP, "user_id": MARKUP, "meta": {MARKUP: MARKUP}}
    for number, payload in enumerate(PAYLOADS * 2):
        labels["group"] = f"{number}{MARKUP}"
        await shop.append({**payload, **labels, "key": f"{number}{MARKUP}", "webhook": URL, "node": MARKUP})
    jobs = await shop.claim(MARKUP, max=5, lease_ms=3_600_000)
    held, done, back, *dies = [job["$seq"] for job in jobs["claimed"]]
    await shop.extend(MARKUP, [held], 3_600_000, progress=[{"percent": 40, "note": MARKUP}])
    await shop.ack(MARKUP, [done], results=[{MARKUP: MARKUP}])
    await shop.fail(MARKUP, dies, errors=[MARKUP] * 2)
    await shop.nack(MARKUP, [back], errors=[MARKUP], delay_ms=3_600_000)
    failing = Topic(http, "failing")
    await failing.put(tenant_weights={MARKUP: 3})
    await failing.put(max_deliveries=1, on_exhausted="fail", schema={"type": ["object", "string"], "title": MARKUP})
    await failing.append(PAYLOADS[0], PAYLOADS[2])
    await failing.fail(MARKUP, [(await failing.claim(MARKUP))["claimed"][0]["$seq"]], errors=[MARKUP])
    accepted(await http.post("/v0/keys", json={"name": MARKUP, "scopes": ["read"], "prefixes": ["mail."]}))
    accepted(
        await http.put("/v0/schedules/s", json={"topic": "shop", "cron": "0 0 1 1 *", "record": PAYLOADS[0] | labels})
    )
    for verb, body in (
        ("operations", {"kind": "cancel", "filter": {"key": f"5{MARKUP}"}}),
        ("requeue", {"filter": {"key": f"3{MARKUP}"}}),
    ):
        (await http.post(f"/v0/topics/shop/{verb}", json=body)).raise_for_status()


def kinds() -> Iterator[tuple[str, re.Pattern[str]]]:
    """The pages, and which paths are of each."""
    for page in ALL_PAGES:
        if page.method == "GET":
            yield page.path, re.compile(re.sub(r"\{\w+\}", "[^/]+", f"/admin{page.path}"))


def kind_of(path: str) -> str:
    fits = [kind for kind, pattern in kinds() if pattern.fullmatch(path)]
    return min(fits, key=lambda kind: kind.count("{"), default="none")


async def faults_of(one: Tab) -> list[str]:
    """Where markup came to be an element, or ran."""
    await one.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
    found = await one.page.evaluate(
        "[...document.querySelectorAll('[data-planted], a[href^=\"javascript:\" i]')].map((one) => one.outerHTML)"
    )
    ran = await one.page.evaluate("window.planted")
    return [f"{one.page.url}: {html}" for html in found] + ([f"{one.page.url}: it ran"] if ran else [])


async def test_no_page_has_an_element_that_somebody_wrote(browser: Browser, planted: Running) -> None:
    async with signed_in(browser, planted, BOSS) as boss, tab(boss, planted.url) as one:
        faults: list[str] = []
        waiting = [*STARTS]
        seen, looks = {*waiting}, Counter[str]()
        marked = 0
        while waiting:
            path = waiting.pop(0)
            await one.open(path)
            faults += await faults_of(one)
            looks[kind_of(urlsplit(path).path)] += 1
            marked += MARKUP in await one.text()
            links = await one.page.evaluate("[...document.querySelectorAll('a[href]')].map((one) => one.href)")
            for link in map(urlsplit, links):
                there = link.path + (f"?{link.query}" if link.query else "")
                kind = kind_of(link.path)
                waits = sum(kind_of(urlsplit(each).path) == kind for each in waiting)
                if f"{link.scheme}://{link.netloc}" == planted.url and there not in seen and looks[kind] + waits < EACH:
                    seen.add(there)
                    waiting.append(there)
        for echo in ECHOES:
            await one.page.goto(planted.url + echo.format(quote(MARKUP, safe="")))
            faults += await faults_of(one)
        assert faults == []
        assert {kind for kind, _ in kinds()} - set(looks) == {"/find"}, "no link leads there"
        assert marked > 5, "the pages show what was planted, as text"
