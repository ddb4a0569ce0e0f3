"""Copies of policies in a real Redis: shared, and never older than they may be."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import asyncpg
import pytest

from app.base.db.pool import Pools
from app.errors import NotAQueue, TopicNotFound
from app.kernel.topics import cache, store, tier
from app.kernel.topics.policy import AskedSettings, resolve
from app.kernel.topics.tier import Tier
from tests.topics.processes import Change, Process, Start, change, copied, keys, start_process
from tests.topics.test_bus import Redis, redis, until

__all__ = ["change", "redis", "start_process"]


async def known(process: Process, name: str, redis: Redis) -> None:
    """A process has asked for a topic, and its copy is there."""
    await process.policies.get(name)
    await copied(redis, process, name)


async def test_what_one_process_has_asked_for_another_need_not(
    redis: Redis, start_process: Start, topic: str, change: Change
) -> None:
    await change(1_000)
    one, two = await start_process(redis.url), await start_process(redis.url)
    await known(one, topic, redis)
    copies = await asyncio.gather(*(two.policies.get(topic) for _ in range(20)))
    assert copies[0] == await one.policies.get(topic)
    assert (one.asked, two.asked) == (1, 0)
    assert (one.count("miss"), two.count("hit")) == (1, 1), "who ask together ask once"


async def test_a_copy_is_no_older_than_a_policy_may_be(
    redis: Redis, start_process: Start, topic: str, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ages add up: in the first process, in Redis, and in the second."""
    monkeypatch.setattr(cache, "TTL_SECONDS", 3.0)
    await change(1_000)
    one, two = await start_process(redis.url), await start_process(redis.url)
    began = time.monotonic()
    assert await one.lease_ms(topic) == 1_000
    assert await copied(redis, one, topic) <= 3_000
    await change(2_000)
    await until(lambda: time.monotonic() > began + 1.5)
    asked_at = time.monotonic()
    assert await two.lease_ms(topic) == 1_000
    assert two.asked == 0

    async def renewed() -> bool:
        return await two.lease_ms(topic) == 2_000

    await until(renewed)
    assert time.monotonic() - asked_at < 2.8, "it has counted only since the second process asked"


async def test_a_load_that_takes_long_makes_its_copy_older(
    redis: Redis, start_process: Start, topic: str, change: Change
) -> None:
    await change(1_000)
    one = await start_process(redis.url)

    async def slow() -> None:
        await asyncio.sleep(0.3)

    one.log.before["get"] = slow
    await one.policies.get(topic)
    assert await copied(redis, one, topic) <= 29_700


async def test_an_old_row_is_never_stored_over_a_change(
    redis: Redis, start_process: Start, topic: str, change: Change
) -> None:
    """A process reads the row, another one changes it and says so; only then the first one, which hears nothing, gets
    on."""
    await change(1_000)
    slow, reader = await start_process(redis.url), await start_process(redis.url)
    changer = await start_process(redis.url, hears=True)
    read, go_on = asyncio.Event(), asyncio.Event()

    async def hold() -> None:
        del slow.log.after["get"]
        read.set()
        await go_on.wait()

    slow.log.after["get"] = hold
    early = asyncio.create_task(slow.policies.get(topic))
    await read.wait()
    await change(2_000)
    changer.policies.announce(topic)
    assert await changer.lease_ms(topic) == 2_000
    async with keys(redis) as client:
        lease = slow.tier.keys(topic)[1]

        async def ended() -> bool:
            return not await client.exists(lease)

        await until(ended)
        go_on.set()
        assert (await early).config.lease_ms == 1_000
        # What it has said so far has been answered when its next question is.
        with pytest.raises(TopicNotFound):
            await slow.policies.get(f"{topic}.none")
    assert await reader.lease_ms(topic) == 2_000


