"""Schedules in a real browser: made, changed, paused, run and deleted; and what is around a queue."""

from __future__ import annotations

import asyncio

from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext, expect

from tests.admin.browser import PATIENCE_MS, Tab, tab, visitor
from tests.admin.conftest import BOSS, HOSTILE, READER
from tests.admin.test_browser import sign_in
from tests.admin.test_config_browser import press
from tests.api.dialect import Body, Topic, accepted
from tests.api.keyring import client
from tests.conftest import Running

YEARLY = "0 0 1 1 *"
TICK = "document.body.dispatchEvent(new Event('tick'))"  # the page's own comes every 5 s


async def put(service: Running, name: str, **fields: object) -> Body:
    body = {"topic": "many.40", "cron": YEARLY, "record": {"data": {"n": 1}}, **fields}
    async with client(service, "root") as http:
        made: Body = accepted(await http.put(f"/v0/schedules/{name}", json=body))
    return made


async def stored(service: Running, name: str) -> Body:
    async with client(service, "root") as http:
        found: Body = accepted(await http.get(f"/v0/schedules/{name}"))
    return found


async def trail(service: Running, name: str) -> list[tuple[str, str]]:
    """What was done, the newest first, and by whom."""
    async with client(service, "root") as http:
        found = accepted(await http.get(f"/v0/admin/audit?subject={name}"))
    return [(entry["action"], entry["actor_name"]) for entry in found["entries"]]


async def confirm(one: Tab, word: str) -> None:
    """A change that is asked about first."""
    await one.page.get_by_role("button", name=word, exact=True).click()
    async with one.page.expect_navigation():
        await one.page.locator("#confirm [value=yes]").click()
    await one.ready()


async def test_an_empty_service_has_none_and_makes_none(browser: Browser, axe: Axe, empty: Running) -> None:
    async with visitor(browser, proxied=False) as nobody, tab(nobody, empty.url) as one:
        await one.open("/admin/schedules")
        assert await one.looked_at(axe, "empty-schedules") == []
        assert "There are no schedules yet." in await one.text()
        assert await one.page.get_by_role("link", name="New schedule").count() == 0
        await one.open("/admin/schedules-new")
        assert "Read only" in await one.text()


async def test_a_list_has_pages_and_a_filter_by_its_address(boss: BrowserContext, axe: Axe, small: Running) -> None:
    for n in range(51):
        await put(small, f"list.{n:02}", paused=n == 0)
    async with tab(boss, small.url) as one:
        await one.open("/admin/")
        async with one.page.expect_navigation():
            await one.press("g", "s")
        await one.open("/admin/schedules?q=list.")
        assert await one.page.locator("[data-row]").count() == 50
        assert "paused" in await one.page.locator("tbody tr").first.inner_text()
        async with one.page.expect_navigation():
            await one.page.get_by_role("link", name="Next").click()
        assert await one.page.locator("[data-row]").all_inner_texts() == ["list.50"]
        await one.open("/admin/schedules?q=list.0")
        assert await one.looked_at(axe, "small-schedules") == []
        await one.open("/admin/schedules?q=%3Cscript%3Edocument.title='hacked'%3C/script%3E")
        await one.wait_for("No schedule begins with <script>")
        assert await one.page.title() == "Schedules · Holdfast"


async def test_one_is_made_and_changed_with_errors_beside_the_fields(
    boss: BrowserContext, axe: Axe, small: Running
) -> None:
    async with tab(boss, small.url) as one:
        await one.open("/admin/schedules")
        async with one.page.expect_navigation():
            await one.page.get_by_role("link", name="New schedule").click()
        typed = {"name": "-", "topic": "nowhere", "cron": "61 * * * *", "time_zone": "Mars/Olympus", "record": HOSTILE}
        for field, text in typed.items():
            await one.page.fill(f"#field-{field}", text)
        await press(one, "Save")
        for field, text in typed.items():
            if field != "topic":  # which is looked for once the rest makes sense
                assert await one.page.locator(f"#wrong-{field}").count() == 1
            assert await one.page.input_value(f"#field-{field}") == text
        assert await one.looked_at(axe, "small-schedule-wrong") == []
        right = {"name": "made.1", "cron": YEARLY, "time_zone": "Europe/Berlin", "record": '{"data": {"a": 1.00}}'}
        for field, text in right.items():
            await one.page.fill(f"#field-{field}", text)
        await press(one, "Save")
        assert "There is no topic 'nowhere'." in await one.page.inner_text("#wrong-topic")
        await one.page.fill("#field-topic", "events")
        await press(one, "Save")
        assert "is a log" in await one.page.inner_text("#wrong-topic")
        await one.page.fill("#field-topic", "many.41")
        await one.page.fill("#field-record", '{"data": 1, "run_at": "2030-01-01T00:00:00Z"}')
        await press(one, "Save")
        assert "run_at" in await one.page.inner_text("#wrong-record")
        record = '{"data": {"a": 1.00, "b": "' + HOSTILE.replace('"', '\\"') + '"}, "tag": "<b>t</b>", "priority": 7}'
        await one.page.fill("#field-record", record)
        await press(one, "Save")
        assert one.page.url == f"{small.url}/admin/schedules/made.1"
        assert await one.page.locator("ol li").count() == 5
        assert '{"a": 1.00, "b": "<script>' in await one.page.inner_text("pre")
        assert await one.page.title() == "made.1 · Holdfast"
        assert await one.looked_at(axe, "small-schedule") == []
        # There is one of this name now.
        await one.open("/admin/schedules-new")
        for field, text in (right | {"topic": "many.41"}).items():
            await one.page.fill(f"#field-{field}", text)
        await press(one, "Save")
        assert "There is a schedule of this name." in await one.page.inner_text("#wrong-name")
        # What is left alone stays as it is, to the byte.
        await one.open("/admin/schedules/made.1/edit")
        await one.page.fill("#field-cron", "0 12 1 1 *")
        await one.page.select_option("#field-missed", "all")
        await press(one, "Save")
        found = await stored(small, "made.1")
        assert (found["cron"], found["missed"], found["time_zone"]) == ("0 12 1 1 *", "all", "Europe/Berlin")
        assert found["record"]["data"] == {"a": 1.0, "b": HOSTILE}
        assert (found["record"]["tag"], found["record"]["priority"]) == ("<b>t</b>", 7)
        async with client(small, "root") as http:
            detail = (await http.get("/v0/admin/audit?subject=made.1&page_size=1")).json()["entries"][0]["detail"]
        assert set(detail) == {"cron", "missed"}


