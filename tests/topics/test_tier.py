"""Copies of policies in a real Redis: shared, never old, and never waited for."""

from __future__ import annotations

import asyncio
import signal
import socket
import time
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass

import asyncpg
import pytest
from redis.asyncio import Redis as Client

from app.db.pool import Pools
from app.errors import NotAQueue, TopicNotFound
from app.metrics import catalogue
from app.metrics.numbers import Numbers
from app.topics import cache, store, tier
from app.topics.bus import Bus
from app.topics.config import Asked, Policy, resolve
from app.topics.hints import Hints
from app.topics.tier import Tier
from tests.engine.machines import Log, new_machine
from tests.topics.test_bus import Redis, redis, until

__all__ = ["redis"]


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
async def start(pools: Pools) -> AsyncIterator[Start]:
    """Starts a process at a Redis; `hears`: it is told of changes, and tells. Waits until it can use it."""
    ends: list[Tier | Bus] = []

    async def start(url: str, *, hears: bool = False, usable: bool = True, variant: str = "") -> Process:
        machine = new_machine(pools)
        numbers, hints = Numbers(), Hints()
        second = Tier(url, machine.pools.rest, numbers, variant=variant)
        policies = cache.Policies(machine.pools.rest, numbers)
        policies.second = second
        process = Process(policies, second, machine.log, numbers, hints)
        second.start()
        ends.append(second)
        if hears:
            heard = asyncio.Event()
            hints.on_changed, hints.on_missed = policies.forget, heard.set
            policies.on_changed = hints.changed
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
    """Somebody changes the topic; nobody is told."""

    async def change(lease_ms: int) -> None:
        await store.put(pools.rest, topic, resolve(topic, Asked(type="queue", lease_ms=lease_ms)))

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


async def test_what_one_process_has_asked_for_another_need_not(
    redis: Redis, start: Start, topic: str, change: Change
) -> None:
    await change(1_000)
    one, two = await start(redis.url), await start(redis.url)
    original = await one.policies.get(topic)
    await copied(redis, one, topic)
    copies = await asyncio.gather(*(two.policies.get(topic) for _ in range(20)))
    assert copies[0] == original
    assert (one.asked, two.asked) == (1, 0)
    assert (one.count("miss"), two.count("hit")) == (1, 1), "who ask together ask once"


