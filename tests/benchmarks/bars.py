"""The bars. Each takes both of its rates in one run, in turns, so that noise of the machine hits both alike."""

from __future__ import annotations

import asyncio
import json
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import Final

from asyncpg.pgproto.pgproto import UUID

from app.queue import consumer, producer
from app.queue.consumer import Slots
from app.queue.model import Batch, Held, Job, Lane, Reach
from tests.benchmarks.bench import Bench
from tests.benchmarks.load import Load, drive

CLIENTS: Final = 64
BATCH: Final = 1000
LEASE_MS: Final = 3_600_000


@dataclass(frozen=True, slots=True)
class Figure:
    """A bar's outcome: `rate` against `base`, both a second; the ratio must be `least` at least."""

    bar: str
    rate: float
    base: float
    least: float
    unit: str

    @property
    def ratio(self) -> float:
        return self.rate / self.base

    @property
    def passed(self) -> bool:
        return self.ratio >= self.least


def data_of(size: int) -> str:
    """JSON of so many bytes, with a little that varies."""
    return json.dumps({"id": os.urandom(4).hex(), "text": os.urandom(size).hex()[: max(size - 30, 1)]})


async def single(bench: Bench, seconds: float, rounds: int) -> list[Figure]:
    """One job a request from 64 clients, against the no-op route under the same load."""
    queue = await bench.queue("single")
    topic = f"/v0/topics/{queue.topic.name}"
    records = [f'{{"records":[{{"data":{data_of(bench.payload)}}}]}}'.encode() for _ in range(50)]
    claim = [f'{{"node":"bench","lease_ms":{LEASE_MS}}}'.encode()]
    await _drive(bench, topic, records * 400)  # deep enough that a claim's counters are those of a deep topic
    enqueues, claims, acks, bases = [], [], [], []
    for _ in range(rounds):
        bases.append((await _drive(bench, f"/no-op/{queue.topic.name}", records, seconds))[0])
        enqueues.append((await _drive(bench, topic, records, seconds))[0])
        bases.append((await _drive(bench, f"/no-op/{queue.topic.name}", records, seconds))[0])
        rate, answers = await _drive(bench, f"{topic}/claim", claim, seconds, keep=True)
        claims.append(rate)
        bodies = [_ack_body(json.loads(answer)["claimed"]) for answer in answers]
        acks.append((await _drive(bench, f"{topic}/ack", bodies))[0])
    base = statistics.median(bases)
    return [
        Figure("single-job enqueue, 64 clients / no-op route", statistics.median(enqueues), base, 0.70, "requests"),
        Figure("single-job claim, 64 clients / no-op route", statistics.median(claims), base, 0.60, "requests"),
        Figure("single-job ack, 64 clients / no-op route", statistics.median(acks), base, 0.60, "requests"),
    ]


async def batch(bench: Bench, seconds: float, rounds: int) -> list[Figure]:
    """A thousand jobs a request from one client, against the same statements through asyncpg alone."""
    queue = await bench.queue("batch")
    topic = f"/v0/topics/{queue.topic.name}"
    count = max(int(20 * seconds), 10)
    texts = [data_of(bench.payload) for _ in range(BATCH)]
    body = '{"records":[' + ",".join(f'{{"data":{text}}}' for text in texts) + "]}"
    whole = Batch(payloads=[text.encode() for text in texts])
    await producer.add_lanes(bench.pools.hot, queue.topic, [Lane("", 0)])
    claim = f'{{"node":"bench","max":{BATCH},"lease_ms":{LEASE_MS}}}'.encode()
    slots = Slots([0] * BATCH, ["bench"], [LEASE_MS])
    taken: list[list[Job]] = []

    async def enqueue(_: int) -> None:
        await producer.enqueue(bench.pools.hot, queue.topic, whole, ttl_ms=0)

    async def lease(_: int) -> None:
        claimed = await consumer.claim(bench.pools.hot, queue.topic, queue.budget, [Reach(Lane("", 0))], slots)
        taken.append(sorted(claimed.jobs[0], key=lambda job: job.seq))

    async def settle(i: int) -> None:
        held = [Held(job.seq, UUID(job.lease), "bench") for job in taken[i]]
        assert len(await consumer.ack(bench.pools.hot, queue.topic, held)) == BATCH

    rates: dict[str, list[float]] = {verb: [] for verb in ("enqueue", "claim", "ack")}
    bases: dict[str, list[float]] = {verb: [] for verb in rates}
    for _ in range(rounds):
        taken.clear()
        for verb, run in (("enqueue", enqueue), ("claim", lease), ("ack", settle)):
            bases[verb].append(await _alone(run, count))
        rates["enqueue"].append((await _drive(bench, topic, [body.encode()] * count, clients=1))[0])
        rate, answers = await _drive(bench, f"{topic}/claim", [claim] * count, clients=1, keep=True)
        rates["claim"].append(rate)
        acks = [_ack_body(json.loads(answer)["claimed"]) for answer in answers]
        rates["ack"].append((await _drive(bench, f"{topic}/ack", acks, clients=1))[0])
    return [
        Figure(
            f"batch of 1000, {verb} over HTTP, one client / its statement alone",
            BATCH * statistics.median(rates[verb]),
            BATCH * statistics.median(bases[verb]),
            0.60,
            "jobs",
        )
        for verb in rates
    ]


async def _alone(run: Callable[[int], Awaitable[None]], count: int) -> float:
    began = time.perf_counter()
    for i in range(count):
        await run(i)
    return count / (time.perf_counter() - began)


async def _drive(
    bench: Bench,
    path: str,
    bodies: Sequence[bytes],
    seconds: float | None = None,
    *,
    clients: int = CLIENTS,
    keep: bool = False,
) -> tuple[float, list[bytes]]:
    load = Load(bench.port, path, bodies, clients, seconds)
    outcome = await asyncio.to_thread(drive, load, keep=keep)
    return outcome.rate, outcome.answers


def _ack_body(jobs: list[dict[str, object]]) -> bytes:
    return json.dumps(
        {"node": "bench", "seqs": [job["$seq"] for job in jobs], "lease_ids": [job["lease_id"] for job in jobs]}
    ).encode()


BARS: Final = {"single": single, "batch": batch}
