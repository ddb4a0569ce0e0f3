"""Stored cross-site scripting: markup in everything that a producer, a worker or a caller can write, on every page."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from html import unescape
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlsplit

import httpx
import pytest
from playwright.async_api import Browser, expect

from app.main import ALL_PAGES
from tests.admin.browser import signed_in
from tests.admin.conftest import BOSS
from tests.admin.operator import Page, at_the_pages
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
# Where one of them stands as it was written, it is no text: all that is escaped has other characters for these.
UNESCAPED: Final = ("'\"></script>", "<img data-planted")
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


def links(html: str) -> list[str]:
    return [unescape(link) for link in re.findall(r'<a\b[^>]* href="([^"]*)"', html)]


def faults_of(path: str, html: str) -> list[str]:
    found = [text for text in UNESCAPED if text in html]
    found += [link for link in links(html) if link.lower().startswith("javascript:")]
    return [f"{path}: {one}" for one in found]


async def test_no_page_has_an_element_that_somebody_wrote(planted: Running) -> None:
    """All pages that links lead to, two of a kind, and those that repeat what is in their address."""
    async with at_the_pages(planted, BOSS) as boss:
        faults: list[str] = []
        waiting = [*STARTS]
        seen, looks = {*waiting}, Counter[str]()
        marked = 0
        while waiting:
            path = waiting.pop(0)
            answer = await boss.http.get(path)
            faults += faults_of(path, answer.text)
            looks[kind_of(urlsplit(path).path)] += 1
            marked += MARKUP in Page(answer).text
            for there in links(answer.text):
                kind = kind_of(urlsplit(there).path)
                waits = sum(kind_of(urlsplit(each).path) == kind for each in waiting)
                if there.startswith("/admin/") and there not in seen and looks[kind] + waits < EACH:
                    seen.add(there)
                    waiting.append(there)
        for echo in ECHOES:
            path = echo.format(quote(MARKUP, safe=""))
            faults += faults_of(path, (await boss.http.get(path)).text)
    assert faults == []
    assert {kind for kind, _ in kinds()} - set(looks) == {"/find"}, "no link leads there"
    assert marked > 5, "the pages show what was planted, as text"


async def test_nothing_that_somebody_wrote_runs_in_a_browser(browser: Browser, planted: Running) -> None:
    """Nor comes to be an element by what scripts put into a page."""
    async with signed_in(browser, planted, BOSS) as one:
        for path in ("", "topics", "topics/shop", "topics/shop/jobs", "topics/failing/dead", "topics/shop/jobs/1"):
            await one.open(f"/admin/{path}")
            await one.page.evaluate("document.querySelectorAll('details').forEach((one) => { one.open = true })")
            await expect(one.page.locator("[data-planted], a[href^='javascript:' i]")).to_have_count(0)
            assert not await one.page.evaluate("window.planted")
        await one.says(MARKUP)
