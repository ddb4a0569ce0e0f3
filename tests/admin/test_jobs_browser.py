"""Jobs, and one of them, in a real browser: how they look and read, the filter, and each action."""

from __future__ import annotations

import asyncio
import json
import os
import re
import subprocess
from datetime import datetime
from typing import Any
from zoneinfo import ZoneInfo

import httpx
import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import BrowserContext, Locator

from tests.admin.browser import Hand, Tab, tab
from tests.admin.conftest import HOSTILE, READER
from tests.admin.test_browser import sign_in
from tests.api.dialect import Body, Topic, accepted
from tests.api.keyring import client
from tests.conftest import Running

PAYLOAD = {"say": HOSTILE, "n": 1, "items": [{"sku": "a", "price": 0.1}, {}, []], "nothing": None}
RAW = '{"big": 12345678901234567890123, "same": 1, "same": 2, "rate": 0.10}'


@pytest.fixture(scope="module")
async def shop(small: Running) -> Running:
    """The small service, with a queue that has jobs in every state, and what hostile people write."""
    async with client(small, "root") as http:
        await Topic(http, "bare").put()
        await Topic(http, "shop.dead").put()
        shop = Topic(http, "shop")
        await shop.put(max_deliveries=2, on_exhausted="dead_letter", dead_letter="shop.dead", result_ttl_ms=3_600_000)
        hostile = {"key": HOSTILE, "tag": HOSTILE, "tenant": HOSTILE, "group": HOSTILE, "meta": {HOSTILE: HOSTILE}}
        await shop.append({"data": PAYLOAD, "priority": 9, **hostile})
        await shop.append({"data": "done"}, {"data": "dies"}, {"data": "held"}, {"data": "back"})
        assert (await shop.claim("worker-1", max=5, lease_ms=3_600_000))["count"] == 5
        await shop.ack("worker-1", [2], results=[{"total": 7}])
        await shop.fail("worker-1", [3], errors=[HOSTILE])
        await shop.extend("worker-1", [4], 3_600_000, progress=[{"percent": 40, "note": HOSTILE}])
        await shop.nack("worker-1", [1, 5], errors=["ValueError: no address", HOSTILE], delay_ms=3_600_000)
        await append_raw(http, RAW)
        await shop.append(
            {"data": HOSTILE, "content_type": "text/html"},
            {"data": {"$base64": "AAECA/9oaQ=="}, "content_type": "image/png"},
            {"data": 9, "tag": "late", "delay_ms": 3_600_000},
            {"data": 10, "group": "g"},
            {"data": 11, "group": "g"},
        )
    return small


async def append_raw(http: httpx.AsyncClient, data: str) -> None:
    """A job with data as it stands."""
    content = f'{{"records": [{{"data": {data}, "tag": "raw"}}]}}'
    accepted(await http.post("/v0/topics/shop", content=content, headers={"content-type": "application/json"}))


async def job_of(http: httpx.AsyncClient, seq: int, topic: str = "shop") -> Body:
    return accepted(await http.get(f"/v0/topics/{topic}/jobs/{seq}"))


async def seqs(one: Tab) -> list[str]:
    return await one.page.locator("[data-row]").all_inner_texts()


async def confirm(one: Tab, word: str) -> None:
    """Press a button, and say yes."""
    await press(one, one.page.get_by_role("button", name=word, exact=True))


async def press(one: Tab, button: Locator) -> None:
    """The same with a button that is not the only one of its name."""
    await button.click()
    async with one.page.expect_navigation():
        await one.page.locator("#confirm [value=yes]").click()
    await one.ready()


async def test_each_page_looks_as_it_should(boss: BrowserContext, axe: Axe, shop: Running) -> None:
    pages = {
        "jobs": "/admin/topics/shop/jobs",
        "jobs-empty": "/admin/topics/bare/jobs",
        "jobs-wrong": "/admin/topics/shop/jobs?q=worker%3Aw1",
        "job": "/admin/topics/shop/jobs/1",
        "job-gone": "/admin/topics/shop/jobs/2",
        "job-missing": "/admin/topics/shop/jobs/99",
    }
    async with tab(boss, shop.url) as one:
        faults = []
        for name, path in pages.items():
            await one.open(path)
            await one.page.evaluate("document.querySelectorAll('.more-of').forEach((one) => { one.open = true; })")
            faults += await one.looked_at(axe, name)
        await one.open("/admin/topics/shop/jobs")
        for width in (821, 1201):
            await one.page.set_viewport_size({"width": width, "height": 900})
            faults += await one.faults()
        assert faults == [], "\n".join(faults)


