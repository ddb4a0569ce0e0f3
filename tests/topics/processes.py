"""What processes have of topics, at a Redis that they share."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import pytest
from redis.asyncio import Redis as Client

from app.base.db.pool import Pools
from app.base.metrics import Numbers, catalogue
from app.kernel.topics import cache, store
from app.kernel.topics.bus import Bus
from app.kernel.topics.hints import Hints
from app.kernel.topics.policy import AskedSettings, resolve
from app.kernel.topics.tier import Tier
from tests.engine.machines import Log, new_machine
from tests.topics.test_bus import Redis, until


@dataclass
class Process:
    """What a process of the service has of topics."""

    policies: cache.Policies
    tier: Tier
    log: Log
    numbers: Numbers
    hints: Hints

    async def lease_ms(self, name: str) -> int:
        return (await self.policies.get(name)).config.lease_ms

    @property
    def asked(self) -> int:
        """How often PostgreSQL was asked for a topic."""
        return self.log.count("get")

    def count(self, outcome: str) -> float:
        return self.numbers.counter(catalogue.CONFIG_READS, "redis", outcome).value

    def usable(self) -> bool:
        return any(f is catalogue.REDIS_CACHE and value for level in self.numbers.levels for f, _, value in level())


Start = Callable[..., Awaitable[Process]]


@pytest.fixture
async def start_process(pools: Pools) -> AsyncIterator[Start]:
    """Starts a process at a Redis; `hears`: it is told of changes, and tells. Waits until it can use it."""
    ends: list[Tier | Bus] = []

    async def start(url: str, *, hears: bool = False, usable: bool = True, variant: str = "") -> Process:
        machine = new_machine(pools)
        numbers, hints = Numbers(), Hints()
        second = Tier(url, machine.pools.rest, numbers, variant=variant)
        policies = cache.Policies(machine.pools.rest, numbers=numbers, second=second)
        process = Process(policies, second, machine.log, numbers, hints)
        second.start()
        ends.append(second)
        if hears:
            heard = asyncio.Event()
            hints.topic_changed.subscribe(policies.forget)
            hints.missed.subscribe(heard.set)
            policies.topic_changed.subscribe(hints.tell_changed)
            bus = Bus(url, hints, tier=second)
            bus.start()
            ends.append(bus)
            await asyncio.wait_for(heard.wait(), 10)
        if usable:
            await until(process.usable)
        return process

    yield start
    for end in ends:
        await end.stop()


Change = Callable[[int], Awaitable[None]]


@pytest.fixture
def change(pools: Pools, topic: str) -> Change:
    """Another process changes the topic; nobody is told."""

    async def change(lease_ms: int) -> None:
        await store.put(pools.rest, topic, resolve(topic, AskedSettings(type="queue", lease_ms=lease_ms)))

    return change


@asynccontextmanager
async def keys(redis: Redis) -> AsyncIterator[Client]:
    """A client that looks at what is there."""
    client = Client.from_url(redis.url)
    yield client
    await client.aclose()


async def copied(redis: Redis, process: Process, name: str) -> int:
    """Waits until there is a copy; its remaining life in ms."""
    async with keys(redis) as client:
        copy = process.tier.keys(name)[0]
        await until(lambda: client.exists(copy))
        return int(await client.pttl(copy))
