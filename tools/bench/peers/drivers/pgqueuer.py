"""pgqueuer: enqueued by the thousand, dequeued and completed by the hundred, all its tables logged."""

from __future__ import annotations

import asyncio
import json
import time
from importlib.metadata import version

import asyncpg
from pgqueuer import Job, QueueManager
from pgqueuer.db import AsyncpgDriver, AsyncpgPoolDriver
from pgqueuer.queries import Queries

from tools.bench.peers.drivers.protocol import Meter, in_lanes, serve, until_done

ENQUEUED = 1000
LANES = 4
BATCH = 100


class Pgqueuer:
    def __init__(self) -> None:
        self._url = ""

    async def prepare(self, url: str) -> str:
        self._url = url
        connection = await asyncpg.connect(url)
        await Queries(AsyncpgDriver(connection)).install()
        await connection.close()
        return version("pgqueuer")

    async def cycle(self, payloads: list[dict[str, str]], meter: Meter, claim: int | None) -> tuple[float, float]:
        async with asyncpg.create_pool(self._url, min_size=LANES, max_size=LANES + 1) as pool:
            return await self._cycle(Queries(AsyncpgPoolDriver(pool)), payloads, meter, claim or BATCH)

    async def _cycle(
        self, queries: Queries, payloads: list[dict[str, str]], meter: Meter, claim: int
    ) -> tuple[float, float]:
        async def enqueue(some: list[dict[str, str]]) -> None:
            data = [json.dumps(payload).encode() for payload in some]
            await queries.enqueue(["no_op"] * len(data), list(data), [0] * len(data))

        began = time.perf_counter()
        await in_lanes(enqueue, payloads, ENQUEUED, LANES)
        enqueued = time.perf_counter()

        manager = QueueManager(queries)

        @manager.entrypoint("no_op")
        async def no_op(job: Job) -> None:
            json.loads(job.payload or b"")
            meter.handled()

        meter.start()
        worker = asyncio.ensure_future(manager.run(batch_size=claim))
        await until_done(worker, meter)
        manager.shutdown.set()
        await worker
        return enqueued - began, time.perf_counter() - enqueued


if __name__ == "__main__":
    serve(Pgqueuer())
