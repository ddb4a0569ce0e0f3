"""Clients of the real service, and a proxy that loses its answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from holdfast import AsyncClient, AsyncTopic, Queue, TopicConfig
from tests.conftest import Running
from tests.sdk.cli import Cli
from tests.sdk.proxy import Proxy

Serve = Callable[..., Awaitable[Running]]


@pytest.fixture
async def client(service: Running) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(service.url) as client:
        yield client


@pytest.fixture
async def queue(client: AsyncClient, topic: str) -> AsyncTopic:
    """A durable queue whose jobs come again at once, for ever: with v0's defaults, and not the SDK's own."""
    made = client.topic(topic)
    await made.put(TopicConfig(max_deliveries=None, dead_letter=None, backoff=None))
    return made


@pytest.fixture
async def proxy(service: Running) -> AsyncIterator[Proxy]:
    """What a client speaks through to the service."""
    async with Proxy(service.url) as proxy:
        yield proxy


@pytest.fixture
async def handlers(service: Running) -> AsyncIterator[Queue]:
    """To declare handlers on."""
    async with Queue(service.url) as handlers:
        yield handlers


@pytest.fixture
def cli(service: Running) -> Cli:
    """The command line, for the service."""
    return Cli(service.url)
