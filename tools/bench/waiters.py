"""Workers that wait: many at once and idle, or one whose wait is timed."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass

from tools.bench.client import post
from tools.bench.load import ACK, CLAIM, LEASE_MS, NODE, ack_body, claim_body, records_body

POLL_MS = 30_000  # the longest that a claim may wait
PAUSE_SECONDS = (0.01, 0.03)  # between two samples: nothing is under way then


@asynccontextmanager
async def waiting(port: int, *, polls: Sequence[str] = (), streams: Sequence[str] = ()) -> AsyncIterator[None]:
    """A long poll for each topic in `polls`, asked again when it was answered; a work stream for each in `streams`."""
    tasks = []
    try:
        for topic in streams:
            reader, writer = await _open_stream(port, topic, most=10)
            tasks.append(asyncio.create_task(_read(reader, writer)))
        tasks += [asyncio.create_task(_poll(port, topic)) for topic in polls]
        yield
        for task in tasks:
            if task.done():
                task.result()  # raises what ended it
                raise RuntimeError("a worker stopped waiting")
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


@dataclass(frozen=True, slots=True)
class Wakes:
    """Seconds from sending an enqueue to having its job, for one worker that waits by long poll or work stream."""

    port: int
    topic: str
    stream: bool
    samples: int
    data: str

    async def run(self) -> list[float]:
        worker = _Stream(self.port, self.topic) if self.stream else _Poll(self.port, self.topic)
        producer, settler = await Caller.open(self.port), await Caller.open(self.port)
        enqueue = post(f"/v0/topics/{self.topic}", records_body([self.data]))
        taken: list[float] = []
        for _ in range(self.samples):
            waits = asyncio.create_task(worker.job())
            await asyncio.sleep(random.uniform(*PAUSE_SECONDS))
            began = time.perf_counter()
            adding = asyncio.create_task(producer.call(enqueue))
            answer = await asyncio.wait_for(waits, 30)
            taken.append(time.perf_counter() - began)
            await adding
            await settler.call(post(f"/v0/topics/{self.topic}/{ACK}", ack_body(answer)[1]))
        return taken


class Caller:
    """One keep-alive connection, one request at a time."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._reader, self._writer = reader, writer

    @classmethod
    async def open(cls, port: int) -> Caller:
        return cls(*await asyncio.open_connection("127.0.0.1", port))

    async def call(self, request: bytes) -> bytes:
        """The answer's body. Raises RuntimeError if it is not 2xx."""
        self._writer.write(request)
        head = (await self._reader.readuntil(b"\r\n\r\n")).lower()
        length = head.partition(b"content-length: ")[2].partition(b"\r\n")[0]
        body = await self._reader.readexactly(int(length))
        if head[9:10] != b"2":
            raise RuntimeError(body[:600].decode(errors="replace"))
        return body


class _Poll:
    """A worker that waits by a claim."""

    def __init__(self, port: int, topic: str) -> None:
        self._port = port
        self._claim = post(f"/v0/topics/{topic}/{CLAIM}", claim_body(1, POLL_MS))
        self._caller: Caller | None = None

    async def job(self) -> bytes:
        """The answer of the claim that got the next job."""
        self._caller = self._caller or await Caller.open(self._port)
        return await self._caller.call(self._claim)


class _Stream:
    """A worker that waits by a work stream."""

    def __init__(self, port: int, topic: str) -> None:
        self._port, self._topic = port, topic
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def job(self) -> bytes:
        """The next job, in the form of a claim's answer."""
        if self._reader is None:
            self._reader, self._writer = await _open_stream(self._port, self._topic, most=1)
        while not (line := await self._reader.readline()).startswith(b'data: {"topic"'):
            if not line:
                raise RuntimeError("the stream has ended")
        return b'{"claimed":[%b]}' % line.removeprefix(b"data: ").strip()


async def _open_stream(port: int, topic: str, *, most: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    path = f"/v0/topics/{topic}/work?node={NODE}&max={most}&lease_ms={LEASE_MS}"
    writer.write(f"GET {path} HTTP/1.1\r\nhost: localhost\r\naccept: text/event-stream\r\n\r\n".encode())
    head = await reader.readuntil(b"\r\n\r\n")
    if b" 200 " not in head[:16]:
        raise RuntimeError(head.decode(errors="replace"))
    return reader, writer


async def _read(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    try:
        while await reader.read(65_536):
            pass
    finally:
        writer.close()
        with suppress(OSError):
            await writer.wait_closed()


async def _poll(port: int, topic: str) -> None:
    worker = _Poll(port, topic)
    while True:
        await worker.job()
