"""The ways that operators really go, in a real browser: one test each. test_looks.py has the pages one by one."""

from __future__ import annotations

import asyncio
import re
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from datetime import datetime
from zoneinfo import ZoneInfo

import httpx
import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, Locator, expect

from tests.admin.browser import Tab, signed_in, tab, visitor
from tests.admin.conftest import BOSS, HOSTILE, HOUR
from tests.api import minutes
from tests.api.conftest import Serve
from tests.api.dialect import Topic, accepted, eventually
from tests.api.keyring import Services, client
from tests.api.people import PASSWORD, add_user
from tests.conftest import Running

MOST_CLICKS = 6  # that a task may take


@pytest.fixture
async def one(browser: Browser, service: Running) -> AsyncIterator[Tab]:
    """A page of the admin's."""
    async with signed_in(browser, service, BOSS) as opened:
        yield opened


async def sign_in(one: Tab, name: str, secret: str = PASSWORD) -> None:
    await one.page.fill("#name", name)
    await one.page.fill("#secret", secret)
    await one.go(one.main.locator("button"))


async def go_to(one: Tab, text: str, found: str) -> None:
    """By the palette: the one that is found by a part of its name."""
    await one.page.keyboard.press("Control+k")
    field, options = one.page.locator("#palette[open] input"), one.page.locator("#found a")
    async with asyncio.timeout(30):
        while [found in shown for shown in await options.all_inner_texts()] != [True]:
            # Topics are found by the middle of their names up to 5 s late: the field is emptied, and filled again.
            for typed in ("", text):
                await field.fill(typed)
                await asyncio.sleep(0.5)
    await one.go(options)


async def until(fact: Callable[[], Awaitable[bool]]) -> None:
    await eventually(fact, 30)


@asynccontextmanager
async def alone(browser: Browser, services: Services) -> AsyncIterator[tuple[Running, Tab]]:
    """A service that holds nothing, and a viewer of it."""
    service = await services.start()
    async with visitor(browser, proxied=False) as context, tab(context, service.url) as one:
        await context.grant_permissions(["clipboard-read", "clipboard-write"])
        yield service, one


async def test_the_first_job_comes_from_the_command_that_an_empty_service_shows(
    browser: Browser, serve: Serve, new_database: Callable[[], Awaitable[str]]
) -> None:
    async with alone(browser, await Services.make(serve, new_database)) as (service, one):
        await one.open("/admin/")
        await one.says("No topics yet.")
        await one.click(one.page.locator("[data-copy=command]"))
        await expect(one.button("Copied")).to_be_visible()
        command = await one.page.evaluate("navigator.clipboard.readText()")
        ran = await asyncio.create_subprocess_exec("bash", "-c", command)
        assert await ran.wait() == 0
        await minutes.tell(service.context.pools)
        await one.says("1 topic with 1 job")  # by itself
        # A service that is gone leaves what was, and says so.
        await service.stop()
        await expect(one.page.locator("#lost")).to_contain_text("Live updates stopped")
        await one.says("1 topic with 1 job")
        one.complaints.clear()  # of the browser, which could not connect


async def test_an_operator_signs_in_and_is_asked_again_once_the_session_is_over(
    browser: Browser, service: Running, http: httpx.AsyncClient
) -> None:
    made = await add_user(http, "read")
    async with visitor(browser) as guest, tab(guest, service.url) as one:
        await one.open("/admin/topics/orders?over=6h")
        await sign_in(one, made["username"], "another password entirely")
        await one.says("The name or password is wrong.")
        await expect(one.page.locator("#name")).to_have_value(made["username"])
        await sign_in(one, made["username"])
        await one.at("/admin/topics/orders?over=6h")
        assert [(cookie.get("httpOnly"), cookie.get("sameSite")) for cookie in await guest.cookies()] == [(True, "Lax")]
        assert await one.page.evaluate("document.cookie") == ""
        await http.delete(f"/api/users/{made['id']}")
        await expect(one.page.get_by_role("heading", name="Sign in")).to_be_visible()  # by itself
        await expect(one.page.locator("[name=back]")).to_have_value("/admin/topics/orders?over=6h")
        await sign_in(one, BOSS)
        await one.at("/admin/topics/orders?over=6h")
        await one.go(one.page.get_by_role("button", name="Sign out"))
        await one.open("/admin/topics/orders")
        await one.says("Sign in")


