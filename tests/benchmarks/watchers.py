"""Clients that watch: many at once, and how soon a write reaches them."""

from __future__ import annotations

import asyncio
import json
import random
import time
from dataclasses import dataclass

from tests.benchmarks.client import post
from tests.benchmarks.load import records_body
from tests.benchmarks.waiters import PAUSE_SECONDS, Caller


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
        tasks, writers = [], []  # a writer that nobody holds closes its connection
        for _ in range(self.watchers):
            watch = json.loads(await caller.call(post("/v0/watch", body)))
            reader, writer = await asyncio.open_connection("127.0.0.1", self.port)
            writer.write(f"GET {watch['stream_url']} HTTP/1.1\r\nhost: bench\r\n\r\n".encode())
            while not (await reader.readline()).startswith(b"event: caught-up"):
                pass
            writers.append(writer)
            tasks.append(asyncio.create_task(self._read(reader, arrivals, full)))
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
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        for writer in writers:
            writer.close()
        return taken

    async def _read(self, reader: asyncio.StreamReader, arrivals: list[float], full: asyncio.Event) -> None:
        while line := await reader.readline():
            if line.startswith(b"event: record"):
                arrivals.append(time.perf_counter())
                if len(arrivals) == self.watchers:
                    full.set()
