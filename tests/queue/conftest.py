"""A session and a queue of the test's own."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from app.kernel.topics.policy import Policy
from tests.queue.calls import Session


@pytest.fixture
async def db(connect: Callable[[], Awaitable[Session]]) -> Session:
    return await connect()


@pytest.fixture
async def queue(topic: str, make_queue: Callable[..., Awaitable[Policy]]) -> Policy:
    """With the defaults."""
    return await make_queue(topic)