async def test_a_job_is_found_and_says_why_it_does_not_run(one: Tab, queue: Topic) -> None:
    """Workers are slow, and somebody has paused a tenant."""
    await queue.append({"data": 1, "tenant": "acme"}, {"data": 2}, {"data": 3, "tag": "late", "delay_ms": 3_600_000})
    await queue.take(lease_ms=HOUR)
    (await queue.http.post(f"{queue.path}/pause", json={"tenant": "acme"})).raise_for_status()
    await one.open("/admin/")
    await go_to(one, queue.name[1:], queue.name)
    reasons = one.page.locator(".reasons")
    await expect(reasons).to_contain_text("Paused tenants: acme.")
    await expect(reasons).to_contain_text(re.compile("Workers claim|No worker has claimed"))
    await one.says("1 tenant paused")
    await one.go(one.link("Jobs"))
    await one.page.keyboard.press("/")
    await one.page.keyboard.type("tag:late")
    async with one.page.expect_navigation():
        await one.page.keyboard.press("Enter")
    await one.go(one.page.locator("[data-row]", has_text="3"))
    await expect(reasons).to_contain_text("It is scheduled for")
    at = reasons.locator("time")
    there = datetime.fromisoformat(str(await at.get_attribute("datetime")))
    await expect(at).to_contain_text(f"{there.astimezone(ZoneInfo('Asia/Tokyo')):%H:%M:%S}")  # the viewer's
    await expect(at).to_have_attribute("title", f"{there:%Y-%m-%d %H:%M:%S} UTC")
    assert one.clicks <= MOST_CLICKS


async def test_dead_letters_are_redriven_slowly_after_a_canary(one: Tab, queue: Topic, service: Running) -> None:
    many, first = 1_000, 10
    await queue.put(max_deliveries=1, dead_letter=f"{queue.name}.dead")
    await queue.add(many)
    seqs = [job["$seq"] for job in (await queue.claim("w-7", max=many, lease_ms=HOUR))["claimed"]]
    await queue.nack("w-7", seqs, errors=[f"Timeout after {n} s" for n in seqs])
    await minutes.tell(service.context.pools)
    await one.open("/admin/")
    hurt = one.page.locator("li", has=one.page.locator(f"[id='hurt-{queue.name}']"))
    await one.go(hurt.get_by_role("link", name="became dead letters"))
    await expect(one.page.locator("td.name")).to_contain_text(["Timeout after"])
    await one.go(one.link("Requeue all…"))
    await one.says("Requeue about 1,000 jobs")
    await one.fill("#rate", "20")
    await expect(one.page.locator("#first")).to_have_value(str(first))
    await one.go(one.button("Requeue"))
    assert one.clicks <= MOST_CLICKS
    operation = one.page.url.rpartition("/")[2]
    for _ in range(first):
        await queue.ack("w-8", [(await queue.take("w-8"))["$seq"]])
    await one.says("Ends in about")  # by itself, once the canary has lived
    await one.go(one.button("Cancel"), confirm=True)
    await expect(one.page.locator("#live .badge").first).to_have_text("cancelled")
    ended = accepted(await queue.http.get(f"/v0/operations/{operation}"))
    assert first <= ended["requeued"] < many
    trail = accepted(await queue.http.get(f"/v0/admin/audit?subject={queue.name}&page_size=10"))["entries"]
    told = {entry["action"]: entry["actor_name"] for entry in trail}
    assert told["requeue.started"] == told["requeue.cancelled"] == BOSS


