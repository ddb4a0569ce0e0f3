"""How fast a whole cycle could be: over HTTP; its statements alone; a table that has nothing but jobs.

All take turns in one cluster, beside a rival queue. The statements run on so many connections of one process, with no
service between them and PostgreSQL. The bare table has three indexes, and neither ledger nor tallies, keys, groups,
dead letters or checks: what is left is a queue's insert, SKIP LOCKED claim and delete. `python -m
tools.bench.floor`; docs/benchmarks.md has what it said.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass
from functools import partial
from typing import Any, Final
from uuid import UUID, uuid4

import asyncpg
import uvloop

from app.base.db.pool import PLANNER
from app.kernel.claim import consumer
from app.kernel.claim.consumer import Slots
from app.kernel.enqueue import producer
from app.kernel.model import Batch, Job, Lane, Reach
from app.kernel.settle.results import AckCounts
from app.kernel.topics.policy import Policy
from tests.queue import calls
from tests.queue.calls import Session
from tools.bench.bench import Bench, running, say
from tools.bench.peers.contest import take
from tools.bench.peers.processes import Failed
from tools.bench.peers.rivals import HOLDFAST, PEERS, Rival

BATCH: Final = HOLDFAST.batch
LEASE_MS: Final = 3_600_000
ANY: Final = Lane("", 0)
NODE: Final = "bench"
RIVALS: Final = {rival.name: rival for rival in PEERS}
BARE: Final = """
    CREATE SEQUENCE bare_seq;
    CREATE TABLE bare (
        seq bigint NOT NULL, position bigint NOT NULL, visible_at timestamptz NOT NULL, created_at timestamptz NOT NULL,
        deliveries integer NOT NULL DEFAULT 0, state text NOT NULL COLLATE "C", priority smallint NOT NULL DEFAULT 0,
        lease_id uuid, topic text NOT NULL COLLATE "C", tenant text NOT NULL DEFAULT '' COLLATE "C", node text,
        payload bytea NOT NULL, PRIMARY KEY (topic, seq)
    ) WITH (fillfactor = 85, autovacuum_vacuum_scale_factor = 0.01, autovacuum_vacuum_cost_delay = 0);
    ALTER TABLE bare ALTER payload SET STORAGE EXTERNAL;
    CREATE INDEX ON bare (topic, tenant, priority, position) WHERE state = 'ready';
    CREATE INDEX ON bare (topic, tenant, priority, visible_at) WHERE state IN ('leased', 'scheduled')
"""
BARE_ENQUEUE: Final = """
    INSERT INTO bare (topic, seq, position, state, visible_at, created_at, payload)
    SELECT $1, seq, seq, 'ready', now(), now(), payload
    FROM (SELECT nextval('bare_seq') AS seq, payload FROM unnest($2::bytea[]) AS payload) record
"""
BARE_CLAIM: Final = """
    WITH picked AS MATERIALIZED (
        SELECT ctid AS tid FROM bare
        WHERE topic = $1 AND tenant = '' AND priority = 0 AND state = 'ready' AND position > $2
        ORDER BY position LIMIT $3 FOR UPDATE SKIP LOCKED
    )
    UPDATE bare j SET state = 'leased', lease_id = $4, node = $5, deliveries = deliveries + 1,
                      visible_at = now() + interval '1 hour'
    FROM picked WHERE j.ctid = picked.tid RETURNING j.seq, j.deliveries, j.payload
"""
BARE_ACK: Final = """
    WITH picked AS MATERIALIZED (
        SELECT x.tid FROM unnest($2::bigint[]) AS r(seq) CROSS JOIN LATERAL (
            SELECT ctid AS tid FROM bare j
            WHERE j.topic = $1 AND j.seq = r.seq AND j.state || '' = 'leased' AND j.lease_id = $3 FOR UPDATE
        ) x
    ), done AS (
        DELETE FROM bare j USING picked WHERE j.ctid = picked.tid RETURNING 1
    )
    SELECT count(*) FROM done
"""


@dataclass(frozen=True, slots=True)
class Rates:
    """Jobs a second."""

    enqueue: float
    run: float
    cycle: float


class Statements:
    """The service's own statements, as its core sends them."""

    def __init__(self, policy: Policy, data: Sequence[bytes]) -> None:
        self._policy = policy
        self._data = data

    async def enqueue(self, db: Session) -> None:
        """A batch."""
        await producer.enqueue(db, self._policy.topic, Batch(payloads=list(self._data)), ttl_ms=0)

    async def claim(self, db: Session, after: int) -> tuple[int, Sequence[Job]]:
        """A batch above a position, and the last position that was met."""
        slots = Slots([0] * len(self._data), [NODE], [LEASE_MS])
        got = await consumer.claim(db, self._policy.topic, self._policy.budget, [Reach(ANY, after, None)], slots)
        return (got.seen[0].ready or after) if got.seen else after, got.jobs[0]

    async def ack(self, db: Session, jobs: Sequence[Job]) -> int:
        """How many."""
        held = [calls.held(job, NODE) for job in sorted(jobs, key=lambda job: job.seq)]
        return len(await consumer.ack(db, self._policy.topic, held, AckCounts()))


