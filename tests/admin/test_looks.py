"""Every page in a browser, in both themes, on a phone and on a wall of screens: what axe finds, how it is laid out."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator
from typing import Literal

import httpx
import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Locator, expect

from tests.admin.browser import PATIENCE_MS, PHONE, WALL, Tab, signed_in, tab, visitor
from tests.admin.conftest import BOSS, HOSTILE
from tests.api import minutes
from tests.api.dialect import Topic, accepted
from tests.api.keyring import make
from tests.api.people import PASSWORD
from tests.conftest import Running

pytestmark = pytest.mark.slow

OF_NOTHING = ["", "topics", "horizon", "nothing", "schedules", "keys", "users", "audit", "reapers", "webhooks"]
OF_LITTLE = [
    *("", "topics?q=d", "topics?q=zzz", "nothing", "horizon", "webhooks", "reapers", "reapers/expiry"),
    *("topics/orders", "topics/mail.outbound", "topics/events", "topics/looks"),
    *(f"topics/looks/{page}" for page in ("jobs", "jobs?q=worker%3Aw1", "jobs/1", "jobs/2", "jobs/5", "jobs/99")),
    *("topics/events/config", "topics/looks/config", "topics/looks/config?before=1", "topics/orders/jobs"),
    *(f"topics/orders/dead{page}" for page in ("", "/jobs", "/purge", "/requeue")),
    *("topics/looks/jobs/cancel?q=priority%3A9", "topics/looks/asof", "topics/looks/asof?at=now"),
    *("schedules?q=looks", "schedules/looks", "schedules/looks/edit", "schedules-new"),
    *("keys/new", "users", "users/new", "audit?subject=looks"),
]
TARGETS = "button, select, summary, nav a, .brand, .crumb, .spans a, [type=range], td input"
LINES = "(all) => all.map((one) => one.getClientRects().length)"
# The pixels of a canvas that have the colour of a custom property, or nearly.
PAINTED = """(canvas, name) => {
    const probe = canvas.parentElement.appendChild(document.createElement("i"));
    probe.style.color = `var(${name})`;
    const wanted = getComputedStyle(probe).color.match(/\\d+/g).map(Number);
    probe.remove();
    const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
    let found = 0;
    for (let at = 0; at < data.length; at += 4)
        if (data[at + 3] > 200 && wanted.every((value, n) => Math.abs(value - data[at + n]) < 25)) found += 1;
    return found;
}"""


@pytest.fixture
async def one(browser: Browser, service: Running) -> AsyncIterator[Tab]:
    async with signed_in(browser, service, BOSS) as opened:
        yield opened


@pytest.fixture(scope="module")
async def little(service: Running) -> None:
    """A queue with jobs in every state, a long trail, and what hostile people write."""
    async with httpx.AsyncClient(base_url=service.url, headers={"authorization": "Bearer root"}) as http:
        looks = Topic(http, "looks")
        await looks.put(lease_ms=2_000, wait_goal_ms=1)
        await looks.put(max_deliveries=1, dead_letter="looks.dead", wait_goal_ms=1)
        hostile = {"key": HOSTILE, "tag": HOSTILE, "tenant": HOSTILE, "group": HOSTILE, "meta": {HOSTILE: HOSTILE}}
        await looks.append({"data": {"say": HOSTILE, "items": [{"a": 0.1}]}, "priority": 9, **hostile})
        await looks.append({"data": "done"}, {"data": "dies"}, {"data": "waits", "delay_ms": 3_600_000})
        await looks.claim("x" * 120, max=3, lease_ms=3_600_000)
        await looks.ack("x" * 120, [2])
        await looks.fail("x" * 120, [3], errors=[HOSTILE])
        await looks.extend("x" * 120, [1], 3_600_000, progress=[{"percent": 40, "note": HOSTILE}])
        await looks.append({"data": 5, "group": HOSTILE, "tenant": HOSTILE}, {"data": 6, "priority": 9})
        schedule = {"topic": "looks", "cron": "0 0 1 1 *", "record": {"data": HOSTILE}}
        accepted(await http.put("/v0/schedules/looks", json=schedule))
        await make(http, HOSTILE, ["read"], payloads="hidden", prefixes=["mail."])
        await Topic(http, "-".join(["looks"] * 15)).put()
    await minutes.tell(service.context.pools)
    await minutes.look(service.context.pools)


@pytest.mark.parametrize("path", OF_NOTHING)
async def test_a_page_of_an_empty_service(browser: Browser, axe: Axe, empty: Running, path: str) -> None:
    async with visitor(browser, proxied=False) as nobody, tab(nobody, empty.url) as one:
        await one.open(f"/admin/{path}")
        assert await one.looked_at(axe, f"empty-{path}") == []


@pytest.mark.parametrize("path", OF_LITTLE)
async def test_a_page_of_a_small_service(one: Tab, axe: Axe, little: None, path: str) -> None:
    await one.open(f"/admin/{path}")
    await one.page.evaluate("document.querySelectorAll('.more-of').forEach((one) => { one.open = true; })")
    assert await one.looked_at(axe, re.sub(r"\W", "-", f"small-{path}")) == []


async def test_pages_that_come_of_a_form(one: Tab, axe: Axe, little: None) -> None:
    faults: list[str] = []
    await one.open("/admin/topics/orders/dead")
    await one.go(one.link("ValueError"))
    faults += await one.looked_at(axe, "small-dead-cluster")
    for field, text in (("max_depth", "many"), ("max_depth", "1000")):
        await one.open("/admin/topics/looks/config")
        await one.fill(f"#set-{field}", text)
        await one.go(one.button("Review changes"))
        faults += await one.looked_at(axe, f"small-config-{text}")
    await one.open("/admin/schedules-new")
    await one.go(one.button("Save"))
    faults += await one.looked_at(axe, "small-schedule-wrong")
    await one.open("/admin/keys/new")
    await one.fill("#name", HOSTILE)
    await one.go(one.button("Create"))
    faults += await one.looked_at(axe, "small-key-fault")
    await one.page.check("[name=scope_read]")
    await one.go(one.button("Create"))
    faults += await one.looked_at(axe, "small-key-secret")
    await one.page.context.clear_cookies()
    await one.open("/admin/topics/orders")
    faults += await one.looked_at(axe, "small-sign-in")
    assert faults == [], "\n".join(faults)


async def boxes(what: Locator) -> list[dict[str, float]]:
    """Where each of these stands, of those that are shown."""
    await expect(what.first).to_be_visible()
    found: list[dict[str, float]] = await what.evaluate_all(
        "(all) => all.filter((one) => one.checkVisibility()).map((one) => one.getBoundingClientRect().toJSON())"
    )
    return found


async def sized(one: Tab, width: int, path: str) -> None:
    await one.page.set_viewport_size({"width": width, "height": 900})
    await one.open(f"/admin/{path}")


async def test_a_phone_shows_the_ways_to_all_pages_and_a_finger_hits_what_it_is_meant_to(
    one: Tab, little: None
) -> None:
    await sized(one, PHONE, "audit")
    assert all(box["left"] >= 0 and box["right"] <= PHONE for box in await boxes(one.page.locator("nav a")))
    for page in ("topics/orders", "topics/orders/dead/jobs", "topics/orders/asof", "audit"):
        await sized(one, PHONE, page)
        assert min(box["height"] for box in await boxes(one.page.locator(TARGETS))) >= 24, page
    await sized(one, PHONE, "topics/mail.outbound")
    [title], [state] = await boxes(one.page.locator("h1")), await boxes(one.page.locator(".head .badge"))
    assert title["top"] <= state["top"] < title["bottom"], "a state stands beside the name it is of"


async def test_a_wall_spreads_what_is_dense_and_nothing_else(one: Tab, little: None) -> None:
    for path, is_dense in (("users", False), ("keys", False), ("reapers", False), ("topics", True), ("audit", True)):
        await sized(one, WALL, path)
        shown = await boxes(one.page.locator("table.rows, .empty"))
        assert all((box["width"] > WALL * 2 / 3) is is_dense for box in shown), path


async def test_words_of_the_trail_and_numbers_of_jobs_are_whole(one: Tab, queue: Topic, little: None) -> None:
    await sized(one, 1280, "audit")
    whole = one.page.locator("[data-label=What] a, tbody time")
    assert set(await whole.evaluate_all(LINES)) == {1}
    await queue.append(*({"data": n, "key": f"k{n}", "tenant": "acme"} for n in range(1000)))
    await sized(one, 1280, f"topics/{queue.name}/jobs")
    assert set(await one.page.locator("tbody [data-row]").evaluate_all(LINES)) == {1}


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_what_a_queue_holds_and_its_claims_have_curves(one: Tab, theme: Literal["light", "dark"]) -> None:
    await one.page.emulate_media(color_scheme=theme)
    await sized(one, 1280, "topics/orders")
    # Of the last, p99 is drawn last, as a value that has no neighbours.
    for title, tone in (("Depth", "--blocked"), ("Jobs per minute", "--claimed"), ("Wait before a claim", "--blocked")):
        assert await one.page.locator(".chart", has_text=title).locator("canvas").evaluate(PAINTED, tone) > 0


@pytest.mark.parametrize(("width", "beside"), [(PHONE, 1), (1280, 2), (WALL, 4)])
async def test_curves_fill_their_rows(one: Tab, width: int, beside: int) -> None:
    await sized(one, width, "topics/orders")
    charts = await boxes(one.page.locator(".chart"))
    assert (len({box["left"] for box in charts}), len({box["top"] for box in charts})) == (beside, 4 // beside)
    tables = await boxes(one.page.locator("main table.rows, .figures"))
    assert {round(box["right"]) for box in tables} == {round(max(box["right"] for box in charts))}


async def test_the_slider_over_time_goes_where_it_was_let_go_and_keeps_the_focus(one: Tab, little: None) -> None:
    await one.open("/admin/topics/looks/asof")
    slider = one.page.locator("#slider")
    await slider.focus()
    await slider.dispatch_event("input")
    await expect(one.page.locator("output")).not_to_be_empty()  # where it is while it moves
    for key in ("Home", "ArrowRight"):
        async with one.page.expect_navigation(url=re.compile(r"\?at=\d{13}$")):
            await one.page.keyboard.press(key)
        await expect(one.page.locator(".narrow")).to_be_visible()
        await expect(slider).to_be_focused()


async def test_the_slider_is_a_form_without_scripts(browser: Browser, service: Running, little: None) -> None:
    async with await browser.new_context(java_script_enabled=False) as context:
        form: dict[str, str | float | bool] = {"name": BOSS, "secret": PASSWORD}
        await context.request.post(f"{service.url}/admin/sign-in", form=form, headers={"origin": service.url})
        page = await context.new_page()
        page.set_default_timeout(PATIENCE_MS)
        await page.goto(f"{service.url}/admin/topics/looks/asof")
        await page.locator("#slider").press("ArrowLeft")
        await page.locator("form", has=page.locator("#slider")).get_by_role("button").click()
        await page.wait_for_url(re.compile(r"\?at=\d{13}$"))
        await page.locator(".narrow").wait_for()
