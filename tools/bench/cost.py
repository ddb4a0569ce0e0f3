"""What a job costs PostgreSQL besides time: bytes of its log and of its disk over a whole cycle.

Jobs are put in, leased and acked in batches by the service's own statements, one topic for each size of payload. Bytes
of the log are differences of `pg_current_wal_insert_lsn()`, so nothing else may write meanwhile; a machine that is busy
with other things changes none of it. `python -m tools.bench.cost`; docs/operations/processes.md has what it said.
"""

from __future__ import annotations

import argparse
import asyncio
import itertools
import json
import sys
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

from app.base.db import schema
from app.base.db.pool import Pools, open_pools
from app.kernel.claim import consumer
from app.kernel.model import Batch, Connection
from app.kernel.topics import store
from app.kernel.topics.policy import DEFAULTS, AskedSettings, resolve
from tests.queue import calls
from tools.bench.bench import embedded
from tools.bench.facts import facts_of

SIZES: Final = (100, 1_000, 10_000)
SPACE: Final = "SELECT pg_total_relation_size('holdfast.jobs')"
LEDGER: Final = """
SELECT coalesce(sum(pg_total_relation_size(inhrelid)), 0)::bigint FROM pg_inherits
WHERE inhparent = 'holdfast.lease_events'::regclass
"""


@dataclass(frozen=True, slots=True)
class Cost:
    """Bytes for each job: the log's by verb; the table's with its indexes while jobs wait; the ledger's for good."""

    payload: int
    jobs: int
    batch: int
    enqueue: float
    claim: float
    ack: float
    waiting: float
    ledger: float

    @property
    def log(self) -> float:
        """The log's bytes of a whole cycle."""
        return self.enqueue + self.claim + self.ack


async def measure(pools: Pools, payload: int, jobs: int, batch: int) -> Cost:
    """Take so many jobs through a topic of their own, as durable ones. Starts from a checkpoint."""
    name = f"cost-{payload}-{jobs}"
    await store.put(pools.rest, name, resolve(name, AskedSettings(type="queue", durable=True)))
    policy = await store.get(pools.rest, name, DEFAULTS)
    assert policy is not None
    data = b'"' + b"x" * (payload - 2) + b'"'
    async with pools.rest.acquire() as db:
        await db.execute("VACUUM holdfast.jobs")
        await db.execute("CHECKPOINT")
        before, ledger = await db.fetchval(SPACE), await db.fetchval(LEDGER)
    async with pools.hot.acquire() as db:
        at = [await _lsn(db)]
        for _ in range(jobs // batch):
            await calls.put(db, policy, Batch(payloads=[data] * batch))
        at.append(await _lsn(db))
        waiting = await db.fetchval(SPACE) - before
        taken = [await calls.take(db, policy, batch) for _ in range(jobs // batch)]
        at.append(await _lsn(db))
        for some in taken:
            done = await consumer.ack(db, policy.topic, [calls.held(job) for job in sorted(some, key=lambda j: j.seq)])
            assert done is not None
        at.append(await _lsn(db))
        ledger = await db.fetchval(LEDGER) - ledger
    enqueue, claim, ack = ((b - a) / jobs for a, b in itertools.pairwise(at))
    return Cost(payload, jobs, batch, enqueue, claim, ack, waiting / jobs, ledger / jobs)


def table(told: Mapping[str, Any]) -> str:
    """The figures of a run as the page has them."""
    lines = [
        "| payload | log: enqueue | claim | ack | whole cycle | waiting | ledger |",
        "|---|---|---|---|---|---|---|",
    ]
    for one in told["costs"]:
        cells = [one[name] for name in ("payload", "enqueue", "claim", "ack", "log", "waiting", "ledger")]
        lines.append("| " + " | ".join(f"{round(cell):,}" for cell in cells) + " |")
    facts = told["facts"]
    return "\n".join(
        [*lines, "", f"Taken on {facts['date'][:10]}: PostgreSQL {facts['postgres']}, fsync {facts['fsync']}."]
    )


async def _lsn(db: Connection) -> int:
    return int(await db.fetchval("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint"))


@asynccontextmanager
async def _pools() -> AsyncIterator[Pools]:
    async with embedded() as url:
        await schema.upgrade(url)
        pools = await open_pools(url, hot=2, rest=2, prepared_statements=True)
        try:
            yield pools
        finally:
            await pools.close(5)


async def main(jobs: int, batch: int, file: Path | None) -> None:
    """Measure each size, and say so."""
    costs = []
    async with _pools() as pools:
        await measure(pools, SIZES[0], jobs - batch, batch)  # the first pages of new tables are no job's cost
        for size in SIZES:
            one = await measure(pools, size, jobs, batch)
            costs.append(asdict(one) | {"log": one.log})
            print(json.dumps(costs[-1]), file=sys.stderr, flush=True)
        async with pools.rest.acquire() as db:
            told = {name: fact for name, fact in (await facts_of(db, 0)).items() if name != "payload"}
    if file is not None:
        file.write_text(json.dumps({"facts": told, "costs": costs}, indent=1) + "\n")


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("--jobs", type=int, default=20_000)
    parser.add_argument("--batch", type=int, default=100)
    parser.add_argument("--json", type=Path)
    asked = parser.parse_args()
    asyncio.run(main(asked.jobs, asked.batch, asked.json))
