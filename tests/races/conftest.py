"""Sessions and engines that are each other's rivals."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from app.base.db.pool import open_pools
from app.kernel.topics.policy import Policy
from tests.engine.conftest import machine, start
from tests.engine.machines import Machine, new_machine
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


@pytest.fixture
async def processes(database_url: str) -> AsyncIterator[list[Machine]]:
    """Engines with pools of their own, as four processes have them."""
    pools = [await open_pools(database_url, hot=5, rest=2, prepared_statements=True) for _ in range(4)]
    machines = [new_machine(one) for one in pools]
    yield machines
    for one in machines:
        one.engine.stop()
        await one.engine.drain()
    for pool in pools:
        await pool.close(5)