async def test_what_anybody_has_written_is_text(boss: BrowserContext, shop: Running) -> None:
    async with tab(boss, shop.url) as one:
        for path in ("", "?q=%22%3E%3Cscript%3E", "/1", "/3", "/4", "/5", "/7", "/8", "/2"):
            await one.open(f"/admin/topics/shop/jobs{path}")
            assert "hacked" not in await one.page.title()
            assert await one.page.locator("script:not([src]), main img").count() == 0
        await one.open("/admin/topics/shop/jobs/1")
        lines = await one.page.locator(".json").first.locator("p, summary").all_inner_texts()
        assert lines[:4] == ["{", f'"say": {json.dumps(HOSTILE)},', '"n": 1,', '"items": [']
        assert lines[4:] == ["{", '"sku": "a",', '"price": 0.1', "},", "{},", "[]", "],", '"nothing": null', "}"]
        await one.open("/admin/topics/shop/jobs/6")
        assert await one.page.locator(".json p").all_inner_texts() == [
            '"big": 12345678901234567890123,',
            '"same": 1,',
            '"same": 2,',
            '"rate": 0.10',
            "}",
        ]
        await one.open("/admin/topics/shop/jobs/7")
        assert await one.page.inner_text("pre.raw") == HOSTILE
        await one.open("/admin/topics/shop/jobs/8")
        assert "00 01 02 03 ff 68 69" in await one.page.inner_text("pre.hex")


async def test_a_job_says_what_happened_and_why_it_waits(boss: BrowserContext, shop: Running) -> None:
    async with tab(boss, shop.url) as one:
        await one.open("/admin/topics/shop/jobs/5")
        await one.wait_for("It is to be had from")
        steps = [" ".join(text.split()) for text in await one.page.locator(".steps li").all_inner_texts()]
        assert steps[0].startswith("Enqueued")
        assert steps[1].startswith("Delivery 1 returned")
        assert "by worker-1" in steps[1]
        assert HOSTILE in steps[1]
        await one.open("/admin/topics/shop/jobs/4")
        await one.wait_for("It is running: leased by worker-1")
        assert await one.page.locator("progress").get_attribute("value") == "40"
        assert HOSTILE in await one.page.inner_text(".progress")
        await one.open("/admin/topics/shop/jobs/2")
        await one.wait_for("It is gone: acked at")
        assert '"total": 7' in await one.page.inner_text(".json")
        await one.open("/admin/topics/shop/jobs/11")
        await one.wait_for("Its group's job 10 comes first")
        await one.open("/admin/topics/shop/jobs/3")
        async with one.page.expect_navigation():
            await one.page.get_by_role("link", name="job 1 of shop.dead").click()
        await one.page.get_by_role("link", name="job 3 of shop").wait_for()
        assert await one.open("/admin/topics/shop/jobs/99") == 404
        await one.wait_for("There is no job 99")
        assert await one.page.locator(".tabs [aria-current]").inner_text() == "Jobs"
        await Hand(one).goes(one.page.get_by_role("link", name="Jobs of shop"))


async def test_times_among_the_words_are_those_of_the_viewer(boss: BrowserContext, shop: Running) -> None:
    async with tab(boss, shop.url) as one:
        for seq, expected in ((5, 1), (2, 2)):  # when it is to be had; when it ended, and until when its result is kept
            await one.open(f"/admin/topics/shop/jobs/{seq}")
            times = one.page.locator(".reasons time")
            assert await times.count() == expected
            for at in await times.all():
                there = datetime.fromisoformat(str(await at.get_attribute("datetime")))
                assert there.astimezone(ZoneInfo("Asia/Tokyo")).strftime("%H:%M:%S") in await at.inner_text()
                assert await at.get_attribute("title") == f"{there:%Y-%m-%d %H:%M:%S} UTC"
            assert re.search(r"\d{4}-\d\d-\d\dT", await one.page.inner_text(".reasons")) is None