async def test_a_topic_is_paused_and_its_limit_changed_and_undone(one: Tab, queue: Topic) -> None:
    async def max_depth() -> int:
        return int((await queue.state())["config"]["max_depth"])

    await one.open("/admin/")
    await go_to(one, queue.name[1:], queue.name)
    await one.go(one.link("Config"))
    await one.fill("#set-max_depth", "5000")
    async with one.page.expect_navigation():
        await one.page.keyboard.press("Enter")
    await expect(one.page.locator("tbody tr")).to_have_text(["max_depth 0 5000"], use_inner_text=True)
    assert await max_depth() == 0, "seen, and not saved"
    await one.go(one.button("Save"))
    assert await max_depth() == 5000
    await one.go(one.button("Undo"))
    assert await max_depth() == 0
    assert one.clicks <= MOST_CLICKS
    await one.open(f"/admin/topics/{queue.name}")
    await one.click(one.button("Pause"))
    await one.click(one.page.get_by_role("button", name="Go back"))
    await expect(one.page.locator("#confirm[open]")).to_have_count(0)
    await one.click(one.button("Pause"))
    await expect(one.page.locator("#confirm[open]")).to_contain_text(f"Pause {queue.name}?")
    # What is live comes anew while the question stands there, as by a tick that was under way.
    await one.page.locator("#live form").first.evaluate("(form) => form.replaceWith(form.cloneNode(true))")
    async with one.page.expect_navigation():
        await one.page.locator("#confirm [value=yes]").click()
    await expect(one.button("Resume")).to_be_visible()
    # A form that is not of this session, as another site's page would have it.
    await one.page.evaluate("document.querySelectorAll('[name=proof]').forEach((one) => { one.value = 'f'; })")
    await one.go(one.button("Resume"), confirm=True)
    await one.says("This form is from another session")
    entries = accepted(await queue.http.get(f"/v0/admin/audit?subject={queue.name}"))["entries"]
    done = [(entry["action"], entry["actor_name"]) for entry in entries]
    assert done[:3] == [("topic.paused", BOSS), ("topic.changed", BOSS), ("topic.changed", BOSS)]


async def test_a_schedule_is_made_paused_run_and_deleted(one: Tab, queue: Topic) -> None:
    name = f"nightly.{queue.name}"
    await one.open("/admin/")
    await one.press("gs")
    await one.at("/admin/schedules")
    await one.go(one.link("New schedule"))
    for field, text in (("name", name), ("topic", queue.name), ("cron", "61 * * * *"), ("record", '{"data": 1.00}')):
        await one.fill(f"#field-{field}", text)
    await one.go(one.button("Save"))
    await expect(one.page.locator("#wrong-cron")).to_be_visible()
    await one.fill("#field-cron", "0 0 1 1 *")
    await one.go(one.button("Save"))
    await one.at(f"/admin/schedules/{name}")
    await one.go(one.button("Pause"), confirm=True)
    await one.says("This schedule is paused.")
    await one.go(one.button("Run now"), confirm=True)
    await one.says("was enqueued.")
    assert await queue.counts() == (1, 0)
    await one.go(one.button("Resume"), confirm=True)
    await expect(one.button("Pause")).to_be_visible()
    await one.go(one.button("Delete"), confirm=True)
    await one.at("/admin/schedules")
    entries = accepted(await queue.http.get(f"/v0/admin/audit?subject={name}"))["entries"]
    actions = ["cron.deleted", "cron.changed", "cron.run", "cron.changed", "cron.created"]
    assert [(entry["action"], entry["actor_name"]) for entry in entries] == [(one, BOSS) for one in actions]


async def test_a_view_is_saved_and_found_on_another_day(
    browser: Browser, service: Running, one: Tab, queue: Topic
) -> None:
    await queue.append({"data": {"id": 1}}, {"data": {"id": 2}})
    name = f"late {queue.name}"
    await one.open(f"/admin/topics/{queue.name}/jobs?q=data.id%3A2")
    await one.click(one.main.get_by_text("Save this view"))
    await one.fill("[name=name]", name)
    await one.go(one.page.locator("#do-save-view"))
    async with signed_in(browser, service, BOSS) as other:
        await other.open("/admin/")
        await go_to(other, name[:-1], name)
        await expect(other.page.locator("[data-row]")).to_have_text(["2"])
        assert other.clicks <= MOST_CLICKS
        await other.go(other.page.get_by_role("button", name=f"Delete the view {name}"), confirm=True)
        await expect(other.page.locator(".saved [aria-current]")).to_have_count(0)


