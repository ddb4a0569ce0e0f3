"""Services on a database of these tests' own: any service on it sends what is to be told there."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import TYPE_CHECKING

import httpx
import pytest

from tests.api.dialect import Topic
from tests.api.keyring import Services
from tests.webhooks.receiver import SECRET, Receiver

if TYPE_CHECKING:
    from tests.conftest import Running

Serve = Callable[..., Awaitable["Running"]]


@pytest.fixture(scope="module")
async def services(serve: Serve, new_database: Callable[[], Awaitable[str]]) -> Services:
    """Services on the database of these tests."""
    return await Services.make(serve, new_database)


@pytest.fixture(scope="module")
async def sending(services: Services) -> Running:
    """A service that may tell 127.0.0.1."""
    return await services.start(webhook_allow="127.0.0.1", webhook_secret=SECRET)


@pytest.fixture
async def http(sending: Running) -> AsyncIterator[httpx.AsyncClient]:
    async with httpx.AsyncClient(base_url=sending.url, timeout=35) as client:
        yield client


@pytest.fixture
async def receiver() -> AsyncIterator[Receiver]:
    receiver = Receiver()
    await receiver.up()
    yield receiver
    await receiver.down()


@pytest.fixture
async def queue(http: httpx.AsyncClient, topic: str) -> Topic:
    made = Topic(http, topic)
    await made.put()
    return made


async def complete_next(queue: Topic) -> None:
    """Take the next job of a queue and ack it."""
    job = await queue.take()
    await queue.ack("n", [job["$seq"]])
