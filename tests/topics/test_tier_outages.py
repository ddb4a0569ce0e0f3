"""Redis as the second tier, killed, stopped, or silent: nobody waits for it, and nothing old comes of it."""

from __future__ import annotations

import asyncio
import signal
import socket

import pytest

from app.kernel.topics import tier
from tests.engine.machines import Make
from tests.topics.processes import Change, Start, change, copied, start_process
from tests.topics.test_bus import Redis, redis, until

__all__ = ["change", "redis", "start_process"]


@pytest.mark.parametrize("how", ["killed", "stopped"])
async def test_nobody_waits_for_a_redis_that_is_away(
    how: str, redis: Redis, start_process: Start, make: Make, topic: str
) -> None:
    """The first may find out, and waits PATIENCE_SECONDS at most; then nobody asks it."""
    names = [(await make(f".{n}")).topic.name for n in range(30)]
    one = await start_process(redis.url, hears=True)
    if how == "killed":
        redis.kill()
    else:
        redis.signal(signal.SIGSTOP)
    one.policies.forget_all()
    await asyncio.wait_for(one.policies.get(names[0]), 10)
    before, skipped = one.asked, one.count("skipped")
    one.policies.forget_all()
    for name in names:
        await one.policies.get(name)
    assert one.count("skipped") == skipped + len(names)
    assert one.asked == before + len(names)
    if how == "killed":
        redis.start()
    else:
        redis.signal(signal.SIGCONT)
    await until(one.usable)
    one.policies.forget_all()
    await one.policies.get(names[0])
    assert one.count("skipped") == skipped + len(names)


async def test_a_redis_that_hangs_is_noticed_when_nobody_asks(redis: Redis, start_process: Start) -> None:
    one = await start_process(redis.url)
    redis.signal(signal.SIGSTOP)
    await until(lambda: not one.usable())
    assert one.count("failed") == 0
    redis.signal(signal.SIGCONT)
    await until(one.usable)


async def test_a_redis_that_takes_connections_and_never_answers_is_not_waited_for(
    start_process: Start, topic: str, change: Change
) -> None:
    await change(1_000)
    with socket.create_server(("127.0.0.1", 0)) as silent:
        one = await start_process(f"redis://127.0.0.1:{silent.getsockname()[1]}/0", usable=False)
        assert await one.lease_ms(topic) == 1_000
        assert (one.count("skipped"), one.count("failed")) == (1, 0)


async def test_what_a_hanging_redis_was_told_late_is_not_stored(
    redis: Redis, start_process: Start, topic: str, change: Change, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It hangs after the lease was given; what it is sent then, it does when it goes on."""
    monkeypatch.setattr(tier, "LEASE_SECONDS", 0.5)
    await change(1_000)
    one = await start_process(redis.url)

    async def hang() -> None:
        redis.signal(signal.SIGSTOP)

    one.log.after["get"] = hang
    await one.policies.get(topic)
    await until(lambda: not one.usable())
    await change(2_000)
    await asyncio.sleep(0.5)  # the lease ends by Redis's clock
    redis.signal(signal.SIGCONT)
    two = await start_process(redis.url)
    assert await two.lease_ms(topic) == 2_000


async def test_a_change_that_redis_did_not_hear_of_is_known_here(
    redis: Redis, start_process: Start, topic: str, change: Change
) -> None:
    await change(1_000)
    one = await start_process(redis.url, hears=True)
    await one.policies.get(topic)
    await copied(redis, one, topic)
    redis.signal(signal.SIGSTOP)
    await change(2_000)
    one.policies.announce(topic)
    assert await one.lease_ms(topic) == 2_000
    redis.signal(signal.SIGCONT)
    await until(one.usable)
    one.policies.forget_all()
    assert await one.lease_ms(topic) == 2_000, "the copy of before does not count"