async def test_of_two_who_change_one_at_once_the_second_is_asked_again(boss: BrowserContext, small: Running) -> None:
    await put(small, "both")
    async with tab(boss, small.url) as one:
        await one.open("/admin/schedules/both/edit")
        await one.page.fill("#field-time_zone", "Asia/Tokyo")
        await put(small, "both", cron="30 1 1 1 *")
        await press(one, "Save")
        await one.wait_for("Somebody else has changed this meanwhile.")
        assert await one.page.input_value("#field-time_zone") == "Asia/Tokyo"
        await one.wait_for("It is now: 30 1 1 1 *")
        assert (await stored(small, "both"))["time_zone"] == "UTC"
        await one.page.fill("#field-cron", "30 1 1 1 *")
        await press(one, "Save")
        found = await stored(small, "both")
        assert (found["cron"], found["time_zone"]) == ("30 1 1 1 *", "Asia/Tokyo")


async def test_it_is_paused_resumed_run_and_deleted(boss: BrowserContext, small: Running) -> None:
    await put(small, "acted", topic="many.42")
    async with tab(boss, small.url) as one:
        await one.open("/admin/schedules/acted")
        await confirm(one, "Pause")
        await one.wait_for("It is paused.")
        await confirm(one, "Run now")
        await one.wait_for("was made.")
        found = await stored(small, "acted")
        assert (found["paused"], found["fires"]) == (True, 1)
        await confirm(one, "Resume")
        assert not (await stored(small, "acted"))["paused"]
        await confirm(one, "Delete")
        assert one.page.url == f"{small.url}/admin/schedules"
        await one.open("/admin/schedules/acted")
        await one.wait_for("There is no schedule 'acted'.")
    done = ["cron.deleted", "cron.changed", "cron.run", "cron.changed"]
    assert await trail(small, "acted") == [*((action, BOSS) for action in done), ("cron.created", None)]


async def test_who_reads_topics_has_no_schedules(guest: BrowserContext, small: Running) -> None:
    await put(small, "guarded")
    async with tab(guest, small.url) as one:
        await one.open("/admin/topics")
        await sign_in(one, READER)
        assert await one.page.get_by_role("link", name="Schedules").count() == 0
        proof = await one.page.input_value("[name=proof] >> nth=0")
        for path in ("", "/guarded", "/guarded/edit", "-new"):
            assert (await one.page.request.get(f"{small.url}/admin/schedules{path}")).status == 403
        for path in ("/guarded/pause", "/guarded/resume", "/guarded/run", "/guarded/delete", "/guarded/edit", "-new"):
            answer = await one.page.request.post(
                f"{small.url}/admin/schedules{path}", form={"proof": proof}, headers={"origin": small.url}
            )
            assert answer.status == 403
    assert (await stored(small, "guarded"))["fires"] == 0


async def test_a_topic_shows_who_works_what_waits_and_what_comes(
    boss: BrowserContext, axe: Axe, small: Running
) -> None:
    await put(small, "weekly", topic="many.43", cron="0 0 * * mon")
    async with client(small, "root") as http, tab(boss, small.url) as one:
        topic = Topic(http, "many.43")
        await one.open("/admin/topics/many.43")
        await one.wait_for("Nobody holds a job")
        await topic.append(*({"data": n, "group": "<i>ada</i>", "tenant": "<b>acme</b>"} for n in range(4)))
        await topic.append({"data": 1}, {"data": 2})
        await topic.claim("<u>worker</u>", max=3, lease_ms=600_000)
        await one.page.evaluate(TICK)
        await expect(one.page.locator("td", has_text="<u>worker</u>").first).to_be_visible(timeout=PATIENCE_MS)
        row = one.page.locator("tr", has_text="<i>ada</i>")
        assert (await row.inner_text()).split("\t")[1:3] == ["3", "job 1, leased by <u>worker</u>"]
        await expect(one.page.locator("tr", has_text="<b>acme</b>").last).to_be_visible(timeout=PATIENCE_MS)
        assert await one.page.get_by_role("link", name="weekly").count() == 1
        idle = asyncio.create_task(topic.claim("idle", wait_ms=20_000))
        said = one.page.get_by_text("1 call of this process waits for a job: idle.")
        await expect(said).to_be_visible(timeout=PATIENCE_MS)
        idle.cancel()
        await asyncio.gather(idle, return_exceptions=True)
        assert await one.looked_at(axe, "small-topic-around") == []
        await one.page.get_by_role("heading", name="Schedules").scroll_into_view_if_needed()
        await one.keep("small-topic-workers")
