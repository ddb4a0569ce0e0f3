"""Clients of the real service, and a proxy that loses its answers."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from holdfast import AsyncClient, AsyncTopic
from tests.conftest import Running
from tests.sdk.proxy import Proxy

Serve = Callable[..., Awaitable[Running]]


@pytest.fixture
async def client(service: Running) -> AsyncIterator[AsyncClient]:
    async with AsyncClient(service.url) as client:
        yield client


@pytest.fixture
async def queue(client: AsyncClient, topic: str) -> AsyncTopic:
    """A durable queue with every default."""
    made = client.topic(topic)
    await made.put()
    return made


@pytest.fixture
async def proxy(service: Running) -> AsyncIterator[Proxy]:
    """What a client speaks through to the service."""
    async with Proxy(service.url) as proxy:
        yield proxy
