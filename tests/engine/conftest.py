"""Engines for a test, stopped and drained afterwards."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable

import pytest

from app.base.db.pool import Pools
from app.kernel.claim import waiters
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine, Make, new_machine


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
def make(topic: str, make_queue: Make) -> Make:
    """Makes a queue with these settings: the test's own, or one whose name goes on from its."""

    async def make(ending: str = "", **settings: object) -> Policy:
        return await make_queue(topic + ending, **settings)

    return make


@pytest.fixture
async def queue(topic: str, make_queue: Make) -> Policy:
    """A queue of the test's own, with the defaults."""
    return await make_queue(topic)


@pytest.fixture
def no_poll(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody comes by to look: what is found is found by a hint or a timer."""
    monkeypatch.setattr(waiters, "POLL_SECONDS", 600.0)
