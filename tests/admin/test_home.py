"""What home says where not all is known."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest

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
    monkeypatch.setattr("app.engine.overview.PATIENCE_SECONDS", 0.2)
    async with locked(alone, "topic_stats"):
        page = await home(alone)
    assert WELL not in page
    assert NOT_ALL in page
    assert "What became of jobs lately could not be read in time." in page
    assert "– completed within the hour" in page


async def test_before_topics_were_looked_at_it_says_so(alone: Running, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("app.engine.levels.PATIENCE_SECONDS", 1.0)
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
