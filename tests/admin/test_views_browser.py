"""Filters of jobs in a real browser: by what payloads have, under a name, and cancels of all that match."""

from __future__ import annotations

from urllib.parse import urlencode

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser, BrowserContext, expect

from app.features.saved_views import page as saved
from tests.admin.browser import Hand, Tab, signed_in, tab
from tests.admin.conftest import BOSS, HOSTILE, READER
from tests.admin.test_jobs_browser import confirm, seqs
from tests.api.dialect import Body, Topic, accepted
from tests.api.keyring import client
from tests.conftest import Running


async def search(one: Tab, text: str) -> None:
    await one.page.fill("[name=q] >> nth=0", text)
    async with one.page.expect_navigation():
        await one.page.press("[name=q] >> nth=0", "Enter")
    await one.ready()


async def test_jobs_are_found_by_what_they_have(boss: BrowserContext, small: Running) -> None:
    async with client(small, "root") as http, tab(boss, small.url) as one:
        queue = Topic(http, "many.20")
        await queue.append(
            {"data": {"order": {"id": 17}, HOSTILE: "x"}, "priority": 9},
            {"data": {"order": {"id": "17"}, "total": 3}},
            {"data": {"order": {"id": 18}}, "priority": 9},
        )
        await queue.take("worker 7")
        await one.open("/admin/topics/many.20/jobs")
        offered = await one.page.locator("#words option").evaluate_all("all => all.map(one => one.value)")
        assert {'node:"worker 7"', "data.total:", "priority:", "error:"} <= set(offered)
        for text, found in (
            ("data.order.id=17", ["2", "1"]),
            ("data.order.id:17 priority:9", ["1"]),
            ('node:"worker 7"', ["1"]),
            ("error:boom", []),
        ):
            await search(one, text)
            assert await seqs(one) == found, text
        await search(one, "priority:high")
        assert "priority must be a whole number." in await one.page.inner_text("#wrong")


async def test_a_view_is_saved_found_and_deleted(
    boss: BrowserContext, browser: Browser, axe: Axe, small: Running
) -> None:
    async with client(small, "root") as http, tab(boss, small.url) as one:
        await Topic(http, "many.21").append({"data": {"id": 1}}, {"data": {"id": 2}})
        await one.open("/admin/topics/many.21/jobs")
        assert await one.page.get_by_text("Save this view").count() == 0, "all jobs are no view"
        await search(one, "data.id:2")
        await one.page.get_by_text("Save this view").click()
        await one.page.fill("[name=name]", "a/b")
        async with one.page.expect_navigation():
            await one.page.locator("#do-save-view").click()
        assert "none of them /" in await one.page.inner_text("#wrong-name")
        assert await one.page.input_value("[name=name]") == "a/b"
        assert await one.page.input_value("[name=q] >> nth=0") == "data.id:2"
        await one.page.fill("[name=name]", "<bate orders")
        async with one.page.expect_navigation():
            await one.page.locator("#do-save-view").click()
        await one.ready()
        assert one.page.url.endswith("/admin/topics/many.21/jobs?q=data.id%3A2")
        assert await one.looked_at(axe, "jobs-views") == []
        await one.open("/admin/topics/many.22/jobs")
        assert await one.page.locator(".saved").count() == 0, "it is another topic's"
        # Elsewhere, and another day.
        async with signed_in(browser, small, BOSS) as elsewhere, tab(elsewhere, small.url) as other:
            hand = Hand(other)
            await other.open("/admin/")
            await other.press("Control+k")
            await other.page.keyboard.type("ate ord")
            await hand.goes(other.page.locator("#found").get_by_role("option", name="ate orders"))
            assert await seqs(other) == ["2"]
            assert (await other.page.locator(".saved [aria-current]").inner_text()) == "<bate orders"
            await confirm(other, "Delete the view <bate orders")
            assert await other.page.locator(".saved [aria-current]").count() == 0
            assert other.page.url.endswith("/admin/topics/many.21/jobs?q=data.id%3A2")
        async with signed_in(browser, small, READER) as reader, tab(reader, small.url) as theirs:
            await theirs.open("/admin/topics/mail.outbound/jobs?q=state%3Aready")
            await theirs.page.get_by_text("Save this view").click()
            await theirs.page.fill("[name=name]", "mine")
            async with theirs.page.expect_navigation():
                await theirs.page.locator("#do-save-view").click()
            await theirs.page.get_by_role("link", name="mine").wait_for()
        assert accepted(await http.get("/v0/views"))["views"] == [], "nobody else's"