async def test_the_filter_is_in_the_address_and_says_what_is_wrong(boss: BrowserContext, shop: Running) -> None:
    async with tab(boss, shop.url) as one:
        await one.open("/admin/topics/shop/jobs")
        assert await seqs(one) == [str(seq) for seq in (11, 10, 9, 8, 7, 6, 5, 4, 1)]
        await one.press("/")
        await one.page.keyboard.type("state:scheduled tag:late")
        async with one.page.expect_navigation():
            await one.press("Enter")
        assert one.page.url.endswith("/admin/topics/shop/jobs?q=state%3Ascheduled+tag%3Alate")
        assert await seqs(one) == ["9"]
        offered = await one.page.locator("#words option").evaluate_all("all => all.map(one => one.value)")
        assert "state:scheduled tag:late tenant:" in offered
        async with one.page.expect_navigation():
            await one.page.get_by_role("group", name="State").get_by_role("link", name="all").click()
        assert await one.page.input_value("[name=q]") == "tag:late"
        await one.open("/admin/topics/shop/jobs")
        async with one.page.expect_navigation():
            await one.page.get_by_role("link", name="g", exact=True).first.click()
        assert await seqs(one) == ["11", "10"]
        async with one.page.expect_navigation():
            await one.page.get_by_role("link", name="Seq").click()
        assert await seqs(one) == ["10", "11"]
        await one.open("/admin/topics/shop/jobs?q=state%3Aready+worker%3Aw1")
        assert "There is no word worker in this filter." in await one.page.inner_text("#wrong")
        assert await one.page.input_value("[name=q]") == "state:ready worker:w1"
        await one.page.fill("[name=q]", "7")
        async with one.page.expect_navigation():
            await one.press("Enter")
        assert one.page.url.endswith("/admin/topics/shop/jobs/7")


async def test_pages_of_a_long_list(boss: BrowserContext, shop: Running) -> None:
    async with client(shop, "root") as http, tab(boss, shop.url) as one:
        await Topic(http, "many.01").add(120, tag="t")
        await one.open("/admin/topics/many.01/jobs?q=tag%3At")
        found = await seqs(one)
        for _ in range(2):
            async with one.page.expect_navigation():
                await one.page.get_by_role("link", name="Next").click()
            found += await seqs(one)
        assert [int(seq) for seq in found] == list(range(120, 0, -1))
        assert await one.page.get_by_role("link", name="Next").count() == 0
        async with one.page.expect_navigation():
            await one.page.get_by_role("link", name="First").click()
        await one.ready()
        await one.press("j", "j")
        assert await one.focused() == "119"
        assert "119" in await seqs(one)


async def test_a_change_is_refused_beside_its_field_and_then_done(boss: BrowserContext, shop: Running) -> None:
    async with client(shop, "root") as http, tab(boss, shop.url) as one:
        queue = Topic(http, "many.02")
        await queue.append({"data": 1, "tag": "old", "priority": 3})
        await one.open("/admin/topics/many.02/jobs/1")
        await one.page.get_by_text("Change it").click()
        await one.page.fill("#to-priority", "11")
        await one.page.fill("#to-tag", "new <b>")
        await one.page.fill("#to-delay", "soon")
        async with one.page.expect_navigation():
            await one.page.get_by_role("button", name="Change", exact=True).click()
        assert await one.page.inner_text("#hint-priority") == "A priority is 0 to 9."
        assert "soon is no length of time" in await one.page.inner_text("#hint-delay")
        assert await one.page.input_value("#to-tag") == "new <b>"
        assert (await job_of(http, 1, "many.02"))["tag"] == "old"
        await one.page.fill("#to-priority", "9")
        await one.page.fill("#to-delay", "2h")
        async with one.page.expect_navigation():
            await one.page.get_by_role("button", name="Change", exact=True).click()
        shown = await job_of(http, 1, "many.02")
        assert (shown["tag"], shown["priority"], shown["state"]) == ("new <b>", 9, "scheduled")
        await confirm(one, "Run now")
        shown = await job_of(http, 1, "many.02")
        assert (shown["tag"], shown["priority"], shown["state"]) == ("new <b>", 9, "ready")
        await one.page.get_by_text("Change it").click()
        async with one.page.expect_navigation():
            await one.page.get_by_role("button", name="Change", exact=True).click()
        await one.wait_for("Nothing is to be changed.")
        await one.page.fill("#to-data", '{"n": 12345678901234567890,\n')
        async with one.page.expect_navigation():
            await one.page.get_by_role("button", name="Change", exact=True).click()
        await one.wait_for("The payload is no JSON that can be kept")
        assert await one.page.input_value("#to-data") == '{"n": 12345678901234567890,\n'
        await one.page.fill("#to-data", '{"n": 12345678901234567890,\n "n": 2}')
        async with one.page.expect_navigation():
            await one.page.get_by_role("button", name="Change", exact=True).click()
        answer = await http.get("/v0/topics/many.02/jobs/1")
        assert '"data":{"n": 12345678901234567890,\n "n": 2}' in answer.text