async def test_an_open_page_is_live_and_what_is_read_holds_still(one: Tab, queue: Topic) -> None:
    await queue.add(1)
    await one.open(f"/admin/topics/{queue.name}")
    ready = one.page.locator(".figures .count").first
    await expect(ready).to_have_text("1")
    await one.page.evaluate("""() => {
        document.querySelector('#live [aria-current=true]').focus();
        window.was = document.activeElement;
        window.canvas = document.querySelector('canvas');
    }""")
    await queue.add(2)
    await expect(ready).to_have_text("3")  # by itself
    same = "[document.activeElement === was, was.isConnected, canvas === document.querySelector('canvas')]"
    assert await one.page.evaluate(same) == [True, True, True]
    # Rows that somebody reads hold still, and show what became of them.
    await one.open(f"/admin/topics/{queue.name}/jobs")
    rows = one.page.locator("[data-row]")
    await expect(rows).to_have_text(["3", "2", "1"])
    await one.page.locator("#row-2").focus()
    await queue.ack("n", [(await queue.take())["$seq"]])
    await queue.take(lease_ms=HOUR)
    await queue.add(2)
    await one.says("2 new, 1 gone")
    await expect(rows).to_have_text(["3", "2", "1"])
    await expect(one.page.locator("tr", has=one.page.locator("#row-2"))).to_contain_text("leased")
    await expect(one.page.locator("tr[data-gone]")).to_have_count(1)
    await expect(one.page.locator("#row-2")).to_be_focused()
    await one.click(one.button("Show"))
    await expect(rows).to_have_text(["5", "4", "3", "2"])


async def test_a_user_is_let_in_and_a_key_is_shown_once(
    browser: Browser, service: Running, one: Tab, http: httpx.AsyncClient
) -> None:
    name = f"ann-{secrets.token_hex(3)}"
    await one.open("/admin/users")
    await one.go(one.link("New user"))
    await one.fill("#username", name)
    await one.fill("#password", PASSWORD)
    await one.go(one.button("Create"))
    await one.fill("#topic_pattern", "mail.*")
    await one.go(one.button("Grant"))
    async with signed_in(browser, service, name) as ann:
        await ann.open("/admin/topics")
        await expect(ann.page.locator("[data-row]")).to_have_text(["mail.outbound"])
    await one.open("/admin/keys/new")
    await one.fill("#name", HOSTILE)
    await one.page.check("[name=scope_read]")
    await one.go(one.button("Create"))
    shown = one.page.locator("#secret")
    secret = await shown.inner_text()
    async with client(service, secret) as with_it:
        assert (await with_it.get("/v0/topics")).status_code == 200
    await one.page.reload()  # shows the key, and makes no other
    await one.says(HOSTILE)
    await expect(shown).to_have_count(0)
    assert secret not in await one.page.content()
    await one.go(one.button("Revoke"), confirm=True)
    await expect(one.button("Revoke")).to_have_count(0)
    async with client(service, secret) as with_it:
        assert (await with_it.get("/v0/topics")).status_code == 401


async def test_the_keyboard_is_enough(one: Tab) -> None:
    await one.open("/admin/")
    await go_to(one, "outb", "mail.outbound")
    await one.at("/admin/topics/mail.outbound")
    await one.press("gt")
    await one.at("/admin/topics")
    await one.press("jjjk")
    second = one.page.locator("[data-row]").nth(1)
    await expect(second).to_be_focused()
    await one.press("?")
    await expect(one.page.get_by_role("heading", name="Keyboard shortcuts")).to_be_visible()
    await one.page.keyboard.press("Escape")
    await expect(one.page.locator("dialog[open]")).to_have_count(0)
    await one.page.keyboard.press("/")
    await one.page.keyboard.type("orders")
    async with one.page.expect_navigation():
        await one.page.keyboard.press("Enter")
    await expect(one.page.locator("[data-row]")).to_have_text(["orders"])
    await one.press("j")
    await expect(one.page.locator("[data-row]")).to_be_focused()
    await one.page.keyboard.press("Enter")
    await one.at("/admin/topics/orders")


async def test_the_main_pages_are_for_everybody_in_both_themes_on_a_phone_and_a_wall(one: Tab, axe: Axe) -> None:
    faults: list[str] = []
    for name, path in {
        "home": "",
        "topics": "topics?q=orders",
        "topic": "topics/orders",
        "jobs": "topics/orders/jobs",
        "job": "topics/orders/jobs/12",
        "dead": "topics/orders/dead",
    }.items():
        await one.open(f"/admin/{path}")
        faults += await one.looked_at(axe, f"main-{name}")
    assert faults == []
    switch: Locator = one.page.get_by_role("button", name="Theme")
    await switch.click()
    await switch.click()
    await one.open("/admin/topics")
    await expect(switch).to_have_text("Theme: dark")
    assert await one.page.evaluate("getComputedStyle(document.documentElement).colorScheme") == "dark"
