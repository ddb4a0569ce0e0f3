"""What open work streams cost in memory."""

from __future__ import annotations

import asyncio

import psutil  # type: ignore[import-untyped]

from tools.bench.bench import Bench, Effort
from tools.bench.figures import Bound, Figure
from tools.bench.load import Posts, data_of, records_body
from tools.bench.waiters import waiting

STREAMS = 1_000
TOPICS = 10
LOOKS = 10


async def streams(bench: Bench, effort: Effort) -> list[Figure]:
    """Resident memory of a fresh server process with 1,000 open work streams, each with jobs out."""
    topics = [(await bench.queue(f"streams-{i}")).topic.name for i in range(TOPICS)]
    async with bench.services(1) as [service]:
        process = psutil.Process(service.pid)
        before = process.memory_info().rss / 1e6
        async with waiting(service.port, streams=[topics[i % TOPICS] for i in range(STREAMS)]):
            for topic in topics:
                bodies = [records_body([data_of(bench.payload) for _ in range(2 * STREAMS // TOPICS)])]
                await bench.drive(Posts([service.port], f"/v0/topics/{topic}", bodies, 1))
            looks = []
            for _ in range(effort.of(LOOKS, 3)):
                await asyncio.sleep(0.5)
                looks.append(process.memory_info().rss / 1e6)
    name = f"memory of a process with {STREAMS:,} open work streams"
    return [Bound(name, "MB", max(looks), 250, looks, {"before_them": before})]