async def test_jobs_are_cloned_cancelled_and_requeued(boss: BrowserContext, shop: Running) -> None:
    async with client(shop, "root") as http, tab(boss, shop.url) as one:
        queue = Topic(http, "many.03")
        await queue.put(max_deliveries=1, on_exhausted="dead_letter", dead_letter="many.04")
        await queue.append({"data": PAYLOAD, "tag": "a", "priority": 5, "tenant": "t", "meta": {"m": 1}, "key": "k"})
        await one.open("/admin/topics/many.03/jobs/1")
        await confirm(one, "Clone")
        assert one.page.url.endswith("/admin/topics/many.03/jobs/2")
        first, twin = [await job_of(http, seq, "many.03") for seq in (1, 2)]
        assert "key" not in twin
        same = ("data", "tag", "priority", "tenant", "meta", "state")
        assert [twin[name] for name in same] == [first[name] for name in same]
        await confirm(one, "Cancel")
        await one.wait_for("It is gone: cancelled at")
        assert (await http.get("/v0/topics/many.03/jobs/2")).status_code == 404
        await one.open("/admin/topics/many.03/jobs/1")
        await queue.take("w")  # while the page is looked at
        await confirm(one, "Cancel")
        await one.wait_for("It was cancelled, and w still has it")
        assert (await job_of(http, 1, "many.03"))["cancelled"] is True

        (seq,) = (await queue.append({"data": 3}))["seqs"]
        await queue.take("w")
        await queue.fail("w", [seq], errors=["boom"])
        await one.open(f"/admin/topics/many.03/jobs/{seq}")
        async with one.page.expect_navigation():
            await one.page.get_by_role("link", name="job 1 of many.04").click()
        await one.ready()
        await confirm(one, "Requeue")
        assert one.page.url.endswith(f"/admin/topics/many.03/jobs/{seq}")
        assert (await job_of(http, seq, "many.03"))["deliveries"] == 0


async def test_leases_are_taken_back(boss: BrowserContext, axe: Axe, shop: Running) -> None:
    """Of one job by its page; of a group's job and of all that a worker holds by the topic's."""
    async with client(shop, "root") as http, tab(boss, shop.url) as one:
        queue = Topic(http, "many.21")
        await queue.put()
        await queue.append({"data": 1, "group": "g"}, {"data": 2, "group": "g"}, {"data": 3}, {"data": 4})
        await queue.claim("hung", max=9, lease_ms=3_600_000)
        await one.open("/admin/topics/many.21/jobs/3")
        await confirm(one, "Release")
        assert await one.page.locator("h2.job + .state").inner_text() == "ready"
        assert (await http.get("/v0/topics/many.21/jobs/3")).json()["last_error"] == "An operator took the lease back."
        await one.open("/admin/topics/many.21")
        assert await one.looked_at(axe, "around-release") == []
        await press(one, one.page.locator("#do-release-group-1"))
        assert [(await queue.take("well"))["$seq"] for _ in range(2)] == [3, 1]
        await one.open("/admin/topics/many.21")
        await press(one, one.page.locator("tr", has_text="hung").locator("button"))
        assert (await queue.ack("hung", [1, 3, 4]))["acked"] == 0
        assert (await queue.take("well"))["$seq"] == 4
        assert (await queue.ack("well", [1, 3, 4]))["acked"] == 3


