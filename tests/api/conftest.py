"""Queues of the test's own."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import httpx
import pytest

from tests.api.dialect import Topic
from tests.api.keyring import Services, client
from tests.api.process import Process
from tests.conftest import Running

Serve = Callable[..., Awaitable[Running]]


@pytest.fixture
async def queue(http: httpx.AsyncClient, topic: str) -> Topic:
    """A queue with every default. `put` gives it other settings."""
    made = Topic(http, topic)
    await made.put()
    return made


@pytest.fixture
async def process(database_url: str, tmp_path: Path) -> AsyncIterator[Process]:
    """A service as a process of its own."""
    process = Process(database_url, tmp_path)
    yield process
    await asyncio.to_thread(process.stop)


@pytest.fixture(scope="module")
async def services(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> Services:
    """Services on a database of the module's own."""
    return await Services.make(serve, new_database)


@pytest.fixture(scope="module")
async def guarded(services: Services) -> Running:
    """A service with one key of the environment, which may do everything."""
    return await services.start(api_keys="root")


@pytest.fixture
async def root(guarded: Running) -> AsyncIterator[httpx.AsyncClient]:
    """A client of it with that key."""
    async with client(guarded, "root") as http:
        yield http
