"""What home says of topics that are late, and where not all is known."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from axe_playwright_python.async_playwright import Axe
from playwright.async_api import Browser

from tests.admin.browser import tab, visitor
from tests.api import minutes
from tests.api.conftest import Serve
from tests.api.dialect import Topic
from tests.api.keyring import Services, client
from tests.conftest import Running

WELL, NOT_ALL, NOTHING = "All is well.", "Not all is known.", "Nothing is here yet."


@pytest.fixture
async def alone(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> Running:
    """A service that has a topic of three it may look at, and has not looked at anything yet."""
    service = await (await Services.make(serve, new_database)).start(metrics_topics=2)
    async with client(service) as http:
        await Topic(http, "a").put()
    await minutes.tell(service.context.pools)
    return service


async def home(service: Running) -> str:
    async with client(service) as http:
        return (await http.get("/admin/")).text


@asynccontextmanager
async def locked(service: Running, table: str) -> AsyncIterator[None]:
    """A table that nobody else can read meanwhile."""
    async with service.context.pools.rest.acquire() as db, db.transaction():
        await db.execute(f"LOCK TABLE holdfast.{table}")
        yield


async def test_all_is_well_where_all_is_known(alone: Running) -> None:
    page = await home(alone)
    assert WELL in page
    assert NOT_ALL not in page


async def test_without_what_became_of_jobs_it_says_so(alone: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.features.stats.overview.PATIENCE_SECONDS", 0.2)
    async with locked(alone, "topic_stats"):
        page = await home(alone)
    assert WELL not in page
    assert NOT_ALL in page
    assert "What became of jobs lately could not be read in time." in page
    assert "– completed within the hour" in page


async def test_before_topics_were_looked_at_it_says_so(alone: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.kernel.counts.levels.PATIENCE_SECONDS", 1.0)
    async with locked(alone, "jobs"):
        page = await home(alone)
    assert NOTHING not in page
    assert WELL not in page
    assert "Topics have not been looked at yet." in page


async def test_what_is_not_looked_at_is_not_called_well(alone: Running) -> None:
    async with client(alone) as http:
        await Topic(http, "b").put()
        await Topic(http, "c").put()
    page = await home(alone)
    assert WELL not in page
    assert NOT_ALL in page
    assert "1 topic is not looked at" in page


async def late(service: Running, **settings: object) -> None:
    """A job that waits for longer than its topic's goal, of a millisecond."""
    async with client(service) as http:
        await Topic(http, "a").put(wait_goal_ms=1, **settings)
        await Topic(http, "a").add(1)
    await minutes.tell(service.context.pools)


def words(page: str) -> str:
    return " ".join(re.sub(r"<[^>]*>", "", page).split())


async def test_what_is_late_is_said_with_its_age_and_its_goal(alone: Running) -> None:
    await late(alone)
    told = words(await home(alone))
    assert re.search(
        r"1 job waits, and .* no worker claimed any in the last \d+ m?s\. Oldest \d+ m?s, goal 1 ms\.", told
    )


async def test_what_is_late_and_paused_is_said_so_too(alone: Running) -> None:
    await late(alone)
    async with client(alone) as http:
        await http.post("/v0/topics/a/pause")
    told = words(await home(alone))
    assert re.search(r"It is paused\. 1 job can be had and waits\. Oldest .*, goal 1 ms\.", told)


async def test_a_topics_page_marks_a_job_that_waits_for_longer_than_the_goal(alone: Running) -> None:
    async def oldest() -> str:
        """The figure, as it is read."""
        async with client(alone) as http:
            page = (await http.get("/admin/topics/a")).text
        (figure,) = re.findall(r'<div class="\w*"><dt>Oldest</dt>.*?</div>', page)
        return words(figure.replace("<", " <"))

    async with client(alone) as http:
        topic = Topic(http, "a")
        assert await oldest() == "Oldest – goal 1 min"
        await topic.add(1)
        assert re.fullmatch(r"Oldest \d+ m?s goal 1 min", await oldest())
        await topic.put(wait_goal_ms=1)
        assert re.fullmatch(r"Oldest \d+ m?s very late goal 1 ms", await oldest())
        await topic.put(wait_goal_ms=0)
        assert re.fullmatch(r"Oldest \d+ m?s", await oldest())


async def test_dead_letters_that_lie_are_not_late(alone: Running) -> None:
    async with client(alone) as http:
        await Topic(http, "b").put(dead_letter="a")
        await late(alone)
        page = (await http.get("/admin/topics/a")).text
    assert "goal 1 ms" in page
    assert "late</span>" not in page


async def test_how_late_looks(browser: Browser, axe: Axe, alone: Running) -> None:
    await late(alone)
    async with visitor(browser, proxied=False) as context, tab(context, alone.url) as one:
        await one.open("/admin/")
        await one.wait_for("Oldest")
        assert await one.looked_at(axe, "late-home") == []
        await one.open("/admin/topics/a")
        await one.wait_for("very late")
        assert await one.looked_at(axe, "late-topic") == []
