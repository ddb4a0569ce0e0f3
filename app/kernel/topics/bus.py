"""Hints over Redis pub/sub, between all processes of a database. See hints.py.

While Redis does not answer, hints of changes are kept and sent later. Hints of work are dropped.
"""

from __future__ import annotations

import asyncio
import contextlib
import secrets
from typing import TYPE_CHECKING, Final

from redis.asyncio import Redis
from redis.asyncio.client import PubSub
from redis.exceptions import RedisError

from app.base.loops import Loop
from app.base.metrics import Numbers, catalogue
from app.kernel.topics.hints import GATHER_SECONDS, Hints

if TYPE_CHECKING:
    from app.kernel.topics.tier import Tier

CHANNEL: Final = "holdfast:hints"
TIMEOUT_SECONDS: Final = 2.0
RETRY_SECONDS: Final = 1.0
LISTEN_SECONDS: Final = 5.0


class Bus:
    """One process's connection to the channel. The copy of a changed topic is deleted from the `tier` before its hint
    is sent, so a process that gets the hint does not find the old copy."""

    def __init__(self, url: str, hints: Hints, numbers: Numbers | None = None, *, tier: Tier | None = None) -> None:
        counted = numbers or Numbers()
        self._sent, self._dropped, self._heard_of = (
            counted.counter(catalogue.HINTS, outcome) for outcome in ("sent", "dropped", "heard")
        )
        self._connected = False
        counted.levels.append(lambda: [(catalogue.REDIS, (), int(self._connected))])
        self._redis = Redis.from_url(
            url, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS, health_check_interval=15
        )
        self._hints = hints
        self._tier = tier
        # After an outage it starts to send only when the other processes listen again.
        retry = RETRY_SECONDS + GATHER_SECONDS
        self._sending = Loop(
            "send hints over Redis", self._send, gap=GATHER_SECONDS, retry=retry, passing=(RedisError,)
        )
        self._listening = Loop("receive hints over Redis", self._listen, retry=RETRY_SECONDS, passing=(RedisError,))
        self._outbox = hints.outbox(self._sending.wake)
        self._channel: PubSub | None = None

    def start(self) -> None:
        self._sending.start()
        self._listening.start()

    async def stop(self) -> None:
        await asyncio.gather(self._sending.stop(), self._listening.stop())
        with contextlib.suppress(RedisError, OSError, TimeoutError):
            await asyncio.wait_for(self._redis.aclose(), TIMEOUT_SECONDS)

    async def _send(self) -> None:
        batch = self._outbox.take()
        messages = batch.messages(self._hints.me)
        pipeline = self._redis.pipeline(transaction=False)
        copies = [] if self._tier is None else [key for topic in batch.changed for key in self._tier.keys(topic)]
        if copies:
            pipeline.delete(*copies)
        for message in messages:
            pipeline.publish(CHANNEL, message)
        try:
            await pipeline.execute()
        except (RedisError, OSError, TimeoutError):
            self._dropped.add(len(batch.work))
            self._outbox.put_back(batch)
            raise
        self._sent.add(len(messages))

    async def _listen(self) -> float:
        """Receive one message. The channel stays open for the next."""
        try:
            if self._channel is None:
                self._channel = self._redis.pubsub(ignore_subscribe_messages=False)
                await self._channel.subscribe(CHANNEL)
            message = await self._channel.get_message(timeout=LISTEN_SECONDS)
            if message is None:
                await self._channel.ping()
            elif message["type"] == "subscribe":
                self._connected = True
                self._hints.missed.emit()
            elif message["type"] == "message":
                self._heard_of.add(self._hints.receive(message["data"]))
        except BaseException:
            self._connected = False
            channel, self._channel = self._channel, None
            if channel is not None:
                with contextlib.suppress(RedisError, OSError, TimeoutError):
                    await channel.aclose()  # type: ignore[no-untyped-call]
            raise
        return 0.0


async def announce_keys(url: str) -> bool:
    """Tell all processes that API keys have changed, from a short command. Returns whether Redis took the hint."""
    redis = Redis.from_url(url, socket_timeout=TIMEOUT_SECONDS, socket_connect_timeout=TIMEOUT_SECONDS)
    try:
        await redis.publish(CHANNEL, f"k {secrets.token_hex(8)}")
    except (RedisError, OSError, TimeoutError):
        return False
    finally:
        with contextlib.suppress(RedisError, OSError, TimeoutError):
            await redis.aclose()
    return True
