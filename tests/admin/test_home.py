"""What home and a topic's page say of topics that are late, and where not all is known."""

from __future__ import annotations

import re
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import httpx
import pytest

from tests.admin.operator import Operator, Page
from tests.api import minutes
from tests.api.conftest import Serve
from tests.api.dialect import Topic, eventually
from tests.api.keyring import Services, client
from tests.conftest import Running

WELL, NOT_ALL, NOTHING = "All is well.", "Some data is missing.", "No topics yet."


@pytest.fixture
async def alone(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> Running:
    """A service that has a topic of three it may look at, and has not looked at anything yet."""
    service = await (await Services.make(serve, new_database)).start(metrics_topics=2)
    async with client(service) as http:
        await Topic(http, "a").put()
    await minutes.tell(service.context.pools)
    return service


@pytest.fixture
async def http(alone: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with client(alone) as opened:
        yield opened


@asynccontextmanager
async def locked(service: Running, table: str) -> AsyncIterator[None]:
    """A table that nobody else can read meanwhile."""
    async with service.context.pools.rest.acquire() as db, db.transaction():
        await db.execute(f"LOCK TABLE holdfast.{table}")
        yield


async def home(http: httpx.AsyncClient) -> Page:
    return await Operator(http).open("")


async def test_all_is_well_where_all_is_known(http: httpx.AsyncClient) -> None:
    page = await home(http)
    assert WELL in page.text
    assert NOT_ALL not in page.text


async def test_what_is_not_looked_at_is_not_called_well(http: httpx.AsyncClient) -> None:
    for name in "bc":
        await Topic(http, name).put()
    page = await home(http)
    assert WELL not in page.text
    assert NOT_ALL in page.text
    assert "1 topic is over the limit of HOLDFAST_METRICS_TOPICS" in page.text


async def test_without_what_became_of_jobs_it_says_so(
    alone: Running, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.features.stats.overview.PATIENCE_SECONDS", 0.2)
    async with locked(alone, "topic_stats"):
        page = await home(http)
    assert WELL not in page.text
    assert NOT_ALL in page.text
    assert "Recent job statistics could not be read in time." in page.text
    assert "– completed in the last hour" in page.text


async def test_before_topics_were_looked_at_it_says_so(
    alone: Running, http: httpx.AsyncClient, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("app.kernel.counts.levels.PATIENCE_SECONDS", 1.0)
    async with locked(alone, "jobs"):
        page = await home(http)
    assert NOTHING not in page.text
    assert WELL not in page.text
    assert "Topics have not been read yet." in page.text


async def test_what_is_late_is_said_with_its_age_and_its_goal(alone: Running, http: httpx.AsyncClient) -> None:
    topic = Topic(http, "a")

    async def oldest() -> str:
        page = await Operator(http).open("topics/a")
        (figure,) = [one for one in page.all(".//dl/div") if one.startswith("Oldest")]
        return figure

    assert await oldest() == "Oldest – goal 1 min"
    await topic.add(1)
    assert re.fullmatch(r"Oldest \S+ m?s goal 1 min", await oldest())
    await topic.put(wait_goal_ms=0)
    assert re.fullmatch(r"Oldest \S+ m?s", await oldest())
    await topic.put(wait_goal_ms=1)
    assert re.fullmatch(r"Oldest \S+ m?s very late goal 1 ms", await oldest())
    await minutes.tell(alone.context.pools)
    said = r"1 job waits\. No claim was counted in the last \S+ m?s\. Oldest \S+ m?s, goal 1 ms\."
    assert re.search(said, (await home(http)).text)
    await http.post("/v0/topics/a/pause")
    paused = re.compile(r"The topic is paused\. 1 job is ready\. Oldest .*, goal 1 ms\.")

    async def told() -> bool:
        return paused.search((await home(http)).text) is not None

    await eventually(told, 30)


async def test_dead_letters_that_lie_are_not_late(http: httpx.AsyncClient) -> None:
    await Topic(http, "b").put(dead_letter="a")
    await Topic(http, "a").put(wait_goal_ms=1)
    await Topic(http, "a").add(1)
    page = await Operator(http).open("topics/a")
    assert "goal 1 ms" in page.text
    assert "late" not in page.all(".//dl")[0]


async def test_what_hurts_comes_before_what_is_so_on_purpose_and_says_why(
    alone: Running, http: httpx.AsyncClient
) -> None:
    hurts, calm = Topic(http, "a"), Topic(http, "b")
    await calm.put()
    await http.post(f"{calm.path}/pause")
    await calm.add(1)
    await hurts.put(max_deliveries=1, on_exhausted="fail")
    await hurts.add(4)
    seqs = [job["$seq"] for job in (await hurts.claim(max=4))["claimed"]]
    await hurts.ack("n", seqs[:2])
    await hurts.nack("n", seqs[2:], errors=["ValueError: no address"] * 2)
    await minutes.tell(alone.context.pools)

    async def said() -> Page | None:
        page = await home(http)
        return page if page.rows == ["a", "b"] and "Most common error: ValueError: no address" in page.text else None

    page = await eventually(said, 30)
    assert page is not None
    assert "2 jobs failed for good within 10 min, 50 % of the jobs that ended." in page.text
    assert (await Operator(http).follow(page, "ValueError")).rows == ["a:3", "a:4"]
