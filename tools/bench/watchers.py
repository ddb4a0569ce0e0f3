"""Clients that watch: many at once, and how soon a write reaches them."""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from tools.bench.client import post
from tools.bench.load import records_body
from tools.bench.waiters import PAUSE_SECONDS, Caller


@dataclass(frozen=True, slots=True)
class Tells:
    """For each of so many appends: seconds from sending it until each of the watchers had its record, ascending."""

    port: int
    topic: str
    watchers: int
    samples: int
    data: str

    async def run(self) -> list[list[float]]:
        caller = await Caller.open(self.port)
        body = json.dumps({"topics": {self.topic: {"tail": True}}}).encode()
        arrivals: list[float] = []
        full = asyncio.Event()
        loop = asyncio.get_running_loop()

        def arrived(at: float) -> None:
            arrivals.append(at)
            if len(arrivals) == self.watchers:
                full.set()

        watchers = []
        for _ in range(self.watchers):
            watch = json.loads(await caller.call(post("/v0/watch", body)))
            _, watcher = await loop.create_connection(lambda: _Watcher(arrived), "127.0.0.1", self.port)
            watcher.follow(watch["stream_url"])
            await watcher.caught_up.wait()
            watchers.append(watcher)
        append = post(f"/v0/topics/{self.topic}", records_body([self.data]))
        taken = []
        for _ in range(self.samples):
            await asyncio.sleep(random.uniform(*PAUSE_SECONDS))
            arrivals.clear()
            full.clear()
            began = time.perf_counter()
            await caller.call(append)
            await asyncio.wait_for(full.wait(), 30)
            taken.append([at - began for at in arrivals])
        for watcher in watchers:
            watcher.leave()
        return taken


class _Watcher(asyncio.Protocol):
    """A stream's client that does as little as can be: a hundred of them share a processor, and what each takes is
    added to the time until the last has its record."""

    def __init__(self, arrived: Callable[[float], None]) -> None:
        self._arrived = arrived
        self._transport: asyncio.Transport | None = None
        self._rest = b""
        self.caught_up = asyncio.Event()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop's is none by its type

    def follow(self, url: str) -> None:
        """Ask for the stream."""
        assert self._transport is not None
        self._transport.write(f"GET {url} HTTP/1.1\r\nhost: localhost\r\n\r\n".encode())

    def leave(self) -> None:
        """Hang up."""
        assert self._transport is not None
        self._transport.close()

    def data_received(self, data: bytes) -> None:
        """A whole frame, of which a record's counts."""
        data = self._rest + data
        if not data.endswith(b"\n\n\r\n"):  # a frame's end, and its chunk's
            self._rest = data
            return
        self._rest = b""
        if b"event: record" in data:
            self._arrived(time.perf_counter())
        elif b"event: caught-up" in data:
            self.caught_up.set()
