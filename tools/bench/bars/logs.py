"""What HTTP costs beside a log's statement: a thousand records a request; and how long a read of a thousand takes."""

from __future__ import annotations

import json
import secrets
import statistics
import time

from app.kernel.logs import log
from app.kernel.logs.log import AppendPart, Limits
from app.kernel.model import Batch
from app.kernel.topics import store
from app.kernel.topics.policy import DEFAULTS, AskedSettings, resolve
from tools.bench.bars.batch import BATCH, PACE
from tools.bench.bench import Bench, Effort
from tools.bench.figures import Bound, Figure, Ratio
from tools.bench.load import Posts, data_of, records_body

READ_MS = 10.0  # in the middle of all reads


async def append(bench: Bench, effort: Effort) -> list[Figure]:
    """Appends of a thousand records from one client, against the same statement through asyncpg alone; then reads of a
    thousand, by the service's own clock."""
    name = f"append-{secrets.token_hex(3)}"
    bench.made.append(name)
    await store.put(bench.pools.rest, name, resolve(name, AskedSettings(durable=True)))
    policy = await store.get(bench.pools.rest, name, DEFAULTS)
    assert policy is not None
    path = f"/v0/topics/{name}"
    count = max(int(PACE * effort.seconds), 10)
    texts = [data_of(bench.payload) for _ in range(BATCH)]
    whole = Batch(payloads=[text.encode() for text in texts])
    part = AppendPart(BATCH, sum(map(len, whole.payloads)))
    rates, bases, reads = [], [], []
    for _ in range(effort.rounds):
        began = time.perf_counter()
        for _ in range(count):
            await log.append(bench.pools.hot, policy.topic, whole, [part], Limits())
        bases.append(BATCH * count / (time.perf_counter() - began))
        posts = Posts([bench.service.port], path, [records_body(texts)], 1, requests=count)
        rates.append(BATCH * (await bench.drive(posts)).rate)
        cursors = [
            json.dumps({"from_seq": i * BATCH, "limit": BATCH, "max_batch_bytes": 8 * 2**20}).encode()
            for i in range(count)
        ]
        read = await bench.drive(Posts([bench.service.port], f"{path}/diff", cursors, 1, keep=True))
        reads.append(statistics.median(json.loads(a)["performance"]["server_total_ms"] for a in read.answers))
    return [
        Ratio("batch of 1000, append over HTTP / its statement alone", "records", rates, bases, 0.60),
        Bound("diff of 1000, p50", "ms", statistics.median(reads), READ_MS, reads),
    ]
