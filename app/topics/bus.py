"""Hints between processes, over Redis pub/sub: a topic changed, there is work, API keys changed. docs/semantics.md,
sections 4, 15 and 21.

Nothing waits for Redis and nothing is lost with it: a hint that can't be sent is dropped, and what it would have said
is found by the cache's TTL or by the poll. Messages: `c <process> <topic>`, `w <process> <topic id> <jobs>` and, for
changed API keys, `k <process>`.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import secrets
from collections.abc import Callable
from typing import Final

from redis.asyncio import Redis
from redis.exceptions import RedisError

from app.metrics import catalogue
from app.metrics.numbers import Numbers

CHANNEL: Final = "holdfast:hints"
GATHER_SECONDS: Final = 0.02  # hints of so long go out together
MOST_WAITING: Final = 1_000
TIMEOUT_SECONDS: Final = 2.0
RETRY_SECONDS: Final = 1.0
LISTEN_SECONDS: Final = 5.0

log = logging.getLogger(__name__)


class Bus:
    """One process's ends of the channel.

    `on_changed(topic)`: its configuration is another now. `on_work(topic id, jobs)`: so many were added elsewhere.
    `on_keys()`: API keys were made, rotated or revoked. `on_missed()`: hints may have been lost, because the
    subscription is new.
    """

    def __init__(self, url: str, numbers: Numbers | None = None) -> None:
        counted = numbers or Numbers()
        self._sent, self._dropped, self._heard_of = (
            counted.counter(catalogue.HINTS, outcome) for outcome in ("sent", "dropped", "heard")
        )
        self._connected = False
        counted.levels.append(lambda: [(catalogue.REDIS, (), int(self._connected))])
        self._redis = Redis.from_url(
            url, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS, health_check_interval=15
        )
        self._me = secrets.token_hex(8)
        self._changed: set[str] = set()
        self._work: dict[int, int] = {}
        self._keys = False
        self._something = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self.on_changed: Callable[[str], None] = lambda _topic: None
        self.on_work: Callable[[int, int], None] = lambda _topic_id, _jobs: None
        self.on_keys: Callable[[], None] = lambda: None
        self.on_missed: Callable[[], None] = lambda: None

    def start(self) -> None:
        """Start sending and listening."""
        self._tasks = [asyncio.create_task(self._send()), asyncio.create_task(self._listen())]

    async def stop(self) -> None:
        """Stop both."""
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        with contextlib.suppress(RedisError, OSError, TimeoutError):
            await asyncio.wait_for(self._redis.aclose(), TIMEOUT_SECONDS)

    def changed(self, topic: str) -> None:
        """Tell the others that a topic's configuration is another now. Never waits."""
        if len(self._changed) < MOST_WAITING:
            self._changed.add(topic)
            self._something.set()
        else:
            self._dropped.add()

    def work(self, topic_id: int, jobs: int) -> None:
        """Tell the others that so many jobs can be claimed. Never waits."""
        if topic_id in self._work or len(self._work) < MOST_WAITING:
            self._work[topic_id] = self._work.get(topic_id, 0) + jobs
            self._something.set()
        else:
            self._dropped.add()

    def keys(self) -> None:
        """Tell the others that API keys have changed. Never waits."""
        self._keys = True
        self._something.set()

    async def _send(self) -> None:
        while True:
            await self._something.wait()
            self._something.clear()
            messages = [f"c {self._me} {topic}" for topic in self._changed]
            messages += [f"w {self._me} {topic_id} {jobs}" for topic_id, jobs in self._work.items()]
            messages += [f"k {self._me}"] if self._keys else []
            self._changed.clear()
            self._work.clear()
            self._keys = False
            try:
                pipeline = self._redis.pipeline(transaction=False)
                for message in messages:
                    pipeline.publish(CHANNEL, message)
                await pipeline.execute()
                self._sent.add(len(messages))
            except (RedisError, OSError, TimeoutError) as error:
                self._dropped.add(len(messages))
                log.warning("Redis does not take hints at the moment: %r", error)
                await asyncio.sleep(RETRY_SECONDS)
            await asyncio.sleep(GATHER_SECONDS)

    async def _listen(self) -> None:
        while True:
            try:
                async with self._redis.pubsub(ignore_subscribe_messages=False) as channel:
                    await channel.subscribe(CHANNEL)
                    while True:
                        message = await channel.get_message(timeout=LISTEN_SECONDS)
                        if message is None:
                            await channel.ping()
                        elif message["type"] == "subscribe":
                            self._connected = True
                            self.on_missed()
                        elif message["type"] == "message":
                            self._heard(message["data"])
            except (RedisError, OSError, TimeoutError) as error:
                self._connected = False
                log.warning("Redis gives no hints at the moment: %r", error)
                await asyncio.sleep(RETRY_SECONDS)

    def _heard(self, data: bytes) -> None:
        match data.decode(errors="replace").split(" "):
            case [_, me, *_] if me == self._me:
                pass
            case ["c", _, topic]:
                self._heard_of.add()
                self.on_changed(topic)
            case ["w", _, topic_id, jobs] if topic_id.isdecimal() and jobs.isdecimal() and len(topic_id + jobs) < 30:
                self._heard_of.add()
                self.on_work(int(topic_id), int(jobs))
            case ["k", _]:
                self.on_keys()
            case _:
                log.warning("A hint of another kind: %r", data[:100])


async def announce_keys(url: str) -> bool:
    """Tell all processes once that API keys have changed, for a command that doesn't stay; whether Redis took it."""
    redis = Redis.from_url(url, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS)
    try:
        await redis.publish(CHANNEL, f"k {secrets.token_hex(8)}")
    except (RedisError, OSError, TimeoutError):
        return False
    finally:
        with contextlib.suppress(RedisError, OSError, TimeoutError):
            await redis.aclose()
    return True
