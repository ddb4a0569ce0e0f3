"""The Config tab in a real browser: what is set and where it comes from, a change that is seen first, and undone."""

from __future__ import annotations

import asyncio
import html
import re

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import BrowserContext, expect

from tests.admin.browser import PATIENCE_MS, Hand, Tab, tab
from tests.admin.conftest import BOSS, HOSTILE, READER
from tests.admin.test_browser import sign_in
from tests.api.dialect import Body, Topic, accepted
from tests.api.keyring import bearer, client, make
from tests.api.messages.client import done
from tests.conftest import Running

WAS = re.compile(r'name="was" value="([^"]*)"')


async def press(one: Tab, name: str) -> None:
    async with one.page.expect_navigation():
        await one.page.get_by_role("button", name=name, exact=True).click()
    await one.ready()


async def config(service: Running, topic: str) -> Body:
    async with client(service, "root") as http:
        found: Body = accepted(await http.get(f"/v0/topics/{topic}"))["config"]
    return found


async def changes(service: Running, topic: str) -> list[tuple[str, Body]]:
    """Who changed what, the newest first."""
    async with client(service, "root") as http:
        found = accepted(await http.get(f"/v0/admin/audit?subject={topic}&action=topic.changed"))
    return [(entry["actor_name"], entry["detail"]) for entry in found["entries"]]


async def test_a_limit_is_changed_and_undone_in_six_clicks(boss: BrowserContext, small: Running) -> None:
    async with tab(boss, small.url) as one:
        await one.open("/admin/")
        hand = Hand(one)
        await hand.clicks(one.page.get_by_role("button", name="Go to"))
        await one.page.keyboard.type("many.35")
        await hand.goes(one.page.locator("#found a", has_text="many.35"))
        await hand.goes(one.page.get_by_role("link", name="Config"))
        field = one.page.locator("#set-max_depth")
        await hand.clicks(field)
        await field.press("Control+a")
        await one.page.keyboard.type("5000")
        async with one.page.expect_navigation():
            await one.press("Enter")
        assert await one.page.locator("tbody tr").all_inner_texts() == ["max_depth\t0\t5000"]
        assert (await config(small, "many.35"))["max_depth"] == 0  # seen, and not saved
        await hand.goes(one.page.get_by_role("button", name="Save"))
        assert (await config(small, "many.35"))["max_depth"] == 5000
        await hand.goes(one.page.get_by_role("button", name="Undo"))
        assert (await config(small, "many.35"))["max_depth"] == 0
        assert hand.was_quick()
        assert await changes(small, "many.35") == [
            (BOSS, {"max_depth": {"from": 5000, "to": 0}}),
            (BOSS, {"max_depth": {"from": 0, "to": 5000}}),
        ]


async def test_how_it_looks(boss: BrowserContext, axe: Axe, small: Running) -> None:
    async with tab(boss, small.url) as one:
        await one.open("/admin/topics/many.30/config")
        await one.page.fill("#set-max_depth", "many")
        await one.page.fill("#set-ttl_ms", "1 min")
        await press(one, "Review changes")
        faults = await one.looked_at(axe, "small-config-wrong")
        await one.page.fill("#set-max_depth", "1000")
        await press(one, "Review changes")
        faults += await one.looked_at(axe, "small-config-diff")
        await press(one, "Save")
        await one.open("/admin/topics/many.30/config")
        for width in (375, 1280, 2560):
            await one.page.set_viewport_size({"width": width, "height": 900})
            faults += await one.faults()
            await one.keep(f"small-config-{width}")
        await one.open("/admin/topics/events/config")
        await one.keep("small-config-log")
        assert faults == []


async def test_a_wrong_value_is_said_beside_its_field_and_kept(boss: BrowserContext, small: Running) -> None:
    async with tab(boss, small.url) as one:
        await one.open("/admin/topics/many.31/config")
        await one.page.fill("#set-tenant_limits", '{"ada": 0}')
        await one.page.fill("#set-dead_letter", HOSTILE)
        await one.page.fill("#set-webhook", '{"url": "ftp://example.com"}')
        await one.page.fill("#set-throughput_limit", "12")
        await press(one, "Review changes")
        assert "Expected `int` >= 1" in await one.page.inner_text("#wrong-tenant_limits")
        assert await one.page.input_value("#set-tenant_limits") == '{"ada": 0}'
        assert await one.page.input_value("#set-dead_letter") == HOSTILE
        assert await one.page.input_value("#set-throughput_limit") == "12"
        assert await one.page.title() == "Config of many.31 · Holdfast"
        await one.page.fill("#set-tenant_limits", '{"<i>ada</i>": 3}')
        await one.page.fill("#set-dead_letter", "")
        await press(one, "Review changes")
        assert "http://" in await one.page.inner_text("#wrong-webhook")
        await one.page.fill("#set-webhook", "")
        await press(one, "Review changes")
        await one.page.locator("ins", has_text="<i>ada</i>").wait_for()
        await press(one, "Change more")
        assert await one.page.input_value("#set-throughput_limit") == "12"
        await press(one, "Review changes")
        await press(one, "Save")
        kept = await config(small, "many.31")
        assert (kept["tenant_limits"], kept["throughput_limit"], kept["dead_letter"]) == ({"<i>ada</i>": 3}, 12, None)
        assert len(await changes(small, "many.31")) == 1


