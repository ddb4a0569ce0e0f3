"""Whoever asks what queues looked like leaves room for everybody else, whatever it costs."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from datetime import UTC, datetime

import pytest

from app.base.db.pool import Pools
from app.errors import TooMuchToRead, Unavailable
from app.features.explain import explain, store
from app.features.explain.explain import Explain
from app.features.explain.store import Pasts
from app.kernel.topics.policy import Policy
from tests.engine.machines import Machine
from tests.queue.calls import until

LOCKED = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'holdfast.lease_events'::regclass)"
READING = """
SELECT count(*) FROM pg_stat_activity
WHERE query LIKE '%holdfast.as_of%' AND state = 'active' AND pid <> pg_backend_pid()
"""


@asynccontextmanager
async def unreadable(pools: Pools) -> AsyncIterator[None]:
    """A ledger that takes for ever to read."""
    async with pools.hot.acquire() as db, db.transaction():
        await db.execute("LOCK TABLE holdfast.lease_events IN ACCESS EXCLUSIVE MODE")
        yield


async def test_it_takes_no_longer_than_it_may(
    pools: Pools, machine: Machine, queue: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "SECONDS", 0.2)
    pasts = machine.engine.core(Pasts)
    async with unreadable(pools):
        with pytest.raises(TooMuchToRead):
            await pasts.at(queue.topic, datetime.now(UTC))
        with pytest.raises(TooMuchToRead):
            await pasts.jobs_at(queue.topic, datetime.now(UTC), state=None, behind=0, limit=1)
    assert (await pasts.at(queue.topic, datetime.now(UTC))).ready == 0, "the next one is told"


async def test_one_at_a_time(pools: Pools, machine: Machine, queue: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "PATIENCE_SECONDS", 0.1)
    pasts = machine.engine.core(Pasts)

    async def locked() -> bool:
        return bool(await pools.hot.fetchval(LOCKED))

    async with unreadable(pools):
        first = asyncio.create_task(pasts.at(queue.topic, datetime.now(UTC)))
        await until(locked, "it waits for the ledger")
        others = (pasts.at(queue.topic, datetime.now(UTC)) for _ in range(8))
        answers = await asyncio.gather(*others, return_exceptions=True)
        assert [type(answer) for answer in answers] == [Unavailable] * 8
        assert await pools.hot.fetchval(READING) == 1
    assert (await first).ready == 0


async def test_a_pace_that_takes_too_long_is_not_told(
    pools: Pools, machine: Machine, queue: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explain, "PATIENCE_SECONDS", 0.2)
    async with unreadable(pools):
        recent, _ = await asyncio.wait_for(machine.engine.core(Explain)._recent(queue.topic), 10)
        pace = await machine.engine.core(Explain)._pace(queue)
    assert recent.claimed == 0
    assert not pace.nobody_claims, "that nobody claims is not known"
