"""What a topic's page says of the workers around it."""

from __future__ import annotations

import asyncio
import contextlib
import html
import re
from collections.abc import AsyncIterator, Sequence

import httpx
import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser

from app.pages import render
from tests.admin.browser import tab, visitor
from tests.api.dialect import Topic, eventually, until_waiting
from tests.api.events import working
from tests.api.keyring import client
from tests.conftest import Running

HOSTILE = "<u>worker</u>"


@pytest.fixture
async def queue(http: httpx.AsyncClient, topic: str) -> Topic:
    made = Topic(http, topic)
    await made.put()
    return made


@contextlib.asynccontextmanager
async def claiming(service: Running, queue: Topic, nodes: Sequence[str], **fields: object) -> AsyncIterator[None]:
    """Claims that wait for a job, one of each of these."""
    before = service.waiting(queue.name)
    calls = [asyncio.create_task(queue.claim(node, wait_ms=20_000, **fields)) for node in nodes]
    try:
        await until_waiting(service, queue.name, before + len(calls))
        yield
    finally:
        for call in calls:
            call.cancel()
        await asyncio.gather(*calls, return_exceptions=True)


async def told(queue: Topic) -> str:
    """What it says of workers, as it is read."""
    page = (await queue.http.get(f"/admin/topics/{queue.name}")).text
    assert "<u>" not in page
    section = page.partition("<h2>Workers</h2>")[2].partition("<h2>")[0].partition("</div>")[0]
    return " ".join(html.unescape(re.sub(r"<[^>]*>", "", section)).split())


async def test_a_release_that_finds_no_lease_says_so(small: Running, topic: str) -> None:
    async with client(small, "root") as http:
        queue = Topic(http, topic)
        await queue.put()
        await queue.append({"data": 1, "group": "g"})
        await queue.take("w")

        async def release(**fields: str) -> httpx.Response:
            return await http.post(f"/admin/topics/{topic}/release", data=fields)

        for fields, held in (({"node": "v"}, "job"), ({"node": "v", "group": "g"}, "job of group g")):
            answer = await release(**fields)
            assert answer.status_code == 404
            assert f"There was no lease to take back: v holds no {held} in {topic}." in answer.text
        assert (await release(node="w", group="g")).status_code == 303
        assert (await release(node="w")).status_code == 404


async def test_it_names_those_that_wait_in_claims_and_streams(service: Running, queue: Topic) -> None:
    assert await told(queue) == "Nobody holds a job."
    async with claiming(service, queue, [HOSTILE]):
        assert await told(queue) == f"Nobody holds a job; 1 call of this process waits for one: {HOSTILE}."
        async with working(queue, "stream"), claiming(service, queue, ["b", HOSTILE], tenants=["acme"]):
            await until_waiting(service, queue.name, 4)
            said = "4 calls of this process wait for one: <u>worker</u>, b, stream."
            assert await told(queue) == f"Nobody holds a job; {said}"


async def test_of_many_it_names_twenty(service: Running, queue: Topic) -> None:
    nodes = [f"w{n:02}" for n in range(22)]
    async with claiming(service, queue, nodes):
        said = f"22 calls of this process wait for one: {', '.join(nodes[:20])} and 2 more."
        assert await told(queue) == f"Nobody holds a job; {said}"
    await until_waiting(service, queue.name, 0)
    assert await told(queue) == "Nobody holds a job."


async def test_it_names_them_beside_those_that_hold_jobs(service: Running, queue: Topic) -> None:
    await queue.add(1)
    await queue.claim("busy", lease_ms=60_000)
    async with claiming(service, queue, ["idle"]):
        assert (await told(queue)).endswith("1 call of this process waits for a job: idle.")


async def test_long_names_have_room(browser: Browser, axe: Axe, service: Running, queue: Topic) -> None:
    nodes = [f"{n}-{'x' * 120}" for n in range(3)]
    async with (
        claiming(service, queue, nodes),
        visitor(browser, proxied=False) as context,
        tab(context, service.url) as one,
    ):
        await one.open(f"/admin/topics/{queue.name}")
        await one.wait_for("3 calls of this process wait for one")
        assert await one.looked_at(axe, "around-long-names") == []


async def test_the_oldest_job_may_be_behind_another_of_its_group(queue: Topic) -> None:
    await queue.put(wait_goal_ms=1)
    await queue.add(3, group="g")
    await queue.claim("hung", lease_ms=3_600_000)
    page = (await queue.http.get(f"/admin/topics/{queue.name}")).text
    assert re.search(r"<dt>Oldest</dt><dd>[^–]*very late", page.partition('<dl class="figures">')[2])
    assert re.search(r"1 group doesn(&#39;|')t move: .* and 2 jobs wait behind\.", page)
    assert "Groups that wait" in page


def test_a_release_says_whose_word_counts_later() -> None:
    """In the messages dialect all consumers are one node, and an ack may name no lease."""
    ui = render._templates().get_template("macros.html").module
    late_word = vars(ui)["late_word"]
    assert str(late_word(HOSTILE)) == f"what {html.escape(HOSTILE)} says of it later changes nothing"
    beside = "where it names the lease_id: all consumers of the messages dialect are this one"
    assert str(late_word("messages", "them")) == f"what messages says of them later changes nothing, {beside}"


async def test_the_list_shows_the_wait_that_it_sorts_by(queue: Topic) -> None:
    """Of a topic of which no job can be had, as all are behind one."""
    await queue.add(3, group="g")
    await queue.claim("hung", lease_ms=3_600_000)

    async def shown() -> bool:
        page = (await queue.http.get("/admin/topics", params={"q": queue.name})).text
        oldest = re.search(r'data-label="Oldest">(?:<span[^>]*>)?([^<]*)<', page)
        return oldest is not None and oldest[1] not in ("", "–")

    assert await eventually(shown)
