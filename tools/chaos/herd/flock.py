"""Clients of the SDK, as patient as it is by default: each enqueues a job, claims one and acks it, in turns."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

import httpx

import holdfast
from holdfast import AsyncClient

SLOT: Final = 0.5  # seconds
LEASE_MS: Final = 10_000
DRAIN_SECONDS: Final = 45.0


@dataclass(frozen=True, slots=True)
class Course:
    """In each slot of time since `begins`, of time.monotonic(): jobs acked, and requests that were sent, of which some
    were tries of a call again. `failed`: calls that were given up."""

    begins: float
    acked: Sequence[int]
    sent: Sequence[int]
    failed: int

    def acks(self, start: float, end: float) -> float:
        """A second, between two times, by whole slots."""
        return self._rate(self.acked, start, end)

    def requests(self, start: float, end: float) -> float:
        """The same, of requests."""
        return self._rate(self.sent, start, end)

    def _rate(self, counts: Sequence[int], start: float, end: float) -> float:
        first, last = round((start - self.begins) / SLOT), round((end - self.begins) / SLOT)
        return sum(counts[first:last]) / ((last - first) * SLOT)


def together(courses: Sequence[Course]) -> Course:
    """Of several processes that began at one time."""
    return Course(
        courses[0].begins,
        [sum(slot) for slot in zip(*(one.acked for one in courses), strict=True)],
        [sum(slot) for slot in zip(*(one.sent for one in courses), strict=True)],
        sum(one.failed for one in courses),
    )


@dataclass(frozen=True, slots=True)
class Flock:
    """So many clients in one process, from `begins` to `ends`, each with a job every `pause` seconds; 0: as fast as it
    is answered. What falls due while nobody answers is left out, but for one."""

    url: str
    topic: str
    name: str
    begins: float
    ends: float
    clients: int
    pause: float

    async def run(self) -> Course:
        slots = round((self.ends - self.begins + DRAIN_SECONDS) / SLOT) + 1
        run = _Run(self, [0] * slots, [0] * slots)
        # One pool for the process: with as many connections as it has clients, none waits for another's.
        limits = httpx.Limits(max_connections=2 * self.clients, max_keepalive_connections=2 * self.clients)
        async with httpx.AsyncClient(transport=_Counting(run, limits)) as http:
            client = AsyncClient(self.url, http=http, node=self.name)
            await asyncio.gather(*(run.client(client, number) for number in range(self.clients)))
            await run.drain(client)
        return Course(self.begins, run.acked, run.sent, run.failed)


@dataclass(slots=True)
class _Run:
    flock: Flock
    acked: list[int]
    sent: list[int]
    failed: int = 0

    def count(self, counts: list[int], number: int = 1) -> None:
        slot = int((time.monotonic() - self.flock.begins) / SLOT)
        counts[max(0, min(slot, len(counts) - 1))] += number

    async def client(self, client: AsyncClient, number: int) -> None:
        flock = self.flock
        topic = client.topic(flock.topic)
        due = flock.begins + number * flock.pause / flock.clients
        while due < flock.ends and time.monotonic() < flock.ends:
            await asyncio.sleep(due - time.monotonic())
            try:
                await topic.enqueue({"client": number})
                claimed = await topic.claim(lease_ms=LEASE_MS)
                if claimed.jobs:
                    await topic.ack(*claimed.jobs)
                    self.count(self.acked, len(claimed.jobs))
            except holdfast.HoldfastError:
                self.failed += 1
            due = max(due + flock.pause, time.monotonic() - flock.pause)

    async def drain(self, client: AsyncClient) -> None:
        """Ack what is left: what calls that were given up had put in, or held."""
        topic, end = client.topic(self.flock.topic), time.monotonic() + DRAIN_SECONDS
        empty = 0.0
        while time.monotonic() < end and empty < LEASE_MS / 1000 + 2:
            began = time.monotonic()
            claimed = await topic.claim(max=500, wait_ms=500, lease_ms=LEASE_MS)
            if claimed.jobs:
                await topic.ack(*claimed.jobs)
                empty = 0.0
            else:
                empty += time.monotonic() - began


class _Counting(httpx.AsyncHTTPTransport):
    """Counts what leaves the process."""

    def __init__(self, run: _Run, limits: httpx.Limits) -> None:
        super().__init__(limits=limits)
        self._run = run

    async def handle_async_request(self, request: httpx.Request) -> httpx.Response:
        self._run.count(self._run.sent)
        return await super().handle_async_request(request)
