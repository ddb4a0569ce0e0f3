"""Engines for a test, stopped and drained afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from app.base.db.pool import Pools
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine, new_machine


@pytest.fixture
async def start(pools: Pools) -> AsyncIterator[Callable[..., Machine]]:
    """Starts an engine as a process of its own would have it."""
    started: list[Machine] = []

    def make(max_waiting: int = 10_000) -> Machine:
        machine = new_machine(pools, max_waiting=max_waiting)
        started.append(machine)
        return machine

    yield make
    for machine in started:
        machine.engine.stop()
        await machine.engine.drain()


@pytest.fixture
def machine(start: Callable[..., Machine]) -> Machine:
    """One engine."""
    return start()


@pytest.fixture
async def queue(topic: str, make_queue: Callable[..., Awaitable[Policy]]) -> Policy:
    """A queue of the test's own, with the defaults."""
    return await make_queue(topic)
