"""What was answered outlives a crash of PostgreSQL: a durable topic's answers come after the flush of their commit."""

from __future__ import annotations

import asyncio
import os
import signal
from pathlib import Path
from typing import Final

import asyncpg

from app.base.db import schema
from app.base.db.embedded import EmbeddedPostgres
from app.base.db.pool import open_pools
from app.kernel.topics import store
from app.kernel.topics.policy import AskedSettings, resolve
from tests.engine.machines import new_machine
from tests.processes import until
from tests.queue.calls import held

CRASHES: Final = 3  # what is not flushed is lost in most crashes, and not in each: a flush may just have come


async def test_what_was_answered_outlives_a_crash(tmp_path: Path) -> None:
    postgres = EmbeddedPostgres(tmp_path / "data", connections=50)
    try:
        url = await asyncio.to_thread(postgres.start)
        await schema.upgrade(url)
        for crash in range(CRASHES):
            name = f"mail-{crash}"
            promised = await _work(url, name, postgres)
            await asyncio.to_thread(until, lambda: not postgres.alive())
            await asyncio.to_thread(postgres.restart)
            assert await _found(url, name) == promised, "an answer did not outlive the crash"
    finally:
        await asyncio.to_thread(postgres.stop, 0)


async def _work(url: str, name: str, postgres: EmbeddedPostgres) -> list[tuple[int, str | None]]:
    """Enqueue three jobs, claim two, complete one, and kill PostgreSQL: what jobs there must be, with their leases."""
    pools = await open_pools(url, hot=2, rest=2, prepared_statements=True)
    machine = new_machine(pools)
    try:
        await store.put(pools.rest, name, resolve(name, AskedSettings(type="queue", durable=True)))
        queue = await machine.policies.queue(name)
        seqs = await machine.enqueue(queue, 3)
        first, second = await machine.claim(queue, 2)
        assert await machine.engine.settlements.ack(queue, [held(first)]) == {0}
        assert postgres.pid is not None
        os.kill(postgres.pid, signal.SIGKILL)
    finally:
        machine.engine.stop()
        await machine.engine.drain()
        for pool in (pools.hot, pools.hot_async, pools.rest):
            pool.terminate()
    return [(second.seq, second.lease), (seqs[2], None)]


async def _found(url: str, name: str) -> list[tuple[int, str | None]]:
    db = await asyncpg.connect(url)
    try:
        rows = await db.fetch("SELECT seq, lease_id FROM holdfast.jobs WHERE topic = $1 ORDER BY seq", name)
    finally:
        await db.close()
    return [(row["seq"], None if row["lease_id"] is None else row["lease_id"].hex) for row in rows]