async def test_a_lease_that_has_ended_stores_nothing(
    redis: Redis, start_process: Start, topic: str, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tier, "LEASE_SECONDS", 0.1)
    await change(1_000)
    one = await start_process(redis.url)

    async def slow() -> None:
        await asyncio.sleep(0.2)

    one.log.before["get"] = slow
    await one.policies.get(topic)
    with pytest.raises(TopicNotFound):
        await one.policies.get(f"{topic}.none")
    async with keys(redis) as client:
        assert not await client.exists(one.tier.keys(topic)[0])


@pytest.mark.parametrize("doubts", [1, 6])
async def test_what_was_forgotten_is_asked_of_postgresql(
    doubts: int, redis: Redis, start_process: Start, topic: str, change: Change
) -> None:
    """A copy that is there does not count, and is replaced; also if more are in doubt than are remembered."""
    await change(1_000)
    one, two = await start_process(redis.url), await start_process(redis.url)
    await known(one, topic, redis)
    await change(2_000)
    with pytest.MonkeyPatch.context() as few:
        few.setattr(tier, "MOST_DOUBTS", 3)
        for n in range(doubts):
            two.policies.forget(f"another.{n}" if n else topic)
        assert await two.lease_ms(topic) == 2_000
    await copied(redis, two, topic)
    three = await start_process(redis.url)
    assert await three.lease_ms(topic) == 2_000
    assert three.asked == 0


async def test_a_404_and_that_a_topic_is_no_queue_are_postgresqls_word(
    redis: Redis, start_process: Start, topic: str, pools: Pools, change: Change
) -> None:
    one, two = await start_process(redis.url), await start_process(redis.url)
    for process in (one, two):
        with pytest.raises(TopicNotFound):
            await process.policies.get(topic)
        assert process.asked == 1
    await store.put(pools.rest, topic, resolve(topic, AskedSettings(type="log")))
    with pytest.raises(NotAQueue):
        await one.policies.queue(topic)
    assert await store.delete(pools.rest, topic, if_empty=False)
    await change(1_000)
    assert (await two.policies.queue(topic)).config.lease_ms == 1_000


async def test_a_change_is_known_where_it_is_heard(
    redis: Redis, start_process: Start, topic: str, change: Change
) -> None:
    processes = [await start_process(redis.url, hears=True) for _ in range(3)]
    await change(1_000)
    for process in processes:
        assert await process.lease_ms(topic) == 1_000
    await change(2_000)
    processes[0].policies.announce(topic)
    assert await processes[0].lease_ms(topic) == 2_000, "here it is known before anybody is told"

    async def all_know() -> bool:
        return {await process.lease_ms(topic) for process in processes} == {2_000}

    await until(all_know, cache.TTL_SECONDS / 2)


async def test_processes_that_read_policies_otherwise_share_none(
    redis: Redis,
    start_process: Start,
    topic: str,
    change: Change,
    new_database: Callable[[], Awaitable[str]],
) -> None:
    """Of a version with another format, with other defaults, or on another database."""
    await change(1_000)
    one, other_defaults = await start_process(redis.url), await start_process(redis.url, variant="retries=5")
    with pytest.MonkeyPatch.context() as version:
        version.setattr(tier, "FORMAT", tier.FORMAT + 1)
        newer = await start_process(redis.url)
        await known(one, topic, redis)
        for process in (other_defaults, newer):
            assert await process.lease_ms(topic) == 1_000
            assert process.asked == 1
    elsewhere = await asyncpg.create_pool(await new_database(), min_size=1, max_size=1)
    other_database = Tier(redis.url, elsewhere)
    other_database.start()
    await until(lambda: other_database.keys("t"))
    assert set(other_database.keys("t")).isdisjoint(one.tier.keys("t"))
    await other_database.stop()
    await elsewhere.close()


async def test_what_is_no_policy_is_passed_over(redis: Redis, start_process: Start, topic: str, change: Change) -> None:
    await change(1_000)
    one = await start_process(redis.url)
    async with keys(redis) as client:
        await client.set(one.tier.keys(topic)[0], b"\xc1junk", ex=30)
    assert await one.lease_ms(topic) == 1_000
