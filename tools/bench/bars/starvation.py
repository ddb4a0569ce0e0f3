"""How long a job of the worst priority waits while better ones keep all workers busy."""

from __future__ import annotations

import asyncio

from app.kernel.enqueue import producer
from app.kernel.model import Batch, Lane
from app.kernel.topics.policy import Policy
from tools.bench.bench import Bench, Effort, say
from tools.bench.figures import Bound, Figure, Missing
from tools.bench.fill import empty, fill, settle
from tools.bench.load import Consume

CLIENTS = 8
MOST = 100
WORST = 9  # where low priorities come first; the others have 0
STEPS = 10  # within so many times aging_ms
PACE = 30_000  # jobs for each second of effort: they must outlast the wait
BUSY = "SELECT EXISTS (SELECT FROM holdfast.jobs WHERE topic = $1 AND state = 'leased')"
WAITED = """
SELECT date_part('epoch', c.at - e.at) * 1000 FROM holdfast.lease_events e
JOIN holdfast.lease_events c ON c.topic_id = e.topic_id AND c.seq = e.seq AND c.event = 'claimed'
WHERE e.topic_id = $1 AND e.seq = $2 AND e.event = 'enqueued'
"""


async def starvation(bench: Bench, effort: Effort) -> list[Figure]:
    """From the enqueue to the claim of a job nine priorities below those that eight clients claim without end, against
    ten times the topic's aging_ms."""
    aging_ms = effort.of(200, 20)
    queue = await bench.queue("starvation", aging_ms=aging_ms, priority_order="lowest_first")
    waits = [await _waits(bench, effort, queue) for _ in range(effort.rounds * 2)]
    await empty(bench, queue.topic)
    name = f"priority {WORST} below a busy 0, aging_ms {aging_ms}"
    taken = [round(waited, 1) for waited in waits if waited is not None]
    if len(taken) < len(waits):
        return [Missing(name, "it was not claimed while the others were")]
    if min(taken) < WORST * aging_ms:
        return [Missing(name, "it was claimed before its time: the others did not keep everybody busy")]
    return [Bound(name, "ms", max(taken), STEPS * aging_ms, taken)]


async def _waits(bench: Bench, effort: Effort, queue: Policy) -> float | None:
    """For how many ms one such job waits; None if for longer than the load takes."""
    size = int(PACE * effort.seconds)
    await producer.add_lanes(bench.pools.hot, queue.topic, [Lane("", WORST)])
    await fill(bench, queue.topic, size + CLIENTS * MOST)
    await settle(bench)
    load = Consume([bench.service.port], queue.topic.name, CLIENTS, size, MOST, ack=True)
    busy = asyncio.create_task(bench.drive(load))
    while not (await bench.db.fetchval(BUSY, queue.topic.name) or busy.done()):
        await asyncio.sleep(0.01)
    (seq,) = await producer.enqueue(bench.pools.hot, queue.topic, Batch([b"1"], priorities=[WORST]), ttl_ms=0)
    outcome = await busy
    waited: float | None = await bench.db.fetchval(WAITED, queue.topic.id, seq)
    say(f"{outcome.rate:,.0f} jobs/s beside one that was claimed after {waited or 0:,.0f} ms")
    return waited
