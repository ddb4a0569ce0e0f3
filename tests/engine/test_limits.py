"""What keeping the limits of tenants takes: connections. Whether limits hold is in test_fairness.py."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

import pytest

from app.base.db.pool import Pools
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine
from tests.engine.test_fairness import by_tenant, fill
from tests.queue.calls import until

MakeQueue = Callable[..., Awaitable[Policy]]
TENANTS = [f"t{n}" for n in range(20)]  # more than a pool has connections


@pytest.fixture(params=["front", "back"])
async def limited(request: pytest.FixtureRequest, machine: Machine, topic: str, make_queue: MakeQueue) -> Policy:
    """A durable queue with a limit of 2 for each tenant, and 3 jobs of each."""
    limits = dict.fromkeys(TENANTS, 2)
    queue = await make_queue(topic, tenant_limits=limits, retry_order=request.param, durability="fsync")
    assert queue.config.durable
    await fill(machine, queue, dict.fromkeys(TENANTS, 3))
    return queue


async def test_claims_of_many_tenants_at_once_all_get_theirs(machine: Machine, limited: Policy) -> None:
    claims = [machine.claim(limited, 3, tenants=[tenant]) for tenant in TENANTS]
    for tenant, jobs in zip(TENANTS, await asyncio.gather(*claims), strict=True):
        assert by_tenant(jobs) == {tenant: 2}


async def test_those_that_wait_for_their_turn_take_no_connections_from_others(
    machine: Machine, limited: Policy, make_queue: MakeQueue, pools: Pools
) -> None:
    other = await make_queue(f"{limited.topic.name}.other", durability="fsync")
    await machine.enqueue(other)
    async with pools.rest.acquire() as db, pools.rest.acquire() as watcher:
        transaction = db.transaction()
        await transaction.start()
        # Another process's claim, that has not committed yet.
        await db.execute(
            "SELECT pg_advisory_xact_lock(hashtextextended('holdfast.tenants ' || $1::integer, 0))", limited.topic.id
        )
        claims = [asyncio.create_task(machine.claim(limited, 3, tenants=[tenant])) for tenant in TENANTS]

        async def waiting() -> int:
            count: int = await watcher.fetchval(
                "SELECT count(*) FROM pg_stat_activity WHERE wait_event = 'advisory' AND pid <> pg_backend_pid() "
                "AND query LIKE '%holdfast.tenants%' AND datname = current_database()"
            )
            return count

        async def one_waits() -> bool:
            return await waiting() > 0

        await until(one_waits, "a claim waits for the lock")
        began = time.monotonic()
        assert len(await machine.claim(other)) == 1
        assert time.monotonic() - began < 1.0
        assert await waiting() == 1
        await transaction.commit()
    for tenant, jobs in zip(TENANTS, await asyncio.gather(*claims), strict=True):
        assert by_tenant(jobs) == {tenant: 2}