async def test_what_is_refused_is_said_on_the_page(boss: BrowserContext, shop: Running) -> None:
    async with client(shop, "root") as http, tab(boss, shop.url) as one:
        queue = Topic(http, "many.05")
        await queue.put(max_deliveries=1, on_exhausted="dead_letter", dead_letter="many.06")
        (seq,) = (await queue.append({"data": 1, "key": "k"}))["seqs"]
        await queue.take("w")
        await queue.fail("w", [seq])
        await queue.append({"data": 2, "key": "k"})
        await one.open("/admin/topics/many.06/jobs/1")
        await confirm(one, "Requeue")
        await one.wait_for("A pending message has its key. It stays where it is.")
        await one.open("/admin/topics/many.05/jobs/2")
        await one.page.get_by_text("Change it").click()
        await one.page.fill("#to-priority", "4")
        await queue.take("w")
        async with one.page.expect_navigation():
            await one.page.get_by_role("button", name="Change", exact=True).click()
        assert "leased" in await one.page.inner_text("main > .wrong")
        assert (await job_of(http, 2, "many.05"))["priority"] == 0


async def test_who_only_reads_sees_all_and_changes_nothing(guest: BrowserContext, shop: Running) -> None:
    async with client(shop, "root") as http, tab(guest, shop.url) as one:
        await one.open("/admin/topics/mail.outbound/jobs")
        await sign_in(one, READER)
        assert len(await seqs(one)) == 12
        await one.open("/admin/topics/mail.outbound/jobs/1")
        assert await one.page.locator("main form").count() == 0
        proof = await one.page.input_value("[name=proof] >> nth=0")
        before = await job_of(http, 1, "mail.outbound")
        for verb in ("cancel", "change", "clone", "requeue", "release"):
            answer = await one.page.request.post(
                f"{shop.url}/admin/topics/mail.outbound/jobs/1/{verb}",
                form={"proof": proof, "delay": "2h"},
                headers={"origin": shop.url},
            )
            assert answer.status == 403
        assert {**await job_of(http, 1, "mail.outbound"), "performance": 0} == {**before, "performance": 0}
        await one.open("/admin/topics/shop/jobs/1")
        assert "Nothing that is granted to this user allows this in this topic." in await one.text()


async def test_the_command_works_as_it_is_copied(boss: BrowserContext, shop: Running) -> None:
    async with client(shop, "root") as http, tab(boss, shop.url) as one:
        await boss.grant_permissions(["clipboard-read", "clipboard-write"])
        await Topic(http, "many.07").append({"data": PAYLOAD, "tag": HOSTILE, "tenant": "t", "meta": {"m": HOSTILE}})
        await one.open("/admin/topics/many.07/jobs/1")
        await one.page.get_by_text("As a command").click()
        await one.page.get_by_role("button", name="Copy").click()
        await one.page.get_by_role("button", name="Copied").wait_for()
        command = await one.page.evaluate("navigator.clipboard.readText()")
        ran = await asyncio.create_subprocess_exec(
            *("bash", "-c", command),
            env={**os.environ, "HOLDFAST_API_KEY": "root"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
        )
        said: dict[str, Any] = json.loads((await ran.communicate())[0])
        first, twin = [await job_of(http, seq, "many.07") for seq in (1, said["seqs"][0])]
        same = ("data", "tag", "priority", "tenant", "meta", "state")
        assert [twin[name] for name in same] == [first[name] for name in same]


async def test_a_list_that_takes_too_long_says_so(boss: BrowserContext, shop: Running) -> None:
    async with tab(boss, shop.url) as one, shop.context.pools.rest.acquire() as db, db.transaction():
        await db.execute("LOCK TABLE holdfast.jobs")
        await one.open("/admin/topics/shop/jobs")
        await one.wait_for("The jobs can't be told at the moment.")
