"""The sweeps. Each is a bounded pass that says how much it did; a loop, a cron job and tests call the same ones."""

from __future__ import annotations

import contextlib
import logging
from datetime import timedelta
from typing import TYPE_CHECKING, Final

from app.db import sql
from app.engine.exits import BATCH
from app.queue import consumer, exits, inspector
from app.queue import log as records
from app.topics import store
from app.topics import watches as watched
from app.topics.config import Policy, TopicType

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from app.db.pool import Pools
    from app.engine.engine import Engine

PARTITIONS_AHEAD: Final = 3  # days
EVENTS_KEPT: Final = 7  # days
FINISHED_KEPT: Final = timedelta(days=14)
PAGE: Final = 500
LOG_BATCH: Final = 5_000  # records of one log in one transaction: appends to it wait so long
LOG_PASSES: Final = 200

log = logging.getLogger(__name__)

_CREATE_PARTITIONS = sql.load(__package__, "create_partitions")
_ORPHANS = sql.load(__package__, "orphans")
_DROP_PARTITIONS = sql.load(__package__, "drop_partitions")


async def partitions(pools: Pools, _engine: Engine) -> int:
    """Make the ledger's days ahead of time, and drop those past retention: how many of both."""
    made: int = await pools.rest.fetchval(_CREATE_PARTITIONS, PARTITIONS_AHEAD)
    gone: int = await pools.rest.fetchval(_DROP_PARTITIONS, EVENTS_KEPT)
    return made + gone


async def expiry(pools: Pools, engine: Engine) -> int:
    """Mark jobs whose time to live has passed: how many."""
    count = 0
    async for policy in _queues(pools, engine):
        while (marked := await engine.exits.expire(policy)) > 0:
            count += marked
            if marked < BATCH:
                break
    return count


async def exhaustion(pools: Pools, engine: Engine) -> int:
    """Take out jobs whose last delivery ended in silence: how many."""
    count = 0
    async for policy in _queues(pools, engine):
        if not policy.budget.ends:
            continue
        lanes = await consumer.lanes(pools.hot, policy.topic)
        while (moved := await engine.exits.exhaust(policy, lanes)) > 0:
            count += moved
    return count


async def retention(pools: Pools, engine: Engine) -> int:
    """Delete jobs that failed or expired longer ago than they are kept: how many."""
    count = 0
    async for policy in _queues(pools, engine):
        while (gone := await exits.sweep_finished(pools.hot, policy.topic.name, FINISHED_KEPT, BATCH)) > 0:
            count += gone
            if gone < BATCH:
                break
    return count


async def tallies(pools: Pools, engine: Engine) -> int:
    """Count every queue's jobs one by one, and set its counts right: by how many they were off in all.

    They are right by themselves, unless somebody wrote to the jobs table past the service.
    """
    await pools.rest.fetchval(_ORPHANS)
    count = 0
    async for policy in _queues(pools, engine):
        async with pools.rest.acquire() as db, db.transaction():
            off = await inspector.reconcile(db, policy.topic)
        if off:
            log.warning("the counts of topic %s were off by %d jobs, and are right again", policy.topic.name, off)
        count += off
    return count


async def logs(pools: Pools, _engine: Engine) -> int:
    """Take out of logs what is too old, and what is above caps that were lowered: how many records."""
    count = 0
    for _ in range(LOG_PASSES):
        overdue = await store.overdue_logs(pools.rest, PAGE)
        for policy in overdue:
            with contextlib.suppress(records.Gone):
                count += await records.trim(pools.rest, policy.topic, policy.log_limits, LOG_BATCH)
        if not overdue:
            break
    return count


async def idempotency(pools: Pools, _engine: Engine) -> int:
    """Forget idempotency keys whose window has passed: how many."""
    count = 0
    while (gone := await records.sweep_keys(pools.rest, BATCH)) > 0:
        count += gone
        if gone < BATCH:
            break
    return count


async def watches(pools: Pools, _engine: Engine) -> int:
    """Forget watches whose time without a connection has passed: how many."""
    count = 0
    while (gone := await watched.sweep(pools.rest, BATCH)) > 0:
        count += gone
        if gone < BATCH:
            break
    return count


async def _queues(pools: Pools, engine: Engine) -> AsyncIterator[Policy]:
    """Every queue, a page at a time."""
    after = ""
    while page := await store.page(pools.rest, "", after, PAGE, defaults=engine.policies.defaults):
        for policy in page:
            if policy.config.type is TopicType.QUEUE:
                yield policy
        after = page[-1].topic.name
