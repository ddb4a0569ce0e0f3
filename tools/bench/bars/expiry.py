"""What the expiry of very many jobs does to claims."""

from __future__ import annotations

import asyncio
import json
import time
from urllib.request import Request, urlopen

from app.kernel.enqueue import producer
from app.kernel.model import Lane, Topic
from tools.bench.bench import Bench, Effort, say
from tools.bench.figures import Figure, Missing, Ratio, in_turns
from tools.bench.fill import BULK_BYTES, clean, empty, settle, top_up
from tools.bench.load import Consume, data_of

CLIENTS = 8
MOST = 100

# As enqueue.sql writes them, with their tally, but without their events; their time to live has passed already.
_OUTLIVED = """
WITH tally AS (
    INSERT INTO holdfast.tallies (topic_id, ready, bytes)
    SELECT $2, n, n * octet_length(convert_to($4, 'UTF8')) FROM (SELECT $5::bigint AS n) many
)
INSERT INTO holdfast.jobs (topic, topic_id, seq, position, state, visible_at, created_at, updated_at, expires_at,
                           payload)
SELECT $1, $2, s.seq, s.seq, 'ready', now(), now(), now(), now(), convert_to($4, 'UTF8')
FROM (SELECT nextval($3::oid::regclass) AS seq FROM generate_series(1, $5)) s
"""


async def expiry(bench: Bench, effort: Effort) -> list[Figure]:
    """Claims while 1,000,000 jobs expire, a part of them in each round, against claims while none does."""
    outlived, plain = (await bench.queue("outlived")).topic, (await bench.queue("beside")).topic
    await producer.add_lanes(bench.pools.hot, outlived, [Lane("", 0)])
    rounds = effort.rounds * 2
    jobs = effort.of(1_000_000, 10_000) // rounds
    size = int(8_000 * effort.seconds)
    load = Consume([bench.service.port], plain.name, CLIENTS, size, MOST, ack=False)
    short = 0
    seconds: list[float] = []

    async def alone() -> float:
        await top_up(bench, plain, size)
        await settle(bench)
        return (await bench.drive(load)).rate

    async def beside() -> float:
        nonlocal short
        await _outlive(bench, outlived, jobs)
        await clean(bench)
        await top_up(bench, plain, size)
        await settle(bench)
        began = time.perf_counter()
        await _run(bench, 0)
        rate = (await bench.drive(load)).rate
        moved, running = await _run(bench, 0)
        short += not running
        while running:
            moved, running = await _run(bench, 50_000)
        seconds.append(time.perf_counter() - began)
        say(f"{size:,} claimed at {rate:,.0f} jobs/s; {moved:,} expired in {seconds[-1]:.1f} s")
        return rate

    rates, bases = await in_turns(rounds, beside, alone)
    await empty(bench, outlived)
    name = f"claim, batches of {MOST}, while {jobs * rounds:,} expire / none"
    if short and not effort.quick:
        return [Missing(name, f"the expiry had ended before the claims in {short} of {rounds} rounds")]
    return [Ratio(name, "jobs", rates, bases, 0.90, {"seconds_to_expire": seconds, "jobs_a_round": jobs})]


async def _outlive(bench: Bench, topic: Topic, count: int) -> None:
    data = data_of(min(bench.payload, BULK_BYTES))
    await bench.db.execute(_OUTLIVED, topic.name, topic.id, topic.sequence, data, count, timeout=600)


async def _run(bench: Bench, wait_ms: int) -> tuple[int, bool]:
    """Begin or join a run of the expiry: what it has moved, and whether it goes on."""
    url = f"http://127.0.0.1:{bench.service.port}/v0/admin/reapers/expiry/run"
    body = json.dumps({"wait_ms": wait_ms}).encode()
    asked = Request(url, body, {"content-type": "application/json"}, method="POST")

    def ask() -> dict[str, object]:
        with urlopen(asked, timeout=70) as answer:
            got: dict[str, object] = json.load(answer)
        return got

    answer = await asyncio.to_thread(ask)
    return int(str(answer["moved"])), bool(answer["running"])
