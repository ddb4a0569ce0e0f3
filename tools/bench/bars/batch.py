"""What HTTP costs beside the statements: a thousand jobs a request, against the core called directly."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable

from asyncpg.pgproto.pgproto import UUID

from app.kernel.claim import consumer
from app.kernel.claim.consumer import Slots
from app.kernel.enqueue import producer
from app.kernel.model import Batch, HeldJob, Job, Lane, Reach
from tools.bench.bench import Bench, Effort
from tools.bench.figures import Figure, Ratio
from tools.bench.load import ACK, CLAIM, LEASE_MS, NODE, Posts, ack_body, claim_body, data_of, records_body

BATCH = 1000
PACE = 20  # requests for each second of effort


async def batch(bench: Bench, effort: Effort) -> list[Figure]:
    """Enqueue, claim and ack of a thousand jobs from one client, against the same statements through asyncpg alone."""
    queue = await bench.queue("batch")
    topic = f"/v0/topics/{queue.topic.name}"
    count = max(int(PACE * effort.seconds), 10)
    texts = [data_of(bench.payload) for _ in range(BATCH)]
    whole = Batch(payloads=[text.encode() for text in texts])
    await producer.add_lanes(bench.pools.hot, queue.topic, [Lane("", 0)])
    slots = Slots([0] * BATCH, [NODE], [LEASE_MS])
    taken: list[list[Job]] = []

    async def enqueue(_: int) -> None:
        await producer.enqueue(bench.pools.hot, queue.topic, whole, ttl_ms=0)

    async def lease(_: int) -> None:
        claimed = await consumer.claim(bench.pools.hot, queue.topic, queue.budget, [Reach(Lane("", 0))], slots)
        taken.append(sorted(claimed.jobs[0], key=lambda job: job.seq))

    async def settle(i: int) -> None:
        held = [HeldJob(job.seq, UUID(job.lease), NODE) for job in taken[i]]
        assert len(await consumer.ack(bench.pools.hot, queue.topic, held)) == BATCH

    async def over_http(path: str, bodies: list[bytes], *, keep: bool = False) -> tuple[float, list[bytes]]:
        load = Posts([bench.service.port], path, bodies, 1, requests=count, keep=keep)
        outcome = await bench.drive(load)
        return BATCH * outcome.rate, outcome.answers

    rates: dict[str, list[float]] = {verb: [] for verb in ("enqueue", "claim", "ack")}
    bases: dict[str, list[float]] = {verb: [] for verb in rates}
    for _ in range(effort.rounds):
        taken.clear()
        for verb, run in (("enqueue", enqueue), ("claim", lease), ("ack", settle)):
            bases[verb].append(BATCH * await _alone(run, count))
        rates["enqueue"].append((await over_http(topic, [records_body(texts)]))[0])
        rate, answers = await over_http(f"{topic}/{CLAIM}", [claim_body(BATCH)], keep=True)
        rates["claim"].append(rate)
        rates["ack"].append((await over_http(f"{topic}/{ACK}", [ack_body(answer)[1] for answer in answers]))[0])
    return [
        Ratio(f"batch of 1000, {verb} over HTTP / its statement alone", "jobs", rates[verb], bases[verb], 0.60)
        for verb in rates
    ]


async def _alone(run: Callable[[int], Awaitable[None]], count: int) -> float:
    began = time.perf_counter()
    for i in range(count):
        await run(i)
    return count / (time.perf_counter() - began)
