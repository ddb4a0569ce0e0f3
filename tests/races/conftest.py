"""Sessions and engines that are each other's rivals."""

from __future__ import annotations

from collections.abc import Awaitable, Callable

import pytest

from app.kernel.topics.policy import Policy
from tests.engine.conftest import machine, start
from tests.queue.calls import Session
from tests.races.rivals import Rivals

__all__ = ["machine", "start"]


@pytest.fixture
async def queue(topic: str, make_queue: Callable[..., Awaitable[Policy]]) -> Policy:
    """A queue of the test's own, with the defaults."""
    return await make_queue(topic)


@pytest.fixture
async def rivals(connect: Callable[[], Awaitable[Session]]) -> Rivals:
    """Three sessions. One that waits where it should not gives up, so that its test fails."""
    sessions = [await connect() for _ in range(3)]
    for session in sessions:
        await session.execute("SET lock_timeout = '5s'")
    return Rivals(*sessions)
