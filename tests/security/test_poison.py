"""What comes from elsewhere is believed in nothing: not a word of Redis, not an answer to a webhook."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING

import httpx
import pytest
from pydantic import SecretStr
from redis.asyncio import Redis as Client

from app.features.webhooks import http as hooks
from app.features.webhooks.http import AllowedTargets
from app.kernel.topics.hints import Hints
from tests.api.dialect import Topic, accepted
from tests.api.keyring import Services
from tests.topics.test_bus import Redis, redis
from tests.webhooks.receiver import Receiver

if TYPE_CHECKING:
    from tests.conftest import Running

__all__ = ["redis"]
POISON = [
    *(b"", b" ", b"\0", b"c", b"c x", b"c x " + b"t" * 1_000_000, b"c x ../../etc/passwd", b"c x \xff\xfe"),
    *(b"w x 1", b"w x -1 -1", b"w x 1e9 1", b"w x 99999999999999999999 99999999999999999999", "w x ٣ ٣".encode()),
    *(b"w x 1 " + b"9" * 5_000, b"u x " + b"0" * 16, b"u x " + b"\xff" * 16, b"k", b"k x y", b"m x", b"z x y"),
    *(b"c x a\nc x b", b"\x80\x04\x95pickle", b'{"topic":"t"}', b"%s%n%x{0}{__class__}"),
]


def test_a_hint_is_understood_or_passed_over() -> None:
    """With every ear of a process on it."""
    hints = Hints()
    heard: list[object] = []
    hints.topic_changed.subscribe(heard.append)
    hints.user_changed.subscribe(heard.append)
    hints.work_made.subscribe(lambda topic_id, jobs: heard.append((topic_id, jobs)))
    for message in POISON:
        hints.receive(message)
        hints.receive(message, relayed=True)
    assert all(isinstance(one, str | tuple) for one in heard)


@pytest.fixture
async def service(services: Services, redis: Redis) -> Running:
    return await services.start(redis_url=SecretStr(redis.url))


async def test_a_redis_that_says_anything_changes_nothing_that_is_kept(
    service: Running, http: httpx.AsyncClient, redis: Redis, caplog: pytest.LogCaptureFixture
) -> None:
    """Messages on its channels, and other kinds of values under its names: jobs go their way meanwhile."""
    queue = Topic(http, "poisoned")
    await queue.put(lease_ms=60_000, throughput_limit=1_000)
    client = Client.from_url(redis.url)
    poisoned = 0
    try:
        for round_ in range(3):
            await queue.add(3)
            job = await queue.take()
            channels = list(await client.pubsub_channels())
            for channel in channels:
                for message in POISON:
                    await client.publish(channel, message)
            for key in [key async for key in client.scan_iter("*")]:
                poisoned += 1
                await client.delete(key)
                if round_ % 3 == 0:
                    await client.set(key, b"\xc1junk")
                elif round_ % 3 == 1:
                    await client.lpush(key, b"junk")
                else:
                    await client.hset(key, "tokens", "nan")
            assert (await queue.ack("n", [job["$seq"]]))["acked"] == 1
            assert accepted(await http.get(queue.path))["config"]["lease_ms"] == 60_000
        assert channels, "it listens to none"
    finally:
        await client.aclose()
    assert (await queue.state())["count"] == 6
    assert poisoned
    assert "Traceback" not in caplog.text
    assert [record for record in caplog.records if record.levelname == "ERROR"] == []


HOSTILE = [
    b"",
    b"\0" * 100,
    b"HTTP/1.1 000 x\r\n\r\n",
    b"HTTP/1.1 99 x\r\n\r\n",
    b"HTTP/1.1 1000 x\r\n\r\n",
    b"HTTP/9.9 200 OK\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: -1\r\n\r\n",
    b"HTTP/1.1 200 OK\r\ncontent-length: 1\r\ncontent-length: 2\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nx: " + b"y" * 1_000_000,
    b"HTTP/1.1 200 " + b"O" * 1_000_000,
    b"HTTP/1.1 100 Continue\r\n\r\n" * 1_000,
    b"HTTP/1.1 101 Switching\r\nupgrade: x\r\n\r\n",
    b"HTTP/1.1 200 OK\r\nx\0y: z\r\n\r\n",
    b"SSH-2.0-OpenSSH\r\n",
    b"\x16\x03\x01\x00\x05hello",
]


async def test_a_receivers_answer_is_a_status_or_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """And is waited for and read within bounds."""
    monkeypatch.setattr(hooks, "TIMEOUT_SECONDS", 2.0)

    async def asked(answer: bytes) -> int | None:
        receiver = Receiver()
        await receiver.up()
        receiver.answers = [answer]
        status: int | None = None
        with contextlib.suppress(hooks.AnswerError, TimeoutError, OSError):
            async with asyncio.timeout(30):
                status = await hooks.post(receiver.url(), {}, b"{}", AllowedTargets(frozenset({"127.0.0.1"})))
        await receiver.down()
        return status

    statuses = await asyncio.gather(*(asked(answer) for answer in HOSTILE))
    assert [status for status in statuses if status is not None and not 100 <= status <= 599] == []
