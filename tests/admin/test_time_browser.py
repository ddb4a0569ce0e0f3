"""The slider over time in a real browser: what a topic held at an instant, beside what it holds now."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from datetime import UTC, datetime

import pytest
from axe_playwright_python.async_playwright import Axe
from markupsafe import escape
from playwright.async_api import Browser, BrowserContext

from tests.admin.browser import PATIENCE_MS, Tab, tab, visitor
from tests.api.conftest import Serve
from tests.api.dialect import Topic
from tests.api.keyring import Services, client
from tests.conftest import Running

PAGE = "/admin/topics/orders/asof"


@pytest.fixture(scope="module")
async def service(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> Running:
    return await (await Services.make(serve, new_database)).start()


@pytest.fixture(scope="module")
async def then(service: Running) -> datetime:
    """A whole second at which the topic had five jobs that were ready; now it has one that is leased, and one more that
    has failed."""
    async with client(service) as http:
        orders = Topic(http, "orders")
        await orders.put(max_deliveries=1, on_exhausted="fail")
        await orders.add(5)
        instant = int(time.time()) + 1
        while time.time() < instant + 0.2:
            await asyncio.sleep(0.05)
        seqs = [job["$seq"] for job in (await orders.claim(max=3, lease_ms=3_600_000))["claimed"]]
        await orders.ack("n", seqs[:1])
        await orders.nack("n", seqs[1:2])
        await Topic(http, "events").put(type="log")
    return datetime.fromtimestamp(instant, UTC)


@pytest.fixture
async def one(browser: Browser, service: Running, then: datetime) -> AsyncIterator[Tab]:
    async with visitor(browser, proxied=False) as nobody, tab(nobody, service.url) as opened:
        yield opened


async def told(one: Tab) -> dict[str, list[str]]:
    """The table: by state, what stands in its columns."""
    rows = await one.page.locator(".narrow tbody tr").all()
    cells = [[text.strip() for text in await row.locator("td").all_inner_texts()] for row in rows]
    return {state: rest for state, *rest in cells}


async def test_a_topic_at_an_instant_beside_now(one: Tab, axe: Axe, then: datetime) -> None:
    await one.open("/admin/topics/orders")
    async with one.page.expect_navigation():
        await one.page.get_by_role("link", name="Time").click()
    await one.ready()
    assert "Choose an instant." in await one.text()
    assert await one.looked_at(axe, "time-none") == []
    show = one.page.locator("form", has=one.page.locator("#at")).get_by_role("button")
    await one.page.fill("#at", f"{then:%Y-%m-%dT%H:%M:%S}")  # which may be the first second that the topic was there
    async with one.page.expect_navigation():
        await show.click()
    await one.ready()
    assert f"at={then:%Y-%m-%dT%H}" in one.page.url
    assert await one.looked_at(axe, "time-then") == []
    found = await told(one)
    assert found["Ready"] == ["5", "2", "−3"]
    assert found["In flight"] == ["0", "1", "+1"]
    assert found["Failed"] == ["0", "1", "+1"]
    assert found["Scheduled"] == ["0", "0", "same"]
    assert found["Dead letters"] == ["0", "–", "–"]
    assert await one.page.get_attribute("h2 time", "datetime") == f"{then:%Y-%m-%dT%H:%M:%S}.000Z"
    there = await one.page.locator(".narrow").get_by_role("link", name="Ready").get_attribute("href")
    assert there is not None
    await one.open(there)
    assert await one.looked_at(axe, "time-jobs") == []
    rows = one.page.locator("#then ~ table tbody tr")
    assert [await row.locator("td").first.inner_text() for row in await rows.all()] == ["1", "2", "3", "4", "5"]
    assert await one.page.locator("#then ~ .pager").count() == 0, "there are no more"
    assert await rows.first.get_by_role("link").get_attribute("href") == "/admin/topics/orders/jobs/1"


async def test_the_slider_goes_where_it_was_let_go_and_keeps_the_focus(one: Tab) -> None:
    await one.open(PAGE)
    slider = one.page.locator("#slider")
    await slider.focus()
    await slider.dispatch_event("input")
    assert await one.page.inner_text("output")  # where it is while it moves
    async with one.page.expect_navigation():
        await one.press("Home")
    await one.ready()
    assert re.search(r"\?at=\d{13}$", one.page.url)
    assert await told(one)
    assert await one.page.evaluate("document.activeElement.id") == "slider"
    async with one.page.expect_navigation():
        await one.press("ArrowRight")
    assert await told(one)


async def test_it_is_a_form_without_scripts(browser: Browser, service: Running, then: datetime) -> None:
    context: BrowserContext = await browser.new_context(java_script_enabled=False)
    try:
        page = await context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        await page.goto(service.url + PAGE)
        await page.locator("#slider").press("ArrowLeft")
        await page.locator("form", has=page.locator("#slider")).get_by_role("button").click()
        await page.wait_for_url(re.compile(r"\?at=\d{13}$"))
        await page.locator(".narrow").wait_for()
    finally:
        await context.close()


@pytest.mark.parametrize(
    ("at", "status", "words"),
    [
        ("2001-01-01T00:00:00Z", 404, "Nothing is kept of what happened so long ago."),
        ("2999-01-01T00:00:00", 400, "This is still to come."),
        ("yesterday", 400, "This is no time"),
        ("<script>document.title='hacked'</script>", 400, "This is no time"),
        ("9" * 15, 400, "This is"),
    ],
)
async def test_what_there_is_nothing_of_is_said_beside_the_field(
    service: Running, then: datetime, at: str, status: int, words: str
) -> None:
    async with client(service) as http:
        answer = await http.get(PAGE, params={"at": at})
    assert answer.status_code == status
    assert f'id="at-fault" role="alert">{words}' in answer.text
    assert f'name="at" value="{escape(at)}"' in answer.text
    assert 'id="slider"' in answer.text
    assert "<script>document" not in answer.text


async def test_what_takes_too_long_to_read_is_said_beside_the_field(
    service: Running, then: datetime, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.features.explain.store.SECONDS", 0.2)
    async with client(service) as http, service.context.pools.rest.acquire() as db, db.transaction():
        await db.execute("LOCK TABLE holdfast.lease_events")  # nobody else can read it meanwhile
        answer = await http.get(PAGE, params={"at": then.isoformat()})
    assert answer.status_code == 422
    assert 'id="at-fault" role="alert">So much has happened in that time' in answer.text


@pytest.mark.parametrize(("topic", "status"), [("events", 409), ("nothing", 404)])
async def test_only_a_queue_has_a_past(service: Running, then: datetime, topic: str, status: int) -> None:
    async with client(service) as http:
        assert (await http.get(f"/admin/topics/{topic}/asof")).status_code == status
