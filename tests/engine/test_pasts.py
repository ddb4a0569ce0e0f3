"""Whoever asks what queues looked like leaves room for everybody else, whatever it costs."""

from __future__ import annotations

import asyncio
import time
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

LOCKED = "SELECT EXISTS (SELECT FROM pg_locks WHERE NOT granted AND relation = 'holdfast.lease_events'::regclass)"


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
    async with unreadable(pools):
        with pytest.raises(TooMuchToRead):
            await machine.engine.core(Pasts).at(queue.topic, datetime.now(UTC))
        with pytest.raises(TooMuchToRead):
            await machine.engine.core(Pasts).jobs_at(queue.topic, datetime.now(UTC), state=None, behind=0, limit=1)
    told = await machine.engine.core(Pasts).at(queue.topic, datetime.now(UTC))
    assert told.ready == 0, "the next one is told"


async def test_one_at_a_time(pools: Pools, machine: Machine, queue: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "PATIENCE_SECONDS", 0.1)
    async with unreadable(pools):
        first = asyncio.create_task(machine.engine.core(Pasts).at(queue.topic, datetime.now(UTC)))
        while not await pools.hot.fetchval(LOCKED):
            await asyncio.sleep(0.01)
        for answer in await asyncio.gather(
            *(machine.engine.core(Pasts).at(queue.topic, datetime.now(UTC)) for _ in range(8)), return_exceptions=True
        ):
            assert isinstance(answer, Unavailable)
        running = "SELECT count(*) FROM pg_stat_activity WHERE query LIKE '%holdfast.as_of%' AND state = 'active'"
        assert await pools.hot.fetchval(f"{running} AND pid <> pg_backend_pid()") == 1
    assert (await first).ready == 0


async def test_a_pace_that_takes_too_long_is_not_told(
    pools: Pools, machine: Machine, queue: Policy, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(explain, "PATIENCE_SECONDS", 0.2)
    async with unreadable(pools):
        began = time.monotonic()
        recent, _ = await machine.engine.core(Explain)._recent(queue.topic)
        assert time.monotonic() < began + 3
        pace = await machine.engine.core(Explain)._pace(queue)
    assert recent.claimed == 0
    assert not pace.nobody_claims, "that nobody claims is not known"