async def test_every_list_with_a_filter_has_views(
    boss: BrowserContext, small: Running, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = {
        "/admin/topics": "?q=mail&sort=ready",
        "/admin/topics/mail.outbound/dead/jobs": "?error=smtp",
        "/admin/schedules": "?q=night",
        "/admin/audit": "?action=topic.created",
    }
    async with tab(boss, small.url) as one:
        for path, query in lists.items():
            await one.open(path)
            assert await one.page.get_by_text("Save this view").count() == 0, path
            await one.open(path + query)
            await one.page.get_by_text("Save this view").click()
            await one.page.fill(".saved [name=name]", f"of {path.split('/')[-1]}")
            async with one.page.expect_navigation():
                await one.page.locator("#do-save-view").click()
            await one.open(path)
            assert await one.page.locator(".saved a").get_attribute("href") == path + query
        await one.open("/admin/topics?q=mail&naming=one+more")
        assert await one.page.locator("#wrong-name").count() == 0
        monkeypatch.setattr(saved, "MOST", len(lists))
        await one.open("/admin/topics?q=mail&naming=one+more")
        assert f"You have {len(lists)} saved views" in await one.page.inner_text("#wrong-name")
        proof = await one.page.input_value("[name=proof] >> nth=0")
        for address in ("https://evil.example/admin/", "//evil.example/"):
            form: dict[str, str | float | bool] = {"proof": proof, "name": "x", "address": address}
            answer = await one.page.request.post(
                f"{small.url}/admin/views", form=form, headers={"origin": small.url}, max_redirects=0
            )
            assert answer.status == 400


async def test_all_that_match_are_counted_and_cancelled(boss: BrowserContext, axe: Axe, small: Running) -> None:
    async with client(small, "root") as http, tab(boss, small.url) as one:
        queue = Topic(http, "many.23")
        await queue.add(60, tag="bad")
        await queue.add(2, tag="good")
        await queue.take("w")
        await one.open("/admin/topics/many.23/jobs?q=state%3Afailed")
        assert await one.page.locator("#do-cancel-all").count() == 0  # what is over can't be cancelled
        await one.open("/admin/topics/many.23/jobs?q=tag%3Abad")
        async with one.page.expect_navigation():
            await one.page.locator("#do-cancel-all").click()
        await one.wait_for("Cancel about 60 jobs?")
        await one.page.fill("#rate", "-1")
        async with one.page.expect_navigation():
            await one.page.get_by_role("button", name="Cancel about 60 jobs").click()
        assert "A whole number from 0 to 100,000." in await one.page.inner_text("#rate-hint")
        assert await one.page.input_value("#rate") == "-1"
        assert await one.looked_at(axe, "jobs-cancel") == []
        await one.page.fill("#rate", "1000")
        await queue.add(1, tag="bad")  # while the question stands there: it is the filter that is confirmed
        async with one.page.expect_navigation():
            await one.page.get_by_role("button", name="Cancel about 60 jobs").click()
        await expect(one.page.locator("#live .badge").first).to_have_text("done")
        figures = " ".join((await one.page.inner_text(".figures")).split())
        assert "GONE 60 TOLD THEIR HOLDERS 1 OF 61" in figures.upper()
        assert (await queue.counts()) == (2, 1)
        entries: list[Body] = (await http.get("/v0/admin/audit?subject=many.23&page_size=2")).json()["entries"]
        assert [entry["action"] for entry in entries] == ["cancel.ended", "cancel.started"]
        assert (entries[1]["actor_name"], entries[1]["detail"]["filter"]) == (BOSS, {"tag": "bad"})


async def test_a_cancel_is_asked_for_again_once_twice_as_many_match(
    boss: BrowserContext, axe: Axe, small: Running
) -> None:
    async with client(small, "root") as http, tab(boss, small.url) as one:
        queue = Topic(http, "many.26")
        await queue.add(4, tag="bad")
        await one.open("/admin/topics/many.26/jobs/cancel?q=tag%3Abad")
        await queue.add(4, tag="bad")
        async with one.page.expect_navigation():
            await one.page.get_by_role("button", name="Cancel about 4 jobs").click()
        assert "at least doubled while you were asked: from 4 to 8." in await one.page.get_by_role("alert").inner_text()
        assert await one.looked_at(axe, "jobs-cancel-doubled") == []
        assert (await queue.counts()) == (8, 0), "nothing is cancelled"
        await queue.add(7, tag="bad")
        async with one.page.expect_navigation():
            await one.page.get_by_role("button", name="Cancel about 8 jobs").click()
        await expect(one.page.locator("#live .badge").first).to_have_text("done")
        assert (await queue.counts()) == (0, 0)


async def test_a_cancel_of_many_is_watched_and_stopped(boss: BrowserContext, axe: Axe, small: Running) -> None:
    async with client(small, "root") as http, tab(boss, small.url) as one:
        queue = Topic(http, "many.24")
        await queue.add(3_000, tag="bad")
        await one.open("/admin/topics/many.24/jobs/cancel?q=tag%3Abad")
        await one.page.fill("#rate", "5")
        async with one.page.expect_navigation():
            await one.page.get_by_role("button", name="Cancel about 3,000 jobs").click()
        await one.wait_for("Ends in about")
        await one.open("/admin/topics/many.24/jobs")
        async with one.page.expect_navigation():
            await one.page.get_by_role("link", name="Cancel of 3,000 jobs").click()
        await one.ready()
        assert await one.looked_at(axe, "jobs-operation") == []
        await confirm(one, "Stop")
        await expect(one.page.locator("#live .badge").first).to_have_text("cancelled")
        ready, _ = await queue.counts()
        assert 0 < ready < 3_000
        await one.open("/admin/topics/many.24/dead")
        assert await one.page.get_by_text("Requeues").count() == 0, "it is none"


async def test_failed_jobs_that_match_are_requeued(boss: BrowserContext, small: Running) -> None:
    async with client(small, "root") as http, tab(boss, small.url) as one:
        queue = Topic(http, "many.25")
        await queue.put(max_deliveries=1, on_exhausted="fail")
        await queue.append(*({"data": n, "tag": tag} for n in range(3) for tag in ("a", "b c")))
        await queue.nack("w", [job["$seq"] for job in (await queue.claim("w", max=6))["claimed"]], errors=["no"] * 6)
        for query in ("state:failed priority:0", "state:failed node:w", 'state:failed tenant:""', 'tag:"b c"'):
            await one.open(f"/admin/topics/many.25/jobs?{urlencode({'q': query})}")
            assert await one.page.locator("#do-requeue-all").count() == 0, query  # a requeue would take others, too
        which = urlencode({"q": 'state:failed tag:"b c" error:n'})
        await one.open(f"/admin/topics/many.25/jobs?{which}")
        async with one.page.expect_navigation():
            await one.page.locator("#do-requeue-all").click()
        await one.wait_for("Requeue about 3 jobs")
        await one.page.fill("#first", "0")
        async with one.page.expect_navigation():
            await one.page.locator("#do-requeue").click()
        await expect(one.page.locator("#live .badge").first).to_have_text("done")
        assert (await queue.counts())[0] == 3
    async with client(small, "root") as http:
        failed = accepted(await http.get("/v0/topics/many.25/jobs?state=failed"))["jobs"]
    assert {job["tag"] for job in failed} == {"a"}


async def test_who_may_not_cancel_or_save(browser: Browser, small: Running) -> None:
    async with signed_in(browser, small, READER) as reader, tab(reader, small.url) as one:
        await one.open("/admin/topics/mail.outbound/jobs?q=older%3A1ms")
        assert await one.page.locator("#do-cancel-all").count() == 0
        answer = await one.page.request.get(f"{small.url}/admin/topics/mail.outbound/jobs/cancel?q=older%3A1ms")
        assert answer.status == 403
        proof = await one.page.input_value("[name=proof] >> nth=0")
        form: dict[str, str | float | bool] = {"proof": proof, "q": "older:1ms", "sure": "99"}
        path = f"{small.url}/admin/topics/mail.outbound/jobs/cancel"
        assert (await one.page.request.post(path, form=form, headers={"origin": small.url})).status == 403