class Bare:
    """The least that a queue can do, on the bare table; one lease for a batch."""

    def __init__(self, topic: str, data: Sequence[bytes]) -> None:
        self._topic = topic
        self._data = data

    async def enqueue(self, db: Session) -> None:
        """A batch."""
        await db.execute(BARE_ENQUEUE, self._topic, self._data)

    async def claim(self, db: Session, after: int) -> tuple[int, Sequence[tuple[UUID, int]]]:
        """A batch above a position, and the last position that was met."""
        lease = uuid4()
        rows = await db.fetch(BARE_CLAIM, self._topic, after, len(self._data), lease, NODE)
        return max((row["seq"] for row in rows), default=after), [(lease, row["seq"]) for row in rows]

    async def ack(self, db: Session, jobs: Sequence[tuple[UUID, int]]) -> int:
        """How many."""
        count: int = await db.fetchval(BARE_ACK, self._topic, sorted(seq for _, seq in jobs), jobs[0][0])
        return count


async def cycle(queue: Any, dbs: Sequence[Session], batches: int, batch: int) -> Rates:
    """Enqueue all, then claim and ack all, a batch at a time on each connection. Raises RuntimeError if one is lost."""
    left = iter(range(batches))
    began = time.perf_counter()

    async def put(db: Session) -> None:
        for _ in left:
            await queue.enqueue(db)

    await asyncio.gather(*map(put, dbs))
    enqueued = time.perf_counter()
    met, done = 0, 0

    async def work(db: Session) -> None:
        nonlocal met, done
        while True:
            # Each of the others may still be at the batch that it claimed below what was met.
            seen, jobs = await queue.claim(db, max(met - 2 * batch * len(dbs), 0))
            if not jobs:
                return
            met = max(met, seen)
            count = await queue.ack(db, jobs)  # in two lines: others count meanwhile
            done += count

    await asyncio.gather(*map(work, dbs))
    ended = time.perf_counter()
    if done != batches * batch:
        raise RuntimeError(f"{done} jobs came out of {batches * batch}")
    return Rates(done / (enqueued - began), done / (ended - enqueued), done / (ended - began))


async def statements(bench: Bench, jobs: int, connections: int, batch: int = BATCH) -> Rates:
    """The service's statements."""
    policy = await bench.queue("floor")
    await producer.add_lanes(bench.db, policy.topic, [ANY])  # once, as the service does
    return await _on(bench, Statements(policy, _data(bench, batch)), jobs, connections, batch)


async def bare(bench: Bench, jobs: int, connections: int, batch: int = BATCH) -> Rates:
    """The bare table's, which is made anew."""
    await bench.db.execute(f"DROP TABLE IF EXISTS bare; DROP SEQUENCE IF EXISTS bare_seq; {BARE}")
    return await _on(bench, Bare("floor", _data(bench, batch)), jobs, connections, batch)


def _data(bench: Bench, batch: int) -> list[bytes]:
    return [b'{"x":"%b"}' % os.urandom((bench.payload - 8) // 2).hex().encode()] * batch


async def _on(bench: Bench, queue: Statements | Bare, jobs: int, connections: int, batch: int) -> Rates:
    async with AsyncExitStack() as stack:
        dbs = []
        for _ in range(connections):
            dbs.append(await asyncpg.connect(bench.url, server_settings=PLANNER))
            stack.push_async_callback(dbs[-1].close)
        return await cycle(queue, dbs, jobs // batch, batch)


async def _rival(bench: Bench, rival: Rival, jobs: int) -> Rates:
    outcome = await take(bench, rival, jobs)
    return Rates(outcome.enqueue_per_s, outcome.run_per_s, outcome.cycle_per_s)


async def main(jobs: int, rounds: int, payload: int, peer: str) -> None:
    """Measure, and say what came out. Raises Failed if the peer can't be measured."""
    async with running(payload, None) as bench:
        sides: dict[str, Callable[[], Awaitable[Rates]]] = {
            peer: partial(_rival, bench, RIVALS[peer], jobs),
            f"over HTTP, {HOLDFAST.connections} connections": partial(_rival, bench, HOLDFAST, jobs),
        }
        for name, side in (("its statements alone", statements), ("a bare table", bare)):
            for count in (1, 2, 4):
                sides[f"{name}, {count} at once"] = partial(side, bench, jobs, count)
        taken: dict[str, list[Rates]] = {name: [] for name in sides}
        for i in range(rounds):
            names = list(sides)
            for name in names[i % len(names) :] + names[: i % len(names)]:
                taken[name].append(await sides[name]())
                say(f"{name}: {taken[name][-1].cycle:,.0f} jobs/s")
    print(table(taken, peer))


def table(taken: Mapping[str, Sequence[Rates]], base: str) -> str:
    """The medians, and how often the base's cycle each of them is."""
    lines = [f"{'jobs a second':36} {'enqueue':>9} {'run':>9} {'cycle':>9} {'ratio':>6}"]
    over = statistics.median(rates.cycle for rates in taken[base])
    for name, some in taken.items():
        middle = [statistics.median(getattr(rates, rate) for rates in some) for rate in ("enqueue", "run", "cycle")]
        lines.append(f"{name:36} {middle[0]:9,.0f} {middle[1]:9,.0f} {middle[2]:9,.0f} {middle[2] / over:6.2f}")
    return "\n".join(lines)


if __name__ == "__main__":
    parser = argparse.ArgumentParser(prog="python -m tools.bench.floor", description=__doc__.splitlines()[0])
    parser.add_argument("--jobs", type=int, default=60_000, help="of each, in each round (60000)")
    parser.add_argument("--rounds", type=int, default=5, help="of which the medians count (5)")
    parser.add_argument("--payload", type=int, default=256, help="bytes of a job's data (256)")
    parser.add_argument("--peer", choices=RIVALS, default="pg-boss", help="the queue beside it (pg-boss)")
    asked = parser.parse_args()
    try:
        uvloop.run(main(asked.jobs, asked.rounds, asked.payload, asked.peer))
    except Failed as error:
        parser.exit(1, f"{error}\n")
