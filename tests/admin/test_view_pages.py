"""Filters under a name, and what is done to all jobs that match one: cancels and requeues."""

from __future__ import annotations

import secrets
from urllib.parse import urlencode

import pytest

from app.features.saved_views import page as saved
from tests.admin.conftest import HOUR
from tests.admin.operator import Operator, at_the_pages
from tests.admin.test_failed_pages import ended, trail
from tests.api.dialect import Topic, accepted, eventually
from tests.api.people import add_user
from tests.conftest import Running


async def test_a_view_is_saved_kept_for_its_owner_and_deleted(boss: Operator, reader: Operator, queue: Topic) -> None:
    await queue.append({"data": {"id": 1}}, {"data": {"id": 2}})
    jobs = f"topics/{queue.name}/jobs"
    page = await boss.open(jobs)
    assert page.button("do-save-view") is None, "all jobs are no view"
    page = await boss.press(page, "Filter", q="data.id:2")
    page = await boss.press(page, "do-save-view", name="a/b")
    assert "without / and" in page.fault("name")
    assert (page.value("name"), page.value("q")) == ("a/b", "data.id:2")
    name = f"<b{queue.name} orders"
    page = await boss.press(page, "do-save-view", name=name)
    assert page.path == f"/admin/{jobs}?q=data.id%3A2"
    assert name in (await boss.http.get("/admin/find", params={"q": queue.name})).text.replace("&lt;", "<")
    assert (await boss.follow(await boss.open(jobs), name)).rows == ["2"]
    assert (await boss.open("topics/orders/jobs")).link(name) is None, "it is another topic's"
    page = await boss.press(page, f"Delete the view {name}")
    assert (page.path, page.link(name)) == (f"/admin/{jobs}?q=data.id%3A2", None)

    page = await reader.open("topics/mail.outbound/jobs?q=state%3Aready")
    assert (await reader.press(page, "do-save-view", name="mine")).link("mine")
    assert (await boss.open("topics/mail.outbound/jobs")).link("mine") is None
    assert accepted(await queue.http.get("/v0/views"))["views"] == [], "nobody else's"


async def test_every_list_with_a_filter_has_views(
    service: Running, queue: Topic, monkeypatch: pytest.MonkeyPatch
) -> None:
    lists = {
        "/admin/topics": "?q=mail&sort=ready",
        "/admin/topics/mail.outbound/dead/jobs": "?error=smtp",
        "/admin/schedules": "?q=night",
        "/admin/audit": "?action=topic.created",
    }
    name = f"u-{secrets.token_hex(4)}"
    await add_user(queue.http, name=name, is_admin=True)
    async with at_the_pages(service, name) as one:
        for path, query in lists.items():
            assert (await one.open(path)).button("do-save-view") is None, path
            called = f"of {path.rpartition('/')[2]}"
            await one.press(await one.open(path + query), "do-save-view", name=called)
            assert (await one.open(path)).link(called) == path + query
        assert (await one.open("topics?q=mail&naming=one+more")).fault("name") == ""
        monkeypatch.setattr(saved, "MOST", len(lists))
        page = await one.open("topics?q=mail&naming=one+more")
        assert f"You have {len(lists)} saved views" in page.fault("name")
        for address in ("https://evil.example/admin/", "//evil.example/"):
            await one.press(page, "do-save-view", name="x", address=address, status=400)


async def test_all_that_match_are_counted_and_cancelled(boss: Operator, queue: Topic) -> None:
    await queue.add(60, tag="bad")
    await queue.add(2, tag="good")
    await queue.take("w", lease_ms=HOUR)
    jobs = f"topics/{queue.name}/jobs"
    assert (await boss.open(f"{jobs}?q=state%3Afailed")).link("Cancel all") is None, "what is over can't be cancelled"
    page = await boss.follow(await boss.open(f"{jobs}?q=tag%3Abad"), "Cancel all that match")
    page = await boss.press(page, "Cancel about 60 jobs", rate="-1", status=400)
    assert "Must be a whole number from 0 to 100,000." in page.fault("rate")
    assert page.value("rate") == "-1"
    await queue.add(1, tag="bad")  # while the question stands there: it is the filter that is confirmed
    page = await ended(boss, await boss.press(page, "Cancel about 60 jobs", rate="1000"))
    assert "Removed 60 Running, worker told 1 Matching 61" in page.text
    assert await queue.counts() == (2, 1)
    assert (await trail(queue))[:2] == [("cancel.ended", None), ("cancel.started", "boss")]


async def test_a_cancel_is_asked_for_again_once_twice_as_many_match(boss: Operator, queue: Topic) -> None:
    await queue.add(4, tag="bad")
    page = await boss.open(f"topics/{queue.name}/jobs/cancel?q=tag%3Abad")
    await queue.add(4, tag="bad")
    page = await boss.press(page, "Cancel about 4 jobs", status=409)
    assert "at least doubled since you opened this form: from 4 to 8." in page.text
    assert await queue.counts() == (8, 0), "nothing is cancelled"
    await queue.add(7, tag="bad")
    await ended(boss, await boss.press(page, "Cancel about 8 jobs"))
    assert await queue.counts() == (0, 0)


async def test_a_cancel_of_many_is_watched_and_stopped(boss: Operator, queue: Topic) -> None:
    await queue.add(1_000, tag="bad")
    page = await boss.open(f"topics/{queue.name}/jobs/cancel?q=tag%3Abad")
    page = await boss.press(page, "Cancel about 1,000 jobs", rate="1")
    assert "Ends in about" in page.text
    page = await boss.follow(await boss.open(f"topics/{queue.name}/jobs"), "Cancel of 1,000 jobs")
    await boss.press(page, "Stop")

    async def stopped() -> bool:
        return (await boss.open(page.path)).all(".//*[@id='live']//span")[0] == "cancelled"

    await eventually(stopped, 30)
    assert 0 < (await queue.counts())[0] <= 1_000
    assert "Requeues" not in (await boss.open(f"topics/{queue.name}/dead")).text, "it is none"


async def test_failed_jobs_that_match_are_requeued(boss: Operator, queue: Topic) -> None:
    await queue.put(max_deliveries=1, on_exhausted="fail")
    await queue.append(*({"data": n, "tag": tag} for n in range(3) for tag in ("a", "b c")))
    await queue.nack(
        "w", [job["$seq"] for job in (await queue.claim("w", max=6, lease_ms=HOUR))["claimed"]], errors=["no"] * 6
    )
    jobs = f"topics/{queue.name}/jobs"
    for query in ("state:failed priority:0", "state:failed node:w", 'state:failed tenant:""', 'tag:"b c"'):
        page = await boss.open(f"{jobs}?{urlencode({'q': query})}")
        assert page.link("Requeue all") is None, f"{query}: a requeue would take others, too"
    page = await boss.press(page, "Filter", q='state:failed tag:"b c" error:n')
    page = await boss.follow(page, "Requeue all that match")
    assert "Requeue about 3 jobs" in page.text
    await ended(boss, await boss.press(page, "do-requeue", first="0"))
    assert (await queue.counts())[0] == 3
    failed = accepted(await queue.http.get(f"{queue.path}/jobs?state=failed"))["jobs"]
    assert {job["tag"] for job in failed} == {"a"}