async def test_of_two_who_change_it_at_once_the_second_is_asked_again(boss: BrowserContext, small: Running) -> None:
    async with tab(boss, small.url) as one, tab(boss, small.url) as other:
        for each in (one, other):
            await each.open("/admin/topics/many.32/config")
        await one.page.fill("#set-max_depth", "7")
        await press(one, "Review changes")
        await press(one, "Save")
        await other.page.fill("#set-throughput_limit", "9")
        await press(other, "Review changes")
        await other.wait_for("Somebody else has changed this meanwhile.")
        assert await other.page.input_value("#set-throughput_limit") == "9"
        assert await other.page.input_value("#set-max_depth") == "7"
        await press(other, "Review changes")
        # It is confirmed when somebody has changed it once more.
        await one.open("/admin/topics/many.32/config")
        await one.page.fill("#set-max_depth", "8")
        await press(one, "Review changes")
        await press(one, "Save")
        await press(other, "Save")
        await other.wait_for("Nothing is saved yet.")
        assert await other.page.input_value("#set-throughput_limit") == "9"
        kept = await config(small, "many.32")
        assert (kept["max_depth"], kept["throughput_limit"]) == (8, 0)
        await press(other, "Review changes")
        await press(other, "Save")
        kept = await config(small, "many.32")
        assert (kept["max_depth"], kept["throughput_limit"]) == (8, 9)


async def test_of_many_that_are_sent_together_one_is_saved(small: Running) -> None:
    async with client(small, "root") as http:
        form = {"was": html.unescape(WAS.findall((await http.get("/admin/topics/many.36/config")).text)[0])}
        saves = (
            http.post("/admin/topics/many.36/config/save", data={**form, "max_depth": str(n)}) for n in range(1, 9)
        )
        answers = [answer.status_code for answer in await asyncio.gather(*saves)]
    assert sorted(answers) == [303] + [409] * 7
    assert (await config(small, "many.36"))["max_depth"] == 1 + answers.index(303)
    assert len(await changes(small, "many.36")) == 1


async def test_what_is_left_to_the_service_stays_left(small: Running) -> None:
    async with client(small, "root") as http:
        done(await http.post("/api/messages", json={"topic": "left", "payload": "1"}), 201)
        shown = (await http.get("/admin/topics/left/config")).text
        assert shown.count("default of the service") == 4
        form = {"was": html.unescape(WAS.findall(shown)[0]), "max_retries": "9", "lease_ms": ""}
        assert (await http.post("/admin/topics/left/config/save", data=form)).status_code == 303
        kept = done(await http.get("/api/topic-configs/left"))
        assert kept["max_retries"] == 9
        assert not {"dlq_threshold", "message_ttl_seconds", "visibility_timeout_seconds"} & set(kept)


async def test_an_older_change_is_undone_by_a_page_that_shows_it_first(boss: BrowserContext, small: Running) -> None:
    async with client(small, "root") as http, tab(boss, small.url) as one:
        named = await make(http, name=HOSTILE)
        topic = Topic(http, "many.33")
        for depth in (3, 4):
            body = {"type": "queue", "max_depth": depth, "lease_ms": depth * 1000}
            accepted(await http.put(topic.path, json=body, headers=bearer(named["secret"])))
        await one.open("/admin/topics/many.33/config")
        assert await one.page.locator("td", has_text="<script>").count() == 2  # who it was, as text
        assert await one.page.title() == "Config of many.33 · Holdfast"
        older = one.page.get_by_role("link", name="Undo…").nth(1)
        await older.scroll_into_view_if_needed()
        await one.keep("small-config-history")
        async with one.page.expect_navigation():
            await older.click()
        rows = await one.page.locator("tbody tr").all_inner_texts()
        assert rows == ["max_depth\t4\t0", "lease_ms\t4 s\t30 s"]
        # Meanwhile it becomes another once more: what undoing does is another, too.
        accepted(await http.put(topic.path, json={"type": "queue", "max_depth": 5}))
        await press(one, "Save")
        await one.wait_for("Somebody else has changed this meanwhile.")
        assert await one.page.locator("tbody tr").all_inner_texts() == ["max_depth\t5\t0"]
        await press(one, "Save")
        assert (await config(small, "many.33"))["max_depth"] == 0


async def test_a_secret_is_not_shown_and_stays(boss: BrowserContext, small: Running) -> None:
    async with tab(boss, small.url) as one:
        await one.open("/admin/topics/many.34/config")
        await one.page.fill("#set-webhook", '{"url": "https://example.com/a", "secret": "not for anybody"}')
        await press(one, "Review changes")
        assert "not for anybody" not in await one.text()
        await press(one, "Save")
        masked = await one.page.input_value("#set-webhook")
        assert "not for anybody" not in await one.page.content()
        assert (await config(small, "many.34"))["webhook"]["secret"].startswith("********")
        await one.page.fill("#set-webhook", masked.replace("/a", "/b"))
        await press(one, "Review changes")
        await press(one, "Save")
        await expect(one.page.locator("#set-webhook")).to_have_value(masked.replace("/a", "/b"), timeout=PATIENCE_MS)
        await one.page.fill("#set-webhook", '{"url": "https://example.com/a", "secret": "********unknown"}')
        await press(one, "Review changes")
        assert "not kept here" in await one.page.inner_text("#wrong-webhook")


async def test_who_may_only_read_sees_values_and_no_fields(guest: BrowserContext, small: Running) -> None:
    async with tab(guest, small.url) as one:
        await one.open("/admin/topics/mail.outbound/config")
        await sign_in(one, READER)
        await one.wait_for("fixed by its type")
        assert await one.page.locator("main input, main textarea, main select, main button").count() == 0
        assert "Changes" not in await one.text()
        proof = await one.page.input_value("[name=proof] >> nth=0")
        for path in ("config", "config/save"):
            answer = await one.page.request.post(
                f"{small.url}/admin/topics/mail.outbound/{path}",
                form={"proof": proof, "was": "{}", "max_depth": "1"},
                headers={"origin": small.url},
            )
            assert answer.status == 403
        assert (await one.page.request.get(f"{small.url}/admin/topics/mail.outbound/config/undo/1")).status == 403
