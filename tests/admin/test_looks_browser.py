"""How pages are laid out in a real browser, on a phone and on a wall of screens: what axe does not look for."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Literal

import pytest
from playwright.async_api import BrowserContext, Locator

from tests.admin.browser import PHONE, WALL, Tab, tab
from tests.api.dialect import Topic
from tests.api.keyring import client
from tests.conftest import Running

TARGETS = "button, select, summary, nav a, .brand, .crumb, .spans a, [type=range], td input"
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
async def one(boss: BrowserContext, small: Running) -> AsyncIterator[Tab]:
    async with tab(boss, small.url) as opened:
        yield opened


async def boxes(what: Locator) -> list[dict[str, float]]:
    """Where each of these stands, of those that are shown."""
    found: list[dict[str, float]] = await what.evaluate_all(
        "(all) => all.filter((one) => one.checkVisibility()).map((one) => one.getBoundingClientRect().toJSON())"
    )
    assert found
    return found


async def sized(one: Tab, width: int, path: str) -> None:
    await one.page.set_viewport_size({"width": width, "height": 900})
    await one.open(path)


async def test_a_phone_shows_the_ways_to_all_pages(one: Tab) -> None:
    await sized(one, PHONE, "/admin/audit")
    assert all(box["left"] >= 0 and box["right"] <= PHONE for box in await boxes(one.page.locator("nav a")))


@pytest.mark.parametrize("page", ["topics/orders", "topics/orders/dead/jobs", "topics/orders/asof", "audit"])
async def test_a_finger_hits_what_it_is_meant_to(one: Tab, page: str) -> None:
    await sized(one, PHONE, f"/admin/{page}")
    assert min(box["height"] for box in await boxes(one.page.locator(TARGETS))) >= 24


async def test_a_wall_spreads_what_is_dense_and_nothing_else(one: Tab) -> None:
    wide = WALL * 2 / 3
    for path, is_dense in (("users", False), ("keys", False), ("reapers", False), ("topics", True), ("audit", True)):
        await sized(one, WALL, f"/admin/{path}")
        shown = one.page.locator("table.rows, .empty")
        assert all((box["width"] > wide) is is_dense for box in await boxes(shown)), path


async def test_a_state_stands_beside_the_name_it_is_of(one: Tab) -> None:
    await sized(one, PHONE, "/admin/topics/mail.outbound")
    [title], [state] = await boxes(one.page.locator("h1")), await boxes(one.page.locator(".head .badge"))
    assert title["top"] <= state["top"] < title["bottom"]


async def test_words_of_the_trail_are_whole(one: Tab, small: Running) -> None:
    async with client(small, "root") as http:
        await Topic(http, "-".join(["subject"] * 15)).put()
    await sized(one, 1280, "/admin/audit")
    lines = "(all) => all.map((one) => one.getClientRects().length)"
    assert set(await one.page.locator("[data-label=What] a, tbody time").evaluate_all(lines)) == {1}


async def test_a_seq_is_whole(one: Tab, small: Running) -> None:
    async with client(small, "root") as http:
        numbered = Topic(http, "many.46")
        await numbered.append(*({"data": n, "key": f"k{n}", "tenant": "acme"} for n in range(1000)))
    await sized(one, 1280, "/admin/topics/many.46/jobs")
    lines = "(all) => all.map((one) => one.getClientRects().length)"
    assert set(await one.page.locator("tbody [data-row]").evaluate_all(lines)) == {1}


async def test_a_value_with_no_neighbours_is_seen_in_its_curve(one: Tab) -> None:
    await sized(one, 1280, "/admin/topics/orders")
    waits = one.page.locator(".chart", has_text="Wait until a claim").locator("canvas")
    assert await waits.evaluate(PAINTED, "--blocked") > 0  # of p99, which is drawn last


@pytest.mark.parametrize("theme", ["light", "dark"])
async def test_what_a_queue_holds_and_its_claims_have_curves(one: Tab, theme: Literal["light", "dark"]) -> None:
    await one.page.emulate_media(color_scheme=theme)
    await sized(one, 1280, "/admin/topics/orders")
    for title, tone in (("Depth", "--blocked"), ("Jobs a minute", "--claimed")):
        assert await one.page.locator(".chart", has_text=title).locator("canvas").evaluate(PAINTED, tone) > 0


@pytest.mark.parametrize(("width", "beside"), [(PHONE, 1), (1280, 2), (WALL, 4)])
async def test_curves_fill_their_rows(one: Tab, width: int, beside: int) -> None:
    await sized(one, width, "/admin/topics/orders")
    charts = await boxes(one.page.locator(".chart"))
    assert (len({box["left"] for box in charts}), len({box["top"] for box in charts})) == (beside, 4 // beside)
    tables = await boxes(one.page.locator("main table.rows, .figures"))
    assert {round(box["right"]) for box in tables} == {round(max(box["right"] for box in charts))}
