"""In a real browser: what is hidden from a viewer, a reaper's earlier runs, and what an instance reaches."""

from __future__ import annotations

from collections.abc import AsyncIterator

import httpx
import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext

from app.http.sight import WHY
from tests.admin.browser import Tab, tab, visitor
from tests.api.dialect import Topic, accepted
from tests.api.keyring import client, make
from tests.conftest import Running


@pytest.fixture
async def http(small: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with client(small, "root") as opened:
        yield opened


@pytest.fixture
async def one(boss: BrowserContext, small: Running) -> AsyncIterator[Tab]:
    async with tab(boss, small.url) as opened:
        yield opened


async def test_a_viewer_without_sight_is_told_why(
    browser: Browser, axe: Axe, small: Running, http: httpx.AsyncClient
) -> None:
    topic = Topic(http, "sealed")
    await topic.put()
    (seq,) = (await topic.append({"data": {"card": "4711"}, "meta": {"of": "ada"}}))["seqs"]
    hidden = await make(http, "on call", ["read", "write"], payloads="hidden")
    async with visitor(browser) as guest:
        form = {"name": "", "secret": hidden["secret"]}
        assert (await guest.request.post(f"{small.url}/admin/sign-in", form=form, headers={"origin": small.url})).ok
        async with tab(guest, small.url) as seen:
            await seen.open(f"/admin/topics/sealed/jobs/{seq}")
            text = await seen.text()
            assert WHY in text
            assert "4711" not in await seen.page.content()
            assert await seen.page.locator("#to-data, #command").count() == 0
            assert await seen.looked_at(axe, "small-job-hidden") == []
            await seen.page.click("summary")
            await seen.page.fill("#to-priority", "3")  # what is not seen can be changed
            async with seen.page.expect_navigation():
                await seen.page.get_by_role("button", name="Change", exact=True).click()
    changed = accepted(await http.get(f"/v0/topics/sealed/jobs/{seq}"))
    assert (changed["priority"], changed["data"]) == (3, {"card": "4711"})


async def test_a_key_and_a_grant_that_hide_are_made(one: Tab, axe: Axe, http: httpx.AsyncClient) -> None:
    await one.open("/admin/keys/new")
    await one.page.fill("#name", "sealed")
    await one.page.check("[name=scope_read]")
    await one.page.check("[name=hides_payloads]")
    async with one.page.expect_navigation():
        await one.page.get_by_role("button", name="Make", exact=True).click()
    (made, *_) = accepted(await http.get("/v0/keys"))["keys"]
    assert (made["name"], made["payloads"]) == ("sealed", "hidden")
    await one.open("/admin/keys")
    assert "payloads hidden" in await one.text()


async def test_a_reapers_earlier_runs(one: Tab, axe: Axe, small: Running, http: httpx.AsyncClient) -> None:
    await one.open("/admin/reapers/watches")
    assert "No run has moved anything so far." in await one.text()
    async with small.context.pools.rest.acquire() as db:
        await db.execute(
            """INSERT INTO holdfast.sweep_runs (name, run, started_at, finished_at, moved, error)
               SELECT 'watches', gen_random_uuid(), now() - n * interval '1 h', now() - n * interval '59 min',
                      n * 1000,
                      CASE n WHEN 2 THEN '<b>it broke</b>' END FROM generate_series(1, 3) AS n"""
        )
    await one.open("/admin/reapers")
    await one.page.get_by_role("link", name="watches", exact=True).click()
    await one.page.wait_for_url("**/admin/reapers/watches")
    text = await one.text()
    assert "3,000" in text
    assert "<b>it broke</b>" in text
    assert await one.looked_at(axe, "small-reaper") == []
