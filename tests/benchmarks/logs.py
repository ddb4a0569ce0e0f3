"""The bars of logs: appends over HTTP against the statement alone, and reading a thousand records."""

from __future__ import annotations

import json
import statistics
import time
from collections.abc import Awaitable, Callable

from app.queue import log
from app.queue.log import Limits, Part
from app.queue.model import Batch
from app.topics import store
from app.topics.config import Asked, resolve
from tests.benchmarks.bars import BATCH, Figure, _drive, data_of
from tests.benchmarks.bench import Bench

DIFF_MS = 10.0  # a read of a thousand records takes no longer, in the middle of all


async def append(bench: Bench, seconds: float, rounds: int) -> list[Figure]:
    """A thousand records a request from one client to a durable log, against the same statement through asyncpg alone;
    and reads of a thousand, against the rate that DIFF_MS allows."""
    await store.put(bench.pools.rest, "log", resolve("log", Asked(durable=True)))
    policy = await store.get(bench.pools.rest, "log")
    assert policy is not None
    topic = policy.topic
    count = max(int(20 * seconds), 10)
    texts = [data_of(bench.payload) for _ in range(BATCH)]
    body = ('{"records":[' + ",".join(f'{{"data":{text}}}' for text in texts) + "]}").encode()
    whole = Batch(payloads=[text.encode() for text in texts])
    part = Part(BATCH, sum(map(len, whole.payloads)))

    async def alone(_: int) -> None:
        await log.append(bench.pools.hot, topic, whole, [part], Limits())

    bases, appends, reads = [], [], []
    for _ in range(rounds):
        bases.append(await _rate(alone, count))
        appends.append((await _drive(bench, "/v0/topics/log", [body] * count, clients=1))[0])
        cursors = [
            json.dumps({"from_seq": i * BATCH, "limit": BATCH, "max_batch_bytes": 8 * 2**20}).encode()
            for i in range(count)
        ]
        reads.append((await _drive(bench, "/v0/topics/log/diff", cursors, clients=1))[0])
    return [
        Figure(
            "batch of 1000, append over HTTP, one client / its statement alone",
            BATCH * statistics.median(appends),
            BATCH * statistics.median(bases),
            0.60,
            "records",
        ),
        Figure("diff of 1000, one client / 10 ms each", statistics.median(reads), 1000 / DIFF_MS, 1.0, "requests"),
    ]


async def _rate(run: Callable[[int], Awaitable[None]], count: int) -> float:
    began = time.perf_counter()
    for i in range(count):
        await run(i)
    return count / (time.perf_counter() - began)


BARS = {"append": append}
