"""Clients of a service that must never notice anything: each call has to succeed, and each job is done once."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Mapping
from types import TracebackType
from typing import Self

import httpx

from tests.api.dialect import Topic, accepted

PATIENCE = 35


class Steady:
    """Producers, consumers and a reader of one queue, which there must be. They begin with `at`, for each address that
    they use, and run until the end of `async with`: by then what was enqueued is done."""

    def __init__(self, queue: str, headers: Mapping[str, str] | None = None) -> None:
        self._faults: list[str] = []
        self._settled: dict[str, list[int]] = {}  # by address
        self._written: list[int] = []
        self._queue = queue
        self._headers = headers
        self._ending = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> Self:
        return self

    def at(self, url: str) -> None:
        """Begin there."""
        self._settled[url] = []
        each = [self._produce(url), self._produce(url), self._consume(url), self._consume(url), self._look(url)]
        self._tasks += [asyncio.create_task(self._noted(one)) for one in each]

    async def __aexit__(
        self, kind: type[BaseException] | None, _error: BaseException | None, _traceback: TracebackType | None
    ) -> None:
        self._ending.set()
        await asyncio.gather(*self._tasks)
        if kind is None:
            assert self._faults == []
            assert sorted(seq for seqs in self._settled.values() for seq in seqs) == sorted(self._written)

    async def go_on(self, seconds: float = 30) -> None:
        """Wait until more has been done at each address than by now, without a fault."""
        async with asyncio.timeout(seconds):
            for settled in self._settled.values():
                enough = len(settled) + 20
                while len(settled) < enough:
                    assert self._faults == []
                    await asyncio.sleep(0.01)

    def _client(self, url: str) -> httpx.AsyncClient:
        return httpx.AsyncClient(base_url=url, headers=self._headers, timeout=PATIENCE)

    async def _produce(self, url: str) -> None:
        async with self._client(url) as http:
            while not self._ending.is_set():
                self._written += await Topic(http, self._queue).add(2)
                await asyncio.sleep(0.004)

    async def _consume(self, url: str) -> None:
        async with self._client(url) as http:
            queue = Topic(http, self._queue)
            while not self._ending.is_set() or (await queue.counts())[0]:
                jobs = (await queue.claim(max=20, wait_ms=300))["claimed"]
                if jobs:
                    seqs = [job["$seq"] for job in jobs]
                    leases = [job["lease_id"] for job in jobs]
                    assert (await queue.ack("n", seqs, lease_ids=leases))["acked"] == len(seqs)
                    self._settled[url] += seqs

    async def _look(self, url: str) -> None:
        while not self._ending.is_set():
            async with self._client(url) as http:  # by a new connection each time
                accepted(await http.get(f"/v0/topics/{self._queue}", params={"touch": "false"}))
            await asyncio.sleep(0.005)

    async def _noted(self, client: Awaitable[None]) -> None:
        try:
            await client
        except (AssertionError, httpx.HTTPError) as error:
            self._faults.append(repr(error)[:500])
