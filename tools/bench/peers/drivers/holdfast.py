"""Holdfast over HTTP, by a minimal worker; holdfast_worker.py measures that of the SDK.

Run with the jobs in a request, and how many connections do them: each claims a batch by long poll, awaits the handler
for each of its jobs, acks the batch and claims the next, so that while one is at the database another has the
processor. One process, one thread, one event loop.
"""

from __future__ import annotations

import asyncio
import sys
import time
from typing import Any
from urllib.parse import urlsplit

import msgspec

from tools.bench.peers.drivers.protocol import Meter, in_lanes, serve, until_done

NODE = "bench"
WAIT_MS = 1000
LEASE_MS = 3_600_000
READ_AHEAD = 4 * 1024 * 1024


class Job(msgspec.Struct):
    seq: int = msgspec.field(name="$seq")
    lease_id: str
    data: Any


class Claimed(msgspec.Struct):
    claimed: list[Job]


class Acked(msgspec.Struct):
    acked: int


class Service(msgspec.Struct):
    version: str


_claimed = msgspec.json.Decoder(Claimed)
_acked = msgspec.json.Decoder(Acked)
_encode = msgspec.json.Encoder().encode


class Connection:
    """One request at a time over a connection that stays open."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader = reader
        self._writer = writer

    @classmethod
    async def open(cls, url: str) -> Connection:
        parts = urlsplit(url)
        return cls(*await asyncio.open_connection(parts.hostname, parts.port, limit=READ_AHEAD))

    async def call(self, method: str, path: str, body: bytes = b"") -> bytes:
        """The answer's body. Raises RuntimeError if it is not a 2xx."""
        head = f"{method} {path} HTTP/1.1\r\nhost: localhost\r\ncontent-type: application/json\r\n"
        self._writer.write(b"%bcontent-length: %d\r\n\r\n%b" % (head.encode(), len(body), body))
        head = (await self._reader.readuntil(b"\r\n\r\n")).decode().lower()
        length = int(head.split("content-length:", 1)[1].split("\r\n", 1)[0])
        answer = await self._reader.readexactly(length)
        if not head.startswith("http/1.1 2"):
            raise RuntimeError(answer[:400].decode(errors="replace"))
        return answer

    def close(self) -> None:
        self._writer.close()


async def no_op(_: Job) -> None:
    """The handler."""


class Holdfast:
    def __init__(self, batch: int, connections: int) -> None:
        self._batch = batch
        self._connections = connections
        self._url = ""
        self._topic = ""

    async def prepare(self, url: str) -> str:
        self._url = url
        self._topic = urlsplit(url).path
        connection = await Connection.open(url)
        await connection.call("GET", self._topic)
        health = await connection.call("GET", "/healthz")
        connection.close()
        return msgspec.json.decode(health, type=Service).version

    async def cycle(self, payloads: list[dict[str, str]], meter: Meter, claim: int | None) -> tuple[float, float]:
        opened = [await Connection.open(self._url) for _ in range(self._connections)]
        idle = list(opened)

        async def enqueue(some: list[dict[str, str]]) -> None:
            connection = idle.pop()
            records = {"records": [{"data": payload} for payload in some]}
            await connection.call("POST", f"{self._topic}?return_seqs=false", _encode(records))
            idle.append(connection)

        began = time.perf_counter()
        await in_lanes(enqueue, payloads, self._batch, self._connections)
        for connection in opened:
            connection.close()
        enqueued = time.perf_counter()
        meter.start()
        await self.run(meter, claim)
        return enqueued - began, time.perf_counter() - enqueued

    async def run(self, meter: Meter, claim: int | None) -> None:
        """Claim and ack until all is done."""
        opened = [await Connection.open(self._url) for _ in range(self._connections)]
        workers = asyncio.gather(*(self._work(connection, meter, claim or self._batch) for connection in opened))
        await until_done(workers, meter)
        workers.cancel()
        await asyncio.gather(workers, return_exceptions=True)
        for connection in opened:
            connection.close()

    async def _work(self, connection: Connection, meter: Meter, most: int) -> None:
        asked = _encode({"node": NODE, "max": most, "wait_ms": WAIT_MS, "lease_ms": LEASE_MS})
        while not meter.done.is_set():
            jobs = _claimed.decode(
                await connection.call("POST", f"{self._topic}/claim?return_counts=false", asked)
            ).claimed
            if not jobs:
                continue
            for job in jobs:
                await no_op(job)
            held = {"node": NODE, "seqs": [job.seq for job in jobs], "lease_ids": [job.lease_id for job in jobs]}
            answer = await connection.call("POST", f"{self._topic}/ack?return_counts=false", _encode(held))
            meter.handled(_acked.decode(answer).acked)


if __name__ == "__main__":
    serve(Holdfast(int(sys.argv[1]), int(sys.argv[2])))
