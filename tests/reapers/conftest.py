"""A database of the sweeps' own: they go through every topic that there is."""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable

import pytest

from app.base.db.pool import Pools, open_pools
from app.kernel.topics import store
from app.kernel.topics.policy import DEFAULTS, AskedSettings, Policy, resolve
from tests.engine.machines import Machine, new_machine


@pytest.fixture(scope="module")
async def url(new_database: Callable[[], Awaitable[str]]) -> str:
    return await new_database()


@pytest.fixture(scope="module")
async def own(url: str) -> AsyncIterator[Pools]:
    """Pools on it."""
    pools = await open_pools(url, hot=6, rest=6, prepared_statements=True)
    yield pools
    await pools.close(5)


@pytest.fixture
async def machine(own: Pools) -> AsyncIterator[Machine]:
    """An engine on it. The topics go at the end."""
    machine = new_machine(own)
    yield machine
    machine.engine.stop()
    await machine.engine.drain()
    for policy in await store.page(own.rest, "", "", 1_000, defaults=DEFAULTS):
        await store.delete(own.rest, policy.topic.name, if_empty=False)


@pytest.fixture
def make(machine: Machine) -> Callable[..., Awaitable[Policy]]:
    """Creates a queue."""

    async def make(name: str, **settings: object) -> Policy:
        asked = AskedSettings(**{"type": "queue", **settings})
        await store.put(machine.pools.rest, name, resolve(name, asked))
        return await machine.policies.queue(name)

    return make
