"""The admin pages over HTTP: what a page shows, and that nothing foreign runs in it."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import asyncpg
import httpx
import pytest

from app.features.explain.reasons import Reason, ReasonCode
from app.features.stats.rows import DepthStep, Durations, StatsStep
from app.features.topics.page import curves, depth
from app.pages import render
from tests.admin.operator import Operator
from tests.api.dialect import Topic, eventually
from tests.api.test_health import Link
from tests.conftest import Running

if TYPE_CHECKING:
    from tests.api.conftest import Serve

HOSTILE = "<script>alert(1)</script>"


def is_page(answer: httpx.Response, status: int) -> None:
    """An answer that is a page, with the headers of all of them."""
    assert answer.status_code == status
    assert answer.headers["content-type"] == "text/html; charset=utf-8"
    policy = answer.headers["content-security-policy"]
    assert "default-src 'none'; script-src 'self'; style-src 'self'" in policy
    assert "unsafe" not in policy
    assert answer.headers["cache-control"] == "no-store"
    assert answer.text.startswith("<!doctype html>")
    # The policy would stop these; a page that needs them is broken.
    assert re.search(r"<script(?! src=)|<style|\sstyle=|\son\w+=|javascript:", answer.text) is None


async def test_the_horizon_shows_who_holds_it_and_escapes_names(http: httpx.AsyncClient, service: Running) -> None:
    url = service.context.settings.database_url
    assert url is not None
    visitor = await asyncpg.connect(url.get_secret_value(), server_settings={"application_name": HOSTILE})
    try:
        await visitor.execute(f"BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT '{HOSTILE}<i>\"&'")
        answer = await http.get("/admin/horizon")
    finally:
        await visitor.close()
    is_page(answer, 200)
    assert HOSTILE not in answer.text
    assert "<i>" not in answer.text
    assert "<strong><bdi>&lt;script&gt;alert(1)&lt;/script&gt;</bdi></strong>" in answer.text
    assert "&lt;/script&gt;&lt;i&gt;&#34;&amp;" in answer.text
    assert f"SELECT pg_terminate_backend({visitor.get_server_pid()});" in answer.text
    assert "Nothing holds the horizon back." in answer.text  # for less than a minute


async def test_what_moves_is_fetched_alone(http: httpx.AsyncClient) -> None:
    whole = await http.get("/admin/horizon")
    part = await http.get("/admin/horizon", headers={"hx-request": "true", "hx-target": "live"})
    assert part.status_code == 200
    assert part.text.lstrip().startswith('<div id="live"')
    assert "<html" not in part.text
    assert whole.text.count('id="live"') == 1


async def test_it_loads_nothing_from_elsewhere(http: httpx.AsyncClient) -> None:
    page = (await http.get("/admin/horizon")).text
    links = re.findall(r'\s(?:href|src|action|hx-get)="([^"]*)"', page)
    assert links
    assert all(link.startswith(("/admin", "#", "data:image/")) for link in links)


async def test_assets_are_small_and_kept(http: httpx.AsyncClient) -> None:
    assert sum(map(len, render.ASSETS.values())) < 150_000
    page = (await http.get("/admin/horizon")).text
    for name in ("admin.css", "admin.js", "theme.js", "vendor/htmx.min.js"):
        assert render.asset_address(name) in page
    for name, content in render.ASSETS.items():
        answer = await http.get(render.asset_address(name))
        assert (answer.status_code, answer.content) == (200, content)
        assert answer.headers["cache-control"] == "public, max-age=31536000, immutable"
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert b"http://" not in content or name.startswith("vendor/") or name.endswith(".txt")
    before = await http.get("/admin/static/000000000000/admin.css")
    assert (before.status_code, before.headers["cache-control"]) == (200, "no-store")
    for path in ("admin.py", "../pages.py", "%2e%2e/pages.py", "vendor"):
        assert (await http.get(f"/admin/static/{render.ASSETS_VERSION}/{path}")).status_code == 404


async def test_the_list_of_topics_has_pages_and_orders_by_its_address(boss: Operator, queue: Topic) -> None:
    page = await boss.open("topics?q=many")
    assert len(page.rows) == 50
    page = await boss.follow(page, "Next")
    assert page.path.startswith("/admin/topics?q=many&")
    assert page.rows[0] == "many.50"
    worse = Topic(queue.http, f"{queue.name}.worse")
    await worse.put(max_deliveries=1, on_exhausted="fail")
    await worse.add(1)
    await worse.fail("n", [(await worse.take())["$seq"]])

    async def worst_first() -> bool:
        return (await boss.open(f"topics?q={queue.name}&sort=dead")).rows == [worse.name, queue.name]

    await eventually(worst_first, 30)


async def test_a_log_has_a_page_of_its_own(boss: Operator) -> None:
    assert "Records 2" in (await boss.open("topics/events")).text


async def test_errors_are_pages(http: httpx.AsyncClient, caplog: pytest.LogCaptureFixture) -> None:
    is_page(await http.get(f"/admin/{HOSTILE}"), 404)
    assert HOSTILE not in (await http.get(f"/admin/{HOSTILE}")).text
    is_page(await http.post("/admin/horizon"), 405)
    is_page(await http.get("/admin/horizon/"), 404)
    assert (await http.get("/admin/static/nothing")).status_code == 404
    assert [record.message for record in caplog.records if record.levelname == "ERROR"] == []


async def test_without_its_database_the_page_says_so(serve: Serve, database_url: str) -> None:
    link = Link(database_url)
    await link.join()
    service = await serve(database_url=link.url)
    async with httpx.AsyncClient(base_url=service.url, timeout=35) as client:
        is_page(await client.get("/admin/horizon"), 200)
        await link.cut()
        answer = await client.get("/admin/horizon")
        home = await client.get("/admin/")  # says it as one fact among others, with what was known last
    await service.stop()
    await link.cut()
    is_page(answer, 503)
    assert answer.headers["retry-after"] == "1"
    is_page(home, 200)
    assert "unreachable" in home.text
    assert "All is well." not in home.text


def test_curves_show_deliveries_and_those_that_were_not_the_first() -> None:
    step = StatsStep(60_000, 0, 0, 0, 3, 0, 0, 0, Durations(5, 0, 0, 0), Durations(0, None, None, None))
    chart, *_ = curves([60, 120], {60: step}, 60)
    lines: Any = chart.data["lines"]
    assert {line["name"]: line["y"] for line in lines} == {
        "enqueued": [0, 0],
        "claimed": [5, 0],
        "completed": [0, 0],
        "retried": [3, 0],
        "failed": [0, 0],
    }


def test_a_step_of_which_nothing_is_known_is_a_gap_in_the_depth() -> None:
    chart = depth([60, 120, 180], {60: DepthStep(60_000, 4, 0, 1, 0), 180: DepthStep(180_000, 0, 2, 0, 0)})
    lines: Any = chart.data["lines"]
    assert {line["name"]: line["y"] for line in lines} == {
        "ready": [4, None, 0],
        "in flight": [0, None, 2],
        "scheduled": [1, None, 0],
        "blocked": [0, None, 0],
    }
    assert (chart.nothing, "once a minute" in depth([60], {}).nothing) == ("", True)


def test_a_time_in_what_somebody_has_written_stays_as_it_is() -> None:
    words = (
        'It is scheduled for 2026-01-31T09:00:00.000Z, in 2 s. It was returned: "not before 2026-01-31T09:00:01.000Z".'
    )
    before, at, after = Reason(ReasonCode.SCHEDULED, words, {"until": 1_769_850_000_000, "deliveries": 1}).parts
    assert (before, at) == ("It is scheduled for ", 1_769_850_000_000)
    assert str(after).endswith('"not before 2026-01-31T09:00:01.000Z".')
    assert Reason(ReasonCode.NEXT, "It is next.").parts == ["It is next."]