async def test_a_copy_is_no_older_than_a_policy_may_be(
    redis: Redis, start: Start, topic: str, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ages add up: in the first process, in Redis, and in the second."""
    monkeypatch.setattr(cache, "TTL_SECONDS", 1.5)
    await change(1_000)
    one, two = await start(redis.url), await start(redis.url)
    began = time.monotonic()
    assert await one.lease_ms(topic) == 1_000
    assert await copied(redis, one, topic) <= 1_500
    await change(2_000)
    await until(lambda: time.monotonic() > began + 0.7)
    assert await two.lease_ms(topic) == 1_000
    assert two.asked == 0

    async def renewed() -> bool:
        return await two.lease_ms(topic) == 2_000

    await until(renewed)
    assert time.monotonic() - began < 1.5 + 0.2


async def test_a_load_that_takes_long_makes_its_copy_older(
    redis: Redis, start: Start, topic: str, change: Change
) -> None:
    await change(1_000)
    one = await start(redis.url)

    async def slow() -> None:
        await asyncio.sleep(0.3)

    one.log.before["get"] = slow
    await one.policies.get(topic)
    assert await copied(redis, one, topic) <= 29_700


async def test_an_old_row_is_never_stored_over_a_change(redis: Redis, start: Start, topic: str, change: Change) -> None:
    """A process reads the row, another one changes it and says so; only then the first one, which hears nothing, gets
    on."""
    await change(1_000)
    slow, changer, reader = await start(redis.url), await start(redis.url, hears=True), await start(redis.url)
    read, go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        del slow.log.after["get"]
        read.set()
        await go_on.wait()

    slow.log.after["get"] = hold
    early = asyncio.create_task(slow.policies.get(topic))
    await asyncio.wait_for(read.wait(), 5)
    await change(2_000)
    changer.policies.changed(topic)
    assert await changer.lease_ms(topic) == 2_000
    async with keys(redis) as client:
        lease = slow.tier.keys(topic)[1]
        await until(lambda: _not(client.exists(lease)))
        go_on.set()
        assert (await early).config.lease_ms == 1_000
        # What it has said so far has been answered when its next question is.
        with pytest.raises(TopicNotFound):
            await slow.policies.get(f"{topic}.none")
    assert await reader.lease_ms(topic) == 2_000


async def _not(fact: Awaitable[object]) -> bool:
    return not await fact


async def test_a_lease_that_has_ended_stores_nothing(
    redis: Redis, start: Start, topic: str, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tier, "LEASE_SECONDS", 0.1)
    await change(1_000)
    one = await start(redis.url)

    async def slow() -> None:
        await asyncio.sleep(0.2)

    one.log.before["get"] = slow
    await one.policies.get(topic)
    with pytest.raises(TopicNotFound):
        await one.policies.get(f"{topic}.none")
    async with keys(redis) as client:
        assert not await client.exists(one.tier.keys(topic)[0])


async def test_what_was_forgotten_is_asked_of_postgresql(
    redis: Redis, start: Start, topic: str, change: Change
) -> None:
    """A copy that is there does not count, and is replaced."""
    await change(1_000)
    one, two = await start(redis.url), await start(redis.url)
    await one.policies.get(topic)
    await copied(redis, one, topic)
    await change(2_000)
    two.policies.forget(topic)
    assert await two.lease_ms(topic) == 2_000
    await copied(redis, two, topic)
    three = await start(redis.url)
    assert await three.lease_ms(topic) == 2_000
    assert three.asked == 0


async def test_a_404_and_that_a_topic_is_no_queue_are_postgresqls_word(
    redis: Redis, start: Start, topic: str, pools: Pools, change: Change
) -> None:
    one, two = await start(redis.url), await start(redis.url)
    for process in (one, two):
        with pytest.raises(TopicNotFound):
            await process.policies.get(topic)
        assert process.asked == 1
    await store.put(pools.rest, topic, resolve(topic, Asked(type="log")))
    with pytest.raises(NotAQueue):
        await one.policies.queue(topic)
    assert await store.delete(pools.rest, topic, if_empty=False)
    await change(1_000)
    assert (await two.policies.queue(topic)).config.lease_ms == 1_000


async def test_a_change_is_known_where_it_is_heard(redis: Redis, start: Start, topic: str, change: Change) -> None:
    processes = [await start(redis.url, hears=True) for _ in range(4)]
    await change(1_000)
    for process in processes:
        assert await process.lease_ms(topic) == 1_000
    await change(2_000)
    processes[0].policies.changed(topic)
    assert await processes[0].lease_ms(topic) == 2_000, "here it is known before anybody is told"

    async def known() -> bool:
        return {await process.lease_ms(topic) for process in processes} == {2_000}

    await until(known, 1)


async def test_processes_that_read_policies_otherwise_share_none(
    redis: Redis, start: Start, topic: str, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of a version with another format, with other defaults, or on another database."""
    await change(1_000)
    one, other_defaults = await start(redis.url), await start(redis.url, variant="retries=5")
    monkeypatch.setattr(tier, "FORMAT", tier.FORMAT + 1)
    newer = await start(redis.url)
    await one.policies.get(topic)
    await copied(redis, one, topic)
    for process in (other_defaults, newer):
        assert await process.lease_ms(topic) == 1_000
        assert process.asked == 1


async def test_copies_of_two_databases_are_apart(
    redis: Redis, start: Start, new_database: Callable[[], Awaitable[str]], pools: Pools
) -> None:
    first = await start(redis.url)
    elsewhere = await asyncpg.create_pool(await new_database(), min_size=1, max_size=1)
    second = Tier(redis.url, elsewhere)
    second.start()
    await until(lambda: second.keys("t"))
    assert set(second.keys("t")).isdisjoint(first.tier.keys("t"))
    await second.stop()
    await elsewhere.close()


async def test_what_is_no_policy_is_passed_over(redis: Redis, start: Start, topic: str, change: Change) -> None:
    await change(1_000)
    one = await start(redis.url)
    async with keys(redis) as client:
        await client.set(one.tier.keys(topic)[0], b"\xc1junk", ex=30)
    assert await one.lease_ms(topic) == 1_000


async def slowest(process: Process, names: list[str]) -> float:
    """Seconds of the slowest of these, each asked for anew."""
    process.policies.forget_all()
    worst = 0.0
    for name in names:
        began = time.perf_counter()
        await process.policies.get(name)
        worst = max(worst, time.perf_counter() - began)
    return worst


@pytest.mark.alone
@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_nobody_waits_for_a_redis_that_is_away(
    how: str, redis: Redis, start: Start, make_queue: Callable[..., Awaitable[Policy]], topic: str
) -> None:
    names = [f"{topic}.{n}" for n in range(30)]
    for name in names:
        await make_queue(name)
    one = await start(redis.url, hears=True)
    usual = await slowest(one, names)
    before = one.asked
    if how == "killed":
        redis.kill()
    else:
        redis.signal(signal.SIGSTOP)
    # The first may find out, and waits so long at most; then nobody does.
    first = await slowest(one, names[:1])
    assert first < tier.PATIENCE_SECONDS + usual + 0.05
    skipped = one.count("skipped")
    assert await slowest(one, names) < usual + 0.05
    assert one.count("skipped") == skipped + len(names)
    assert one.asked == before + 1 + len(names)
    if how == "killed":
        redis.start()
    else:
        redis.signal(signal.SIGCONT)
    await until(one.usable)
    one.policies.forget_all()
    await one.policies.get(names[0])
    assert one.count("skipped") == skipped + len(names)


async def test_a_redis_that_hangs_is_noticed_when_nobody_asks(redis: Redis, start: Start, topic: str) -> None:
    one = await start(redis.url)
    redis.signal(signal.SIGSTOP)
    await until(lambda: not one.usable(), 3)
    assert one.count("failed") == 0
    redis.signal(signal.SIGCONT)
    await until(one.usable)


async def test_a_redis_that_takes_connections_and_never_answers_is_not_waited_for(
    start: Start, topic: str, change: Change
) -> None:
    await change(1_000)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        one = await start(f"redis://127.0.0.1:{silent.getsockname()[1]}/0", usable=False)
        assert await one.lease_ms(topic) == 1_000
        assert (one.count("skipped"), one.count("failed")) == (1, 0)


async def test_what_a_hanging_redis_was_told_late_is_not_stored(
    redis: Redis, start: Start, topic: str, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs after the lease was given; what it is sent then, it does when it goes on."""
    monkeypatch.setattr(tier, "LEASE_SECONDS", 0.5)
    await change(1_000)
    one = await start(redis.url)

    async def hang() -> None:
        redis.signal(signal.SIGSTOP)

    one.log.after["get"] = hang
    await one.policies.get(topic)
    await until(lambda: not one.usable(), 3)
    await change(2_000)
    await asyncio.sleep(0.5)  # the lease ends by Redis's clock
    redis.signal(signal.SIGCONT)
    two = await start(redis.url)
    assert await two.lease_ms(topic) == 2_000


async def test_a_change_that_redis_did_not_hear_of_is_known_here(
    redis: Redis, start: Start, topic: str, change: Change
) -> None:
    await change(1_000)
    one = await start(redis.url, hears=True)
    await one.policies.get(topic)
    await copied(redis, one, topic)
    redis.signal(signal.SIGSTOP)
    await change(2_000)
    one.policies.changed(topic)
    assert await one.lease_ms(topic) == 2_000
    redis.signal(signal.SIGCONT)
    await until(one.usable)
    one.policies.forget_all()
    assert await one.lease_ms(topic) == 2_000, "the copy of before does not count"


async def test_more_doubts_than_are_remembered_doubt_all(
    redis: Redis, start: Start, topic: str, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tier, "MOST_DOUBTS", 3)
    await change(1_000)
    one, two = await start(redis.url), await start(redis.url)
    await one.policies.get(topic)
    await copied(redis, one, topic)
    await change(2_000)
    two.policies.forget(topic)
    for n in range(5):
        two.policies.forget(f"another.{n}")
    assert await two.lease_ms(topic) == 2_000
