"""The admin pages in a real browser: how they look and read, signing in, keys, what moves, what is confirmed."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from datetime import datetime

import httpx
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext, expect

from tests.admin.browser import PATIENCE_MS, Hand, Tab, tab, visitor
from tests.admin.conftest import BOSS, READER
from tests.api.conftest import Serve
from tests.api.dialect import Topic
from tests.api.keyring import Services, client
from tests.api.people import PASSWORD, add_user
from tests.conftest import Running

OF_NOTHING = {"home": "/admin/", "topics": "/admin/topics", "horizon": "/admin/horizon", "missing": "/admin/nothing"}
OF_LITTLE = {
    **OF_NOTHING,
    "topics": "/admin/topics?q=d",  # axe takes seconds for fifty rows
    "topic": "/admin/topics/orders",
    "paused": "/admin/topics/mail.outbound",
    "log": "/admin/topics/events",
    "no-match": "/admin/topics?q=zzz",
}


TICK = "document.body.dispatchEvent(new Event('tick'))"  # the page's own comes every 5 s


async def sign_in(one: Tab, name: str, secret: str = PASSWORD) -> None:
    """By the form that stands there."""
    await one.page.fill("#name", name)
    await one.page.fill("#secret", secret)
    async with one.page.expect_navigation():
        await one.page.click("main button")
    await one.ready()


async def test_each_page_of_an_empty_service(browser: Browser, axe: Axe, empty: Running) -> None:
    async with visitor(browser, proxied=False) as nobody, tab(nobody, empty.url) as one:
        faults, texts = [], {}
        for name, path in OF_NOTHING.items():
            await one.open(path)
            faults += await one.looked_at(axe, f"empty-{name}")
            texts[name] = await one.text()
        assert faults == []
        assert "Nothing is here yet." in texts["home"]
        assert "There are no topics yet." in texts["topics"]


async def test_each_page_of_a_small_service(boss: BrowserContext, axe: Axe, small: Running) -> None:
    async with tab(boss, small.url) as one:
        faults = []
        for name, path in OF_LITTLE.items():
            await one.open(path)
            faults += await one.looked_at(axe, f"small-{name}")
        assert faults == []
        for theme in ("light", "dark"):
            await one.page.emulate_media(color_scheme=theme)
            ground = await one.page.evaluate("getComputedStyle(document.body).backgroundColor")
            assert (sum(map(int, re.findall(r"\d+", ground)[:3])) < 200) is (theme == "dark")


async def test_a_wrong_password_a_right_one_and_out_again(guest: BrowserContext, axe: Axe, small: Running) -> None:
    async with tab(guest, small.url) as one:
        await one.open("/admin/topics/orders")
        assert await one.looked_at(axe, "small-sign-in") == []
        await sign_in(one, BOSS, "another password entirely")
        await one.wait_for("Name and password don't match.")
        assert await one.page.input_value("#name") == BOSS
        await sign_in(one, BOSS)
        assert one.page.url == f"{small.url}/admin/topics/orders"
        cookies = await one.page.context.cookies()
        assert [(cookie.get("httpOnly"), cookie.get("sameSite")) for cookie in cookies] == [(True, "Lax")]
        assert await one.page.evaluate("document.cookie") == ""
        async with one.page.expect_navigation():
            await one.page.get_by_role("button", name="Sign out").click()
        await one.open("/admin/topics/orders")
        await one.wait_for("Sign in")


async def test_who_reads_some_topics_sees_those_and_changes_none(guest: BrowserContext, small: Running) -> None:
    async with tab(guest, small.url) as one:
        await one.open("/admin/topics")
        await sign_in(one, READER)
        assert await one.page.locator("[data-row]").all_inner_texts() == ["mail.outbound"]
        await one.open("/admin/")
        await one.wait_for("All is well.")
        assert "orders" not in await one.text()
        await one.open("/admin/topics/mail.outbound")
        assert await one.page.get_by_role("button", name="Resume").count() == 0
        await one.open("/admin/topics/orders")
        assert "Nothing that is granted to this user allows this in this topic." in await one.text()
        # By hand what no button offers.
        proof = await one.page.input_value("[name=proof] >> nth=0")
        answer = await one.page.request.post(
            f"{small.url}/admin/topics/mail.outbound/resume", form={"proof": proof}, headers={"origin": small.url}
        )
        assert answer.status == 403


async def test_home_says_what_hurts_and_why_and_leads_there(boss: BrowserContext, small: Running) -> None:
    async with tab(boss, small.url) as one:
        await one.open("/admin/")
        await one.wait_for("2 jobs became dead letters within 10 min, 50 % of those that ended.")
        assert await one.page.inner_text("h1") == "1 of 64 topics needs a look"  # of the other that is meant
        assert await one.page.locator(".troubles [data-row]").all_inner_texts() == ["orders", "mail.outbound"]
        await one.wait_for("Mostly:")
        async with one.page.expect_navigation():
            await one.page.get_by_role("link", name="orders").click()
        assert one.page.url == f"{small.url}/admin/topics/orders"
        await one.page.locator(".chart canvas").first.wait_for()


async def test_task_why_orders_are_late(boss: BrowserContext, small: Running) -> None:
    """Workers are slow, and somebody has paused a tenant."""
    async with client(small, "root") as http:
        late = Topic(http, "many.50")
        await late.append({"data": 1, "tenant": "acme"}, {"data": 2})
        await late.take()
        (await http.post(f"{late.path}/pause", json={"tenant": "acme"})).raise_for_status()
    async with tab(boss, small.url) as one:
        hand = Hand(one)
        await one.open("/admin/")
        await hand.clicks(one.page.get_by_role("button", name="Go to"))
        await one.page.keyboard.type("y.50")
        await hand.goes(one.page.locator("#found a", has_text="many.50"))
        reasons = one.page.locator(".reasons")
        await expect(reasons).to_contain_text("Paused tenants: acme.")
        await expect(reasons).to_contain_text("Claims take")
        await one.wait_for("1 tenant paused")
        assert hand.was_quick()


async def test_a_pause_is_confirmed_and_in_the_audit_trail(boss: BrowserContext, small: Running) -> None:
    async with client(small, "root") as http, tab(boss, small.url) as one:
        await Topic(http, "many.07").add(1)
        await one.open("/admin/topics/many.07")
        await one.page.get_by_role("button", name="Pause").click()
        await one.wait_for("Pause many.07?")
        await one.page.get_by_role("button", name="Keep it as it is").click()
        assert not await paused(http)
        await one.page.get_by_role("button", name="Pause").click()
        await one.page.evaluate("document.querySelector('#live').dataset.former = '1'")
        await one.page.evaluate(TICK)  # one that was under way when the question came
        await one.page.wait_for_selector("#live:not([data-former])")
        async with one.page.expect_navigation():
            await one.page.locator("#confirm [value=yes]").click()
        await one.page.get_by_role("button", name="Resume").wait_for()
        assert await paused(http)
        entry = (await http.get("/v0/admin/audit?subject=many.07&page_size=1")).json()["entries"][0]
        assert (entry["action"], entry["actor_name"]) == ("topic.paused", BOSS)
        # A form that is not of this session, as another site's page would have it.
        await one.page.evaluate("document.querySelectorAll('[name=proof]').forEach((one) => { one.value = 'f'; })")
        await one.page.get_by_role("button", name="Resume").click()
        async with one.page.expect_navigation():
            await one.page.locator("#confirm [value=yes]").click()
        await one.wait_for("This form is not of your session")
        assert await paused(http)


async def paused(http: httpx.AsyncClient) -> bool:
    found = (await http.get("/v0/topics/many.07/explain")).json()
    return "paused" in {reason["code"] for reason in found["reasons"]}


async def test_what_anybody_has_written_is_text(boss: BrowserContext, small: Running) -> None:
    async with tab(boss, small.url) as one:
        await one.open("/admin/topics/orders")
        await one.page.locator("td", has_text="<script>").first.wait_for()
        await one.open("/admin/")
        await one.wait_for("Mostly:")
        assert await one.page.title() == "Home · Holdfast"
        for path in (
            "/admin/topics?q=%3Cscript%3Edocument.title='hacked'%3C/script%3E%22%27%3E",
            "/admin/%3Cscript%3Edocument.title='hacked'%3C/script%3E",
            "/admin/find?q=%3Cscript%3Edocument.title='hacked'%3C/script%3E",
        ):
            await one.page.goto(small.url + path)
            assert "hacked" not in await one.page.title()
            assert await one.page.locator("script:not([src])").count() == 0


async def test_the_keyboard_is_enough(boss: BrowserContext, small: Running) -> None:
    async with tab(boss, small.url) as one:
        await one.open("/admin/")
        await one.press("Control+k")
        await one.page.wait_for_selector("#found a")
        await one.page.keyboard.type("outb")
        await expect(one.page.locator("#found a")).to_have_count(1, timeout=PATIENCE_MS)
        async with one.page.expect_navigation():
            await one.press("Enter")
        assert one.page.url == f"{small.url}/admin/topics/mail.outbound"
        await one.ready()
        async with one.page.expect_navigation():
            await one.press("g", "t")
        await one.ready()
        await one.press("j", "j", "j", "k")
        assert await one.focused() == "events"
        await one.press("?")
        await one.page.get_by_role("heading", name="Keys").wait_for()
        await one.press("Escape", "/")
        await one.page.keyboard.type("orders")
        async with one.page.expect_navigation():
            await one.press("Enter")
        await one.ready()
        await one.press("j")
        async with one.page.expect_navigation():
            await one.press("Enter")
        assert one.page.url == f"{small.url}/admin/topics/orders"


async def test_what_moves_comes_by_itself_and_focus_stays(boss: BrowserContext, small: Running) -> None:
    async with client(small, "root") as http, tab(boss, small.url) as one:
        await one.open("/admin/topics/many.03")
        await one.page.evaluate("window.stays = true")
        pause = one.page.get_by_role("button", name="Pause")
        await pause.focus()
        await Topic(http, "many.03").add(3)
        await expect(one.page.locator(".figures .count").first).to_have_text("3", timeout=PATIENCE_MS)
        assert await one.page.evaluate("window.stays")
        assert await one.focused() == "Pause"


async def test_a_theme_is_chosen_and_kept(guest: BrowserContext, small: Running) -> None:
    async with tab(guest, small.url) as one:
        await one.open("/admin/topics")
        switch = one.page.get_by_role("button", name="Theme")
        await switch.click()
        await switch.click()
        await one.open("/admin/topics")
        assert await switch.inner_text() == "Theme: dark"
        assert await one.page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"


async def test_times_are_the_viewers_and_the_servers_beside_the_pointer(boss: BrowserContext, small: Running) -> None:
    async with tab(boss, small.url) as one:
        await one.open("/admin/topics/events")
        shown = one.page.locator("time").first
        told = datetime.fromisoformat(str(await shown.get_attribute("datetime")).replace("Z", "+00:00"))
        assert await shown.get_attribute("title") == f"{told:%Y-%m-%d %H:%M:%S} UTC"
        assert f"{(told.hour + 9) % 24:02}:{told:%M:%S}" in await shown.inner_text()  # Tokyo's


async def test_a_list_has_pages_and_orders_by_its_address(boss: BrowserContext, small: Running) -> None:
    async with tab(boss, small.url) as one:
        await one.open("/admin/topics?q=many")
        assert await one.page.locator("[data-row]").count() == 50
        async with one.page.expect_navigation():
            await one.page.get_by_role("link", name="Next").click()
        assert "q=many" in one.page.url
        assert (await one.page.locator("[data-row]").all_inner_texts())[0] == "many.50"
        await one.open("/admin/topics")
        async with one.page.expect_navigation():
            await one.page.get_by_role("link", name="Failed", exact=True).click()
        assert one.page.url.endswith("?sort=dead")
        await one.keep("small-topics-1280-light")
        assert (await one.page.locator("[data-row]").all_inner_texts())[0] == "orders"


async def test_a_session_that_ends_leads_to_the_form_and_back(guest: BrowserContext, small: Running) -> None:
    async with client(small, "root") as http, tab(guest, small.url) as one:
        made = await add_user(http, "read")
        await one.open("/admin/topics/orders?over=6h")
        await sign_in(one, made["username"])
        await http.delete(f"/api/users/{made['id']}")
        await one.page.evaluate(TICK)
        await one.page.get_by_role("heading", name="Sign in").wait_for()
        assert await one.page.input_value("[name=back]") == "/admin/topics/orders?over=6h"


async def test_a_service_that_is_gone_leaves_what_was_and_says_so(
    browser: Browser, serve: Serve, new_database: Callable[[], Awaitable[str]]
) -> None:
    service = await (await Services.make(serve, new_database)).start()
    async with visitor(browser, proxied=False) as nobody, tab(nobody, service.url) as one:
        # Before the page is opened: one that is there may still send by what it had before.
        await one.page.route("**/admin/find*", lambda route: route.abort())
        await one.open("/admin/")
        async with one.page.expect_event("requestfailed"):
            await one.press("Control+k")
        await one.press("Escape")
        assert not await one.page.is_visible("#lost")  # of the page itself nothing is known to be old
        await service.stop()
        await one.page.evaluate(TICK)
        await one.wait_for("Not live since")
        assert "Nothing is here yet." in await one.text()
        one.complaints.clear()  # of the browser, which could not connect
